"""E-mail addresses, phone numbers and addresses of hosts.

E-mail addresses of reserved domains (RFC 2606, RFC 6761) stay. A phone number is found in its international form (`+`,
an assigned country code of ITU-T E.164, 9 to 15 digits, or 10 to 13 without a separator; between dots at least two), in
the forms `(212) 555-4567` and `212-555-4567` of North America, and in a `tel:` URI (RFC 3966). Other national forms look
like any number and stay, and so do the numbers of a written addition.
"""

from __future__ import annotations

import re
from functools import partial
from ipaddress import ip_address, ip_network

from quintain.redaction.secrets import EDGE, ESCAPE, Rule, Span, pattern_rule
from quintain.redaction.shapes import ShapeRule, shape_rule

_LOCAL_BACKWARDS = re.compile(r"(?:[^\W\u2e80-\U0010ffff]|[.%+'-]){1,64}+")
"""Matches the end of a reversed local part."""
_DOMAIN = re.compile(
    r"(?:@|%40)(?P<domain>(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,62}[A-Za-z0-9])?\.){1,8}(?P<top>[A-Za-z]{2,24}))(?![\w(@]|\.\w|:(?:[~/]|[\w.-]{1,64}(?:/|\.git\b)))"
)
"""Not followed by the path of an scp address (`user@host:path/x`, `git@host:x.git`)."""
_NO_TOP = frozenset({
    "png", "jpg", "jpeg", "gif", "svg", "webp", "ico", "js", "ts", "tsx", "jsx", "mjs", "css", "html", "json",
    "yaml", "yml", "toml", "txt", "tgz", "gz", "zip", "whl", "lock", "so", "dll", "exe", "service", "socket",
    "timer", "target", "mount",
})  # fmt: skip
"""Suffixes of file and unit names, as in `icon@2x.png` and `getty@tty1.service`."""
_NO_DOMAIN = re.compile(
    r"(?:.*\.)?example\.(?:com|net|org)|.*\.(?:example|test|invalid|localhost)|(?:example|test|invalid|localhost)\.(?:com?\.)?[a-z]+",
    re.IGNORECASE,
)
"""Names reserved by RFC 2606 and RFC 6761 with all names below them, and the same words directly under another top-level
domain (`test.com`), where writers of examples put them."""
_USER_OF_URL = re.compile(r"[^\s/?#@\"'<>]*(?:/\\?){2}:")
"""Matches the end of a reversed URL up to the user of its host."""
_NO_PERSON = frozenset({"git", "noreply", "no-reply", "donotreply"})
_ESCAPE = re.compile(r"(?:\\(?:[nrtbf]|u00[0-9A-Fa-f]{2})|%[0-9A-Fa-f]{2})+")


def _email(text: str, at: int) -> Span | None:
    domain = _DOMAIN.match(text, at)
    local = _LOCAL_BACKWARDS.match(text[max(0, at - 64) : at][::-1]) if domain else None
    if domain is None or local is None or domain["top"].lower() in _NO_TOP:
        return None
    start = at - local.end()
    if start and text[start - 1] == "\\" and (escape := _ESCAPE.match(text, start - 1)):
        start = min(escape.end(), at)
    name = text[start:at].strip(".'-%+")
    if not name or name.lower() in _NO_PERSON or _NO_DOMAIN.fullmatch(domain["domain"]):
        return None
    if text[at] == "@" and _USER_OF_URL.match(text[max(0, at - 200) : at][::-1]):
        return None  # an account on a host, as in ssh://deploy@host
    return Span(text.index(name, start), domain.end(), "email")


def contact_rules() -> list[Rule]:
    """Return the rules for e-mail addresses and for `tel:` URIs."""
    return [
        Rule(("@", "%40"), _email),
        pattern_rule("phone", ("tel:",), EDGE + r"(?i:tel):(?P<secret>\+?[0-9](?:[-.()]?[0-9]){6,14})(?!\w)"),
    ]


_COUNTRY = re.compile(
    r"1|7|2(?:0|7|1[12368]|[2-6]\d|9[01789])|3(?:[0-469]|5\d|7\d|8[0-3579])|4(?:[013-9]|2[013])|5(?:[1-8]|[09]\d)"
    r"|6(?:[0-6]|7[02-9]|8[0-35-9]|9[0-2])|8(?:[1246]|0[08]|5[02356]|7[08]|8[0-368])|9(?:[0-58]|6\d|7[0-79]|9[2-68])"
)
"""Assigned country codes (list of ITU-T Recommendation E.164)."""
_NORTH_AMERICA = r"(?!\d11|555)[2-9]\d{2}\)? ?[-. ]?(?!555[-. ]?01)[2-9]\d{2}[-. ]?\d{4}"
"""Area code, exchange and number; 555-01XX is reserved for fiction."""
_NATIONAL = re.compile(_NORTH_AMERICA)
_BEFORE = rf"(?:(?<![\w+*/.)\]-])|{ESCAPE})"
_INTERNATIONAL = re.compile(_BEFORE + r"\+[1-9](?:[ \-()/]{0,2}[0-9]){8,14}(?![\w-]|\.\d)", re.ASCII)
_DOTTED = re.compile(_BEFORE + r"\+[1-9][0-9]{0,2}(?:\.[0-9]{2,12}){2,5}(?![\w-]|\.\d)", re.ASCII)
"""Two dots at least, unlike a decimal."""
_LOCAL = re.compile(_BEFORE + rf"\({_NORTH_AMERICA}(?![\w-])", re.ASCII)
_HYPHENATED = re.compile(_BEFORE + r"(?!\d11|555)[2-9]\d{2}-(?!555-01)[2-9]\d{2}-\d{4}(?![\w-]|\.\d)", re.ASCII)
_COMPACT = range(10, 14)
"""Digits of a number without separators. Of random longer ones 2 % fit the numbering plan of their country (libphonenumber)."""
_HUNK = "@@ -"
"""Begins each part of a unified diff."""


