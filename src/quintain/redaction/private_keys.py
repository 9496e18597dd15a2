"""Private keys: PEM blocks, also cut at either end or encoded once more in base64, and those of PuTTY.

A block that is cut is followed line by line. The text before the lines of a listing (numbers, `+`, `>`, quotes, the
name of a file) does not end it.
"""

from __future__ import annotations

import base64
import re

from quintain.redaction.secrets import Rule, Span, pattern_rule

_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_BODY = re.compile(r"[A-Za-z0-9+/=\s\\:,.-]{4,}|(?s:.)*?[A-Za-z0-9+/=]{16}(?s:.)*")
_MAX_KEY = 16_384
_MAX_LINE = 4_300
"""Maximum number of characters of a line, with the text before it."""
_FULL = 40
"""Shortest line of a key besides its last one."""
_SHORTEST_END = 16
"""Minimum number of letters and digits of a last line without other lines."""
_AFTER = r"(?:\\+r)?[^A-Za-z0-9+/=]{0,8}"
_LINE = re.compile(rf"(?P<before>.{{0,48}}?)(?P<run>[A-Za-z0-9+/]{{1,4096}}={{0,2}}){_AFTER}", re.DOTALL)
_BLANK = re.compile(r"[^A-Za-z0-9]{0,12}")
_HEADER = re.compile(r".{0,48}?[A-Za-z-]{1,20}: .{1,100}")
"""As in `Proc-Type: 4,ENCRYPTED`."""
_COUNTERS = re.compile(r"[\s\d+/-]+")
_LETTER = re.compile(r"[^\W_]")


def _next_line(text: str, start: int) -> tuple[int, int]:
    """Return the end of the line at a position, and the start of the next; a line also ends at an escaped `n`."""
    stop = min(len(text), start + _MAX_LINE)
    real, escaped = text.find("\n", start, stop), text.find("\\n", start, stop)
    end = min((at for at in (real, escaped) if at >= 0), default=stop)
    return end, end + (2 if end == escaped else 1)


def _line_start(text: str, end: int) -> int:
    least = max(0, end - _MAX_LINE)
    real, escaped = text.rfind("\n", least, end), text.rfind("\\n", least, end)
    return max(real + 1, escaped + 2 if escaped >= 0 else 0, least)


def _line(text: str, start: int, end: int) -> re.Match[str] | None:
    """Return the part of a key on a line, with the text around it; None for a line without one."""
    return None if _BLANK.fullmatch(text, start, end) else _LINE.fullmatch(text, start, end)


def _decoration(before: str) -> str:
    """Return the text before a line of a listing, without numbers, spaces and the marks of a diff."""
    return _COUNTERS.sub("", before)


def _end_of_lines(text: str, at: int, start: int) -> int | None:
    """Return the end of the lines of a key that begin at a position; None if no full line follows.

    Args:
        text: Any text.
        at: The position of the block.
        start: The position behind its first line.
    """
    known = {"", _decoration(text[max(_line_start(text, at), at - 48) : at])}
    found: int | None = None
    position = start
    while position < min(len(text), start + _MAX_KEY):
        end, following = _next_line(text, position)
        line = _line(text, position, end)
        decoration = _decoration(line["before"]) if line else ""
        if line and len(line["run"]) >= _FULL and (decoration in known or not _LETTER.search(decoration)):
            known = {decoration}
            found = line.end("run")
        elif not _BLANK.fullmatch(text, position, end):
            if found is not None:
                return line.end("run") if line and decoration in known else found
            if not _HEADER.fullmatch(text, position, end):
                return None
        position = following
    return found


def _private_key(text: str, at: int) -> Span | None:
    """Return the span of a PEM block, up to the last line if it was truncated. A header alone is not a key."""
    head = _BEGIN.match(text, at)
    if head is None:
        return None
    begin = head.end()
    if end := _END.search(text, begin, begin + _MAX_KEY):
        return Span(at, end.end(), "private_key") if _BODY.fullmatch(text, begin, end.start()) else None
    cut = _end_of_lines(text, at, begin)
    return Span(at, cut, "private_key") if cut is not None else None


