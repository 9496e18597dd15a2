"""Edits of one entry in a JSON file with comments; every other character stays.

The parser takes comments and trailing commas, as editors write them, and keeps where each member of an object begins and ends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NamedTuple

_MAX_DEPTH = 200
_LITERALS = {"true": True, "false": False, "null": None}


class Unreadable(ValueError):
    """The text is not JSON; `line` is where."""

    def __init__(self, what: str, line: int) -> None:
        super().__init__(f"line {line}: {what}")
        self.line = line


class Node(NamedTuple):
    """A value, where it is, and the members of an object."""

    value: Any
    start: int
    end: int
    members: Mapping[str, tuple[int, Node]]
    """Name -> the place of its first quote, and the value."""


def loads(text: str) -> Any:
    """Return the value of a text; an empty one is an empty object.

    Raises:
        Unreadable: With the line.
    """
    return _Parser(text).document().value


def with_entry(text: str, path: Sequence[str], value: Mapping[str, Any]) -> str:
    """Return the text with an entry set, and everything else as it was.

    Args:
        text: The file's content; empty: a new file.
        path: Names from the outermost object to the entry.
        value: The entry.

    Raises:
        Unreadable: The text is not JSON, or a name on the path has a value that is no object.
    """
    if not text.strip():
        return json.dumps(_nested(path, value), indent=2, ensure_ascii=False) + "\n"
    node = _Parser(text).document()
    indent = _indent_of(text, node)
    for depth, name in enumerate(path):
        _require_object(text, node)
        found = node.members.get(name)
        if found is None:
            return _inserted(text, node, name, _nested(path[depth + 1 :], value), depth, indent)
        _, node = found
    written = json.dumps(value, indent=indent, ensure_ascii=False).replace("\n", "\n" + indent * len(path))
    return text[: node.start] + written + text[node.end :]


def without_entry(text: str, path: Sequence[str]) -> str:
    """Return the text without an entry, or as it is where the entry does not exist.

    Raises:
        Unreadable: The text is not JSON.
    """
    if not text.strip():
        return text
    parent = _Parser(text).document()
    for name in path[:-1]:
        if name not in parent.members:
            return text
        parent = parent.members[name][1]
    if path[-1] not in parent.members:
        return text
    here, node = parent.members[path[-1]]
    after = [place for place, _ in parent.members.values() if place > here]
    before = [other.end for place, other in parent.members.values() if place < here]
    if after:  # with its comma, up to the next member
        return text[:here] + text[min(after) :]
    end = _past_comma(text, node.end)
    if before:  # with the comma before it; a comment after the member before stays
        comma = _Parser(text).skipped(max(before))
        return text[:comma] + text[comma + 1 : here].rstrip() + text[end:]
    start = text.rfind("\n", 0, here)
    return text[: start if text[start + 1 : here].isspace() else here] + text[end:]


def _nested(path: Sequence[str], value: Any) -> Any:
    for name in reversed(path):
        value = {name: value}
    return value


def _require_object(text: str, node: Node) -> None:
    if not isinstance(node.value, dict):
        raise Unreadable(f"expected an object, got {type(node.value).__name__}", _line(text, node.start))


def _inserted(text: str, node: Node, name: str, value: Any, depth: int, indent: str) -> str:
    """Return the text with a new last member of an object."""
    margin = "\n" + indent * (depth + 1)
    written = json.dumps(value, indent=indent, ensure_ascii=False).replace("\n", margin)
    entry = f"{json.dumps(name, ensure_ascii=False)}: {written}"
    if not node.members:
        inside = text[node.start + 1 : node.end - 1].rstrip()  # comments in an empty object stay
        return f"{text[: node.start + 1]}{inside}{margin}{entry}\n{indent * depth}{text[node.end - 1 :]}"
    last = max(member.end for _, member in node.members.values())
    has_comma = _past_comma(text, last) > last
    rest = text[last + 1 if has_comma and text[last] == "," else last :]
    line_end = _end_of_line_comment(rest)
    return f"{text[:last]},{rest[:line_end]}{margin}{entry}{rest[line_end:]}"


def _end_of_line_comment(rest: str) -> int:
    """Return the end of a comment on the same line as the last member, which belongs to it."""
    line, newline, _ = rest.partition("\n")
    stripped = line.strip()
    return len(line.rstrip()) if newline and stripped.startswith(("//", "/*")) else 0


def _past_comma(text: str, place: int) -> int:
    after = _Parser(text).skipped(place)
    return after + 1 if after < len(text) and text[after] == "," else place


def _indent_of(text: str, node: Node) -> str:
    """Return the indentation of the outermost object's members."""
    for place, _ in node.members.values():
        margin = text[text.rfind("\n", 0, place) + 1 : place]
        if margin and margin.isspace():
            return margin
    return "  "


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text

    def document(self) -> Node:
        """Return the one value of the text."""
        text = self._text
        start = self.skipped(1 if text.startswith("\ufeff") else 0)
        node = self._value(start, 0)
        if (end := self.skipped(node.end)) < len(text):
            raise self._fault("expected the end of the file", end)
        return node

    def skipped(self, place: int) -> int:
        """Return the place after white space and comments."""
        text = self._text
        while place < len(text):
            if text[place].isspace():
                place += 1
            elif text.startswith("//", place):
                place = end if (end := text.find("\n", place)) >= 0 else len(text)
            elif text.startswith("/*", place):
                if (end := text.find("*/", place)) < 0:
                    raise self._fault("expected the end of a comment, */", place)
                place = end + 2
            else:
                break
        return place

    def _value(self, place: int, depth: int) -> Node:
        text = self._text
        if depth > _MAX_DEPTH:
            raise self._fault(f"expected at most {_MAX_DEPTH} levels", place)
        if text.startswith("{", place):
            return self._object(place, depth)
        if text.startswith("[", place):
            return self._array(place, depth)
        if text.startswith('"', place):
            value, end = self._string(place)
            return Node(value, place, end, {})
        end = place
        while end < len(text) and (text[end].isalnum() or text[end] in "+-."):
            end += 1
        word = text[place:end]
        try:
            return Node(_LITERALS[word] if word in _LITERALS else json.loads(word), place, end, {})
        except ValueError:
            raise self._fault(f"expected a value, got {text[place : place + 20]!r}", place) from None

    def _object(self, place: int, depth: int) -> Node:
        text, members = self._text, dict[str, tuple[int, Node]]()
        here = self.skipped(place + 1)
        while not text.startswith("}", here):
            if not text.startswith('"', here):
                raise self._fault(f"expected a name in quotes, got {text[here : here + 20]!r}", here)
            name, end = self._string(here)
            colon = self.skipped(end)
            if not text.startswith(":", colon):
                raise self._fault(f"expected a colon after {name!r:.40}", colon)
            node = self._value(self.skipped(colon + 1), depth + 1)
            if name in members:
                raise self._fault(f"expected {name!r:.40} once in an object, got it twice", here)
            members[name] = here, node
            here = self._after_item(node.end, "}")
        return Node({name: node.value for name, (_, node) in members.items()}, place, here + 1, members)

    def _array(self, place: int, depth: int) -> Node:
        items = []
        here = self.skipped(place + 1)
        while not self._text.startswith("]", here):
            node = self._value(here, depth + 1)
            items.append(node.value)
            here = self._after_item(node.end, "]")
        return Node(items, place, here + 1, {})

    def _after_item(self, place: int, closing: str) -> int:
        here = self.skipped(place)
        if self._text.startswith(",", here):
            return self.skipped(here + 1)
        if not self._text.startswith(closing, here):
            got = self._text[here : here + 20]
            raise self._fault(f"expected a comma or {closing}, got {got!r}", here)
        return here

    def _string(self, place: int) -> tuple[str, int]:
        try:
            value, end = scanstring(self._text, place + 1, True)
        except json.JSONDecodeError as error:
            raise self._fault(f"expected a text in quotes: {error.msg}", place) from None
        return str(value), int(end)

    def _fault(self, what: str, place: int) -> Unreadable:
        return Unreadable(what, _line(self._text, place))
