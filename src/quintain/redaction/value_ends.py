"""The end of a value without quotes, decided by what surrounds it.

| surroundings | the value ends at |
|---|---|
| content of an element (`<password>`) | the next tag |
| query of a URL (after `?` or `&`) | `&`, and what RFC 3986 excludes from a query |
| name of a token or key (characters of RFC 7235) | any delimiter |
| argument of a command (after `--password`) | an operator of the shell |
| item within brackets (`f(password=x,y)`, `{password: x,y}`) | a separator or a bracket |
| anything else | white space; the next pair (`&user=`); a quote, bracket or table cell that opened before; a tag or entity |

A backslash always ends it, since a text can be the inside of a JSON string. Punctuation at its end is left out.
"""

from __future__ import annotations

import re
from typing import Literal

Surroundings = Literal["element", "query", "argument", "token", "text"]
ITEM = re.compile(r"""[^\s"'`,;(){}\[\]<>\\|&]+""")
"""A value that ends at any delimiter."""
MAX_EXAMINED = 256
"""Maximum number of characters of a value that are examined."""
_ENDS_AT_CHARACTER = {
    "element": re.compile(r"[^\s<>\\]+"),
    "query": re.compile(r"""[^\s"'`<>\\&]+"""),
    "argument": re.compile(r"""[^\s"'`;|&()<>\\]+"""),
}
_TO_SPACE = re.compile(r"[^\s\\]+")
_DELIMITER = re.compile(
    r"""(?P<pair>[,;&|]{1,2}[\w.-]{1,48}(?P<operator>[=:]))|(?P<certain>&&|\|\||&(?:[a-z]{2,6}|\#\d{2,5});|<[^<>\n]{1,64}>)|(?P<mark>["'`|)\]}>])"""
)
_CALL = re.compile(r"(?P<callee>[\w$%.:>?!*/+@-]*)(?P<bracket>[(\[{])")
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_OPENING = {")": "(", "]": "[", "}": "{", ">": "<"}
_FINAL = ".:!?*,;&|\"'`"
_MAX_LINE = 4096
"""Maximum number of characters of a line that are read before a value."""


def bare_value_end(text: str, start: int, name_start: int, surroundings: Surroundings) -> int | None:
    """Return the end of the value that starts at `start`; None if it is empty or an expression of code."""
    limit = start + MAX_EXAMINED
    item = ITEM.match(text, start, limit)
    if item is None and (surroundings != "text" or not text.startswith((")", "]", "}"), start)):
        return None
    end = item.end() if item else start
    if end < limit and not text[end : end + 1].isspace():
        if _is_expression(text, start):
            return None
        if surroundings in _ENDS_AT_CHARACTER:
            found = _ENDS_AT_CHARACTER[surroundings].match(text, start, limit)
            end = found.end() if found else end
        elif surroundings == "text" and (before := _open_before(text, name_start)) is not None:
            assigns = "=" in text[name_start:start]
            if not _is_in_list(before, assigns):
                end = _end_in_text(text, start, before, assigns)
    return _without_final_punctuation(text, start, end)


def _is_expression(text: str, start: int) -> bool:
    """Whether a call, an index or a template begins at a position, as in `get_token(request)` and `${name}`."""
    call = _CALL.match(text, start, start + MAX_EXAMINED)
    if call is None:
        return False
    line_end = text.find("\n", call.end(), call.end() + MAX_EXAMINED)
    rest = text[call.end() : line_end if line_end >= 0 else call.end() + MAX_EXAMINED]
    return not rest.strip() or _CLOSING[call["bracket"]] in rest


def _open_before(text: str, at: int) -> str | None:
    """Return the part of the line before a position, from the quote around the position; None for a longer line."""
    line_start = text.rfind("\n", max(0, at - _MAX_LINE), at) + 1
    if line_start == 0 and at > _MAX_LINE:
        return None
    before = text[line_start:at]
    for quote in "\"`'":
        opening = before.rfind(quote)
        if before.count(quote) % 2 and not before[max(0, opening - 1) : opening].isalnum():
            return before[opening:]
    return before


def _is_open(before: str, bracket: str) -> bool:
    return before.count(bracket) > before.count(_CLOSING.get(bracket, ">"))


def _is_in_list(before: str, assigns: bool) -> bool:
    """Whether a value is an item within braces, or an argument of a call."""
    return _is_open(before, "{") or (assigns and (_is_open(before, "(") or _is_open(before, "[")))


def _end_in_text(text: str, start: int, before: str, assigns: bool) -> int:
    found = _TO_SPACE.match(text, start, start + MAX_EXAMINED)
    end = found.end() if found else start
    for delimiter in _DELIMITER.finditer(text, start, min(end + 64, len(text))):
        at = delimiter.start()
        if at >= end:
            break
        if delimiter["certain"] or (delimiter["pair"] and (delimiter["operator"] == "=") == assigns):
            return at
        if delimiter["mark"] and _closes(delimiter["mark"], before, text[start:at]):
            return at
    return end


def _closes(mark: str, before: str, value: str) -> bool:
    """Whether a mark closes what opened before the value."""
    opening = _OPENING.get(mark)
    if opening is None:
        return mark in before if mark == "|" else before.startswith(mark)
    return value.count(opening) <= value.count(mark) and _is_open(before, opening)


def _without_final_punctuation(text: str, start: int, end: int) -> int:
    while end > start:
        last = text[end - 1]
        opening = _OPENING.get(last)
        if last not in _FINAL and (opening is None or text.count(opening, start, end) >= text.count(last, start, end)):
            break
        end -= 1
    return end
