"""Phone numbers, and addresses of hosts in private networks.

A phone number is found in its international form (`+`, an assigned country code of ITU-T E.164, 9 to 15 digits), in the
form of North America with its area code in parentheses, and in a `tel:` URI (RFC 3966). Other national forms look like
any number and stay. A private address belongs to a network of RFC 1918, RFC 6598 or RFC 4193; loopback addresses, and
networks themselves (`10.0.0.0/8`), stay.
"""

from __future__ import annotations

import re
from functools import partial
from ipaddress import ip_address, ip_network

from quintain.redaction.secrets import EDGE, Rule, Span, pattern_rule
from quintain.redaction.shapes import ShapeRule, shape_rule

_COUNTRY = re.compile(
    r"1|7|2(?:0|7|1[12368]|[2-6]\d|9[01789])|3(?:[0-469]|5\d|7\d|8[0-3579])|4(?:[013-9]|2[013])|5(?:[1-8]|[09]\d)"
    r"|6(?:[0-6]|7[02-9]|8[0-35-9]|9[0-2])|8(?:[1246]|0[08]|5[02356]|7[08]|8[0-368])|9(?:[0-58]|6\d|7[0-79]|9[2-68])"
)
"""Assigned country codes (list of ITU-T Recommendation E.164)."""
_NORTH_AMERICA = r"(?!\d11|555)[2-9]\d{2}\)? ?[-. ]?(?!555[-. ]?01)[2-9]\d{2}[-. ]?\d{4}"
"""Area code, exchange and number; 555-01XX is reserved for fiction."""
_NATIONAL = re.compile(_NORTH_AMERICA)
_BEFORE = r"(?:(?<![\w+*/.)\]-])|(?<=\\[nrtbf])|(?<=%[0-9A-Fa-f]{2}))"
_INTERNATIONAL = re.compile(_BEFORE + r"\+[1-9](?:[ \-()/]{0,2}[0-9]){8,14}(?![\w-]|\.\d)", re.ASCII)
_LOCAL = re.compile(_BEFORE + rf"\({_NORTH_AMERICA}(?![\w-])", re.ASCII)
_MIN_COMPACT = 10
"""Digits of a number without separators."""
_HUNK = "@@ -"
"""Begins each part of a unified diff."""


def _is_international(found: re.Match[str]) -> bool:
    number = "".join(c for c in found.group() if c.isdigit())
    country = _COUNTRY.match(number)
    if country is None or (len(number) < _MIN_COMPACT and len(found.group()) == len(number) + 1):
        return False
    if country.group() in {"1", "7"} and len(number) != 11:
        return False
    if country.group() == "1" and not _NATIONAL.fullmatch(number[1:]):
        return False
    text, start = found.string, found.start()
    begins_line = not start or text[start - 1] == "\n" or text[start - 2 : start] == r"\n"
    return not (begins_line and text.rfind(_HUNK, max(0, start - 20_000), start) >= 0)  # an added line of a diff


def phone_rules() -> list[ShapeRule]:
    """Return the rules for international numbers and for those of North America."""
    return [
        shape_rule("phone", (b"+0",), _INTERNATIONAL, _is_international),
        shape_rule("phone", (b"(000) 000", b"(000)000"), _LOCAL),
    ]


def tel_rule() -> Rule:
    """Return the rule for `tel:` URIs."""
    return pattern_rule("phone", ("tel:",), EDGE + r"(?i:tel):(?P<secret>\+?[0-9](?:[-.()]?[0-9]){6,14})(?!\w)")


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
