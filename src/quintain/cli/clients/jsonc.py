"""Edits of one entry in a JSON file with comments; every other character stays.

Comments and trailing commas, as editors write them, become spaces before the standard library reads the text, so that the places
of what it finds are those of the text.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NamedTuple

_STRING = r'"(?:[^"\\\n]|\\.)*"?'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_LAST_COMMA = re.compile(rf"{_STRING}|[{{\[]\s*,|,(?=\s*[}}\]])")
_SPACE = re.compile(r"\s*")


class Unreadable(ValueError):
    """The text is not JSON; `line` is where."""

    def __init__(self, what: str, line: int) -> None:
        super().__init__(f"line {line}: {what}")
        self.line = line


class _Member(NamedTuple):
    """Places of a member of an object: of the first quote of its name, of its value, and after it."""

    name: int
    value: int
    end: int


def loads(text: str) -> Any:
    """Return the value of a text; one of spaces and comments alone is an empty object.

    Raises:
        Unreadable: With the line.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        for name, n in Counter(name for name, _ in pairs).items():
            if n > 1:
                place = text.rfind(json.dumps(name, ensure_ascii=False))
                raise Unreadable(f"expected {name!r:.40} once in an object, got it twice", _line(text, place))
        return dict(pairs)

    plain = _plain(text)
    try:
        return json.loads(_strict(plain), object_pairs_hook=once) if plain.strip() else {}
    except json.JSONDecodeError as error:
        raise Unreadable(f"{error.msg}: {text[error.pos : error.pos + 20]!r}", error.lineno) from None
    except RecursionError:
        raise Unreadable("expected fewer levels", 1) from None


def with_entry(text: str, path: Sequence[str], value: Mapping[str, Any]) -> str:
    """Return the text with the entry at a path from the outermost object set, and everything else unchanged.

    Raises:
        Unreadable: The text is not JSON, or a name on the path has a value that is not an object.
    """
    loads(text)
    plain = _plain(text)
    if not plain.strip():
        gap = "\n" if text.strip("\ufeff") and not text.endswith("\n") else ""
        return f"{text}{gap}{json.dumps(_nested(path, value), indent=2, ensure_ascii=False)}\n"
    strict, place, end = _strict(plain), _past_space(plain, 0), 0
    indent = _indent_of(text, _members(strict, place)[0])
    for depth, name in enumerate(path):
        members, closing = _members(strict, place)
        if plain[place] != "{":
            kind = type(json.JSONDecoder().raw_decode(strict, place)[0]).__name__
            raise Unreadable(f"expected an object, got {kind}", _line(text, place))
        if name not in members:
            last = max((member.end for member in members.values()), default=None)
            return _inserted(text, plain, last, closing, {name: _nested(path[depth + 1 :], value)}, depth, indent)
        _, place, end = members[name]
    written = json.dumps(value, indent=indent, ensure_ascii=False).replace("\n", "\n" + indent * len(path))
    return text[:place] + written + text[end:]


def without_entry(text: str, path: Sequence[str]) -> str:
    """Return the text without an entry, or as it is where the entry does not exist.

    Raises:
        Unreadable: The text is not JSON.
    """
    loads(text)
    plain = _plain(text)
    if not plain.strip():
        return text
    strict, place = _strict(plain), _past_space(plain, 0)
    for name in path[:-1]:
        members, _ = _members(strict, place)
        if name not in members:
            return text
        place = members[name].value
    members, _ = _members(strict, place)
    if path[-1] not in members:
        return text
    here, _, end = members[path[-1]]
    after = [member.name for member in members.values() if member.name > here]
    before = [member.end for member in members.values() if member.name < here]
    if after:  # with its comma, up to the next member
        return text[:here] + text[min(after) :]
    comma = _past_space(plain, end)
    end = comma + 1 if plain[comma] == "," else end
    if before:  # with the comma before it; a comment after the member before stays
        comma = _past_space(plain, max(before))
        return text[:comma] + text[comma + 1 : here].rstrip() + text[end:]
    start = text.rfind("\n", 0, here)
    return text[: start if text[start + 1 : here].isspace() else here] + text[end:]


def _nested(path: Sequence[str], value: Any) -> Any:
    for name in reversed(path):
        value = {name: value}
    return value


def _inserted(
    text: str, plain: str, last: int | None, closing: int, member: Mapping[str, Any], depth: int, indent: str
) -> str:
    """Return the text with a new last member of an object: after the end of the last one, or before the closing brace."""
    margin = "\n" + indent * (depth + 1)
    ((name, value),) = member.items()
    written = json.dumps(value, indent=indent, ensure_ascii=False).replace("\n", margin)
    entry = f"{margin}{json.dumps(name, ensure_ascii=False)}: {written}"
    if last is None:  # comments in an empty object stay
        return f"{text[:closing].rstrip()}{entry}\n{indent * depth}{text[closing:]}"
    comma = _past_space(plain, last)
    place, sign = (comma + 1, "") if plain[comma] == "," else (last, ",")
    line, newline, _ = plain[place:].partition("\n")
    comment = text[place : place + len(line)].rstrip() if newline and not line.strip() else ""  # of the last member
    return f"{text[:place]}{sign}{comment}{entry}{text[place + len(comment) :]}"


def _indent_of(text: str, members: Mapping[str, _Member]) -> str:
    """Return the indentation of the outermost object's members."""
    for place, _, _ in members.values():
        margin = text[text.rfind("\n", 0, place) + 1 : place]
        if margin and margin.isspace():
            return margin
    return "  "


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _plain(text: str) -> str:
    """Return a text with spaces in place of its comments."""
    opened = [found for found in _COMMENT.finditer(text) if found[0].startswith("/*") and not found[0].endswith("*/")]
    if opened:
        raise Unreadable("expected the end of a comment, */", _line(text, opened[0].start()))
    plain = _COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]) if found[0][0] == "/" else found[0], text)
    return " " + plain[1:] if plain.startswith("\ufeff") else plain


def _strict(plain: str) -> str:
    """Return a text without comments with spaces in place of its trailing commas."""
    return _LAST_COMMA.sub(lambda found: " " if found[0] == "," else found[0], plain)


def _members(strict: str, place: int) -> tuple[dict[str, _Member], int]:
    """Return the members of the value at a place of strict JSON, none but of an object, and its closing brace."""
    members, here = dict[str, _Member](), place
    while strict[place] == "{" and strict[here] != "}":
        here = _past_space(strict, here + 1)
        if strict[here] == '"':
            name, end = scanstring(strict, here + 1)
            value = _past_space(strict, strict.index(":", end) + 1)
            _, end = json.JSONDecoder().raw_decode(strict, value)
            members[name] = _Member(here, value, end)
            here = _past_space(strict, end)
    return members, here


def _past_space(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    assert found is not None
    return found.end()