def _private_key_end(text: str, at: int) -> Span | None:
    """Return the lines of a key above its last line, where the first line is missing."""
    foot = _END.match(text, at)
    if foot is None:
        return None
    start = _line_start(text, at)
    line = _line(text, start, at)
    prefix = ""
    if line is None or len(line["run"]) < _SHORTEST_END:
        if at - start > 48:
            return None
        prefix, line = _decoration(text[start:at]), None
    found: int | None = None
    is_key = False
    while True:
        if line is not None:
            size = sum(map(str.isalnum, line["run"]))
            if found is not None and size < _FULL:
                break
            is_key = is_key or size >= (_SHORTEST_END if found is None else _FULL)
            found = line.start("run")
            decoration = _decoration(line["before"])
            if decoration != prefix and _LETTER.search(decoration):
                break  # the first line that is shown, behind a name
        end = start - (1 if text[start - 1 : start] == "\n" else 2)
        if start <= max(0, at - _MAX_KEY) or text[end:start] not in {"\n", "\\n"}:
            break
        start = _line_start(text, end)
        line = _line(text, start, end)
        if line is None and not _BLANK.fullmatch(text, start, end):
            break
    return Span(found, foot.end(), "private_key") if found is not None and is_key else None


_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})+")
_WRAPPED = re.compile(r"[A-Za-z0-9+/_-]{30,65536}={0,2}")
_LINES_OF_BASE64 = 80
"""Longest line that programs wrap base64 at, and some characters."""


def _wrapped_private_key(text: str, at: int) -> Span | None:
    """Return the span of a PEM block that is encoded once more, as in Kubernetes secrets.

    The block may follow others, as in a file of a certificate and its key, if the whole is one line.
    """
    beginning = text[at : at + 60]  # decoded first, so that a text of such beginnings takes linear time
    if not _BASE64.fullmatch(beginning):
        return None
    decoded = base64.b64decode(beginning).lstrip()
    is_key = _BEGIN.match(decoded.decode("latin-1")) is not None
    if not is_key and (not decoded.startswith(b"-----BEGIN ") or text[at - 1 : at].isalnum()):
        return None
    found = _WRAPPED.match(text, at)
    if found is None:
        return None
    if not is_key:
        whole = found.group().rstrip("=")
        content = base64.b64decode(whole[: len(whole) // 4 * 4], "-_" if "_" in whole or "-" in whole else None)
        return Span(*found.span(), "private_key") if _BEGIN.search(content.decode("latin-1")) else None
    if len(found.group()) > _LINES_OF_BASE64:
        return Span(*found.span(), "private_key")
    below = _end_of_lines(text, at, found.end())
    return Span(at, below or found.end(), "private_key")


_PHRASES = tuple(f"{word}{joint}phrase" for word in ("seed", "recovery", "secret") for joint in ("", " ", "_", "-"))
_KEYS = tuple(f"{word}{joint}key" for word in ("secret", "private") for joint in ("", " ", "_", "-"))
_GIVEN = r"""\w{0,16}\\{0,3}["'`]?\s{0,4}(?::|=|\bis\b:?)\s{0,4}"""
"""Stands between the name of a key and the key."""


def _is_seed_phrase(phrase: str) -> bool:
    """Return whether some words can be a wallet's (BIP 39): 12, 15, ... or 24, and not those of a test, which repeat."""
    words = phrase.split()
    return len(words) % 3 == 0 and 4 * len(set(words)) > len(words)


def private_key_rules() -> list[Rule]:
    """Return the rules for private keys."""
    return [
        Rule(("-----begin",), _private_key),
        Rule(("-----end",), _private_key_end),
        Rule(("ls0tls1crudjti", "ci0tls0tqkvhsu4g"), _wrapped_private_key),
        pattern_rule(
            "private_key", ("private-lines:",), r"(?i:Private-Lines): \d+(?P<secret>[A-Za-z0-9+/=\s\\]{40,8192})"
        ),
        pattern_rule("private_key", ("age-secret-key-1",), r"(?i:AGE-SECRET-KEY-1)[0-9A-Za-z]{58}"),
        pattern_rule(
            "private_key",
            ("mnemonic", *_PHRASES),
            rf"""(?i:mnemonic|(?:seed|recovery|secret)[ _-]?phrase){_GIVEN}\\{{0,3}}["'`]?"""
            r"(?P<secret>[a-z]{3,8}(?: [a-z]{3,8}){11,23})(?! ?[a-z])",
            accepts=_is_seed_phrase,
        ),
        pattern_rule(  # the bytes of a key, as Solana's programs store them
            "private_key",
            ("keypair", "key_pair", *_KEYS),
            rf"""(?i:(?:secret|private)[ _-]?key|key_?pair){_GIVEN}[\w. (]{{0,24}}[\\"'`]{{0,3}}"""
            r"(?P<secret>\[\s{0,8}\d{1,3}(?:,\s{0,8}\d{1,3}){31,63},?\s{0,8}\])",
            accepts=lambda key: len(re.findall(r"\d+", key)) in (32, 64),
        ),
    ]