_ADDEND_ABOVE = re.compile(r"(?P<end>[ \t]*(?P<digits>[0-9]{1,40}))[ \t]*(?:\n|$)")
_TOTAL_BELOW = re.compile(r"\n(?:[ \t]*[-_=─]{2,80}[ \t]*\n)?[ \t]*=?[ \t]*(?P<digits>[0-9]{1,40})[ \t]*(?:\n|$)")
_LINE_END = re.compile(r"[ \t]*(?:\n|$)")
_MAX_COLUMN = 200
"""Maximum number of characters of a line of a written addition."""


def _is_addend(text: str, start: int, end: int) -> bool:
    """Return whether `+` and a number are a line of a written addition.

    The line above is a number without a sign. Both lines end in the same column because one is indented, or the number
    below them is their sum.
    """
    line_start = text.rfind("\n", max(0, start - _MAX_COLUMN), start) + 1
    is_alone = not text[line_start:start].strip(" \t") and _LINE_END.match(text, end)
    if not line_start or not is_alone or not text[start + 1 : end].isdigit():
        return False
    above_start = text.rfind("\n", max(0, line_start - _MAX_COLUMN), line_start - 1) + 1
    above = _ADDEND_ABOVE.fullmatch(text, above_start, line_start)
    if above is None:
        return False
    is_indented = line_start < start or above.start("digits") > above_start
    if is_indented and len(above["end"]) == end - line_start:
        return True
    total = _TOTAL_BELOW.match(text, end)
    return total is not None and int(above["digits"]) + int(text[start + 1 : end]) == int(total["digits"])


def _is_international(found: re.Match[str]) -> bool:
    number = "".join(c for c in found.group() if c.isdigit())
    country = _COUNTRY.match(number)
    if (
        country is None
        or not 9 <= len(number) <= 15
        or (len(number) not in _COMPACT and len(found.group()) == len(number) + 1)
    ):
        return False
    if country.group() in {"1", "7"} and len(number) != 11:
        return False
    if country.group() == "1" and not _NATIONAL.fullmatch(number[1:]):
        return False
    text, start = found.string, found.start()
    if _is_addend(text, start, found.end()):
        return False
    begins_line = not start or text[start - 1] == "\n" or text[start - 2 : start] == r"\n"
    return not (begins_line and text.rfind(_HUNK, max(0, start - 20_000), start) >= 0)  # an added line of a diff


def phone_rules() -> list[ShapeRule]:
    """Return the rules for international numbers and for those of North America."""
    return [
        shape_rule("phone", (b"+0",), _INTERNATIONAL, _is_international),
        shape_rule("phone", (b"+0.", b"+00.", b"+000."), _DOTTED, _is_international),
        shape_rule("phone", (b"(000) 000", b"(000)000"), _LOCAL),
        shape_rule("phone", (b"000 000 0000",), _HYPHENATED),
    ]


_PRIVATE = tuple(map(ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")))
_ADDRESS = re.compile(
    EDGE + r"(?<!\.)(?<!==)(?P<host>\d{1,3}(?:\.\d{1,3}){3})(?P<prefix>/\d{1,2}(?!\d))?(?![\w-]|\.\w)", re.ASCII
)
_ADDRESS_6 = re.compile(EDGE + r"(?<!:)(?P<host>[0-9A-Fa-f:]{6,39})(?P<prefix>/\d{1,3})?(?![\w:])", re.ASCII)


def _private_address(text: str, at: int, pattern: re.Pattern[str]) -> Span | None:
    found = pattern.match(text, at)
    try:
        address = found and ip_address(found["host"])
    except ValueError:
        return None
    if not found or not address or not any(address in network for network in _PRIVATE):
        return None
    if found["prefix"] and _is_network(found.group()):
        return None
    return Span(*found.span("host"), "private_ip")


def _is_network(text: str) -> bool:
    """Return whether no bit of a host is set."""
    try:
        ip_network(text)
    except ValueError:
        return False
    return True


def private_address_rules() -> list[Rule]:
    """Return the rules for addresses of hosts in private networks."""
    version_4 = ("10.", "192.168.", *(f"172.{n}." for n in range(16, 32)), *(f"100.{n}." for n in range(64, 128)))
    version_6 = tuple(f"f{c}{pair:02x}:" for c in "cd" for pair in range(256))
    return [
        Rule(version_4, partial(_private_address, pattern=_ADDRESS)),
        Rule(version_6, partial(_private_address, pattern=_ADDRESS_6)),
    ]
