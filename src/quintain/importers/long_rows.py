"""Parse a long row without holding its lists: their elements are parsed one by one and wait in a temporary file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.json_parser import MAX_VALUES, Parser
from quintain.importers.raw_values import INNER, OUTER, LongValue
from quintain.importers.spooled_list import SpooledList
from quintain.records.text import MAX_DEPTH

MEMORY_BYTES = 2**20
"""Bytes of a list after which its further elements go to the file."""

_MARK = r'"\u0001list %d"'
"""JSON text of the only element of a list, where the elements of that list were taken out."""
_KEY_CHARS = 200
"""Bytes before a bracket in which its field's name is looked for."""


class _NotSplit(Exception):
    """The row is not JSON of the expected kind, and is to be parsed whole."""


def parse_long_row(raw: LongValue, parser: Parser, names: Collection[str] | None) -> Any:
    """Return the value of a long row, where long lists of objects in some fields are a `SpooledList`.

    Args:
        raw: The row.
        parser: Parses a row that cannot be split, reports what is wrong with it, and counts the repairs.
        names: Names of the fields with such lists; None: all fields. A field inside another list is not split.

    Raises:
        InvalidInput: as `Parser.parse`.
        Unavailable: the temporary file cannot be written.
    """
    splitter = _Splitter(names)
    try:
        for chunk in raw.chunks():
            splitter.feed(chunk)
        value = splitter.value()
    except (_NotSplit, InvalidInput):
        return parser.parse(raw.content())
    parser.repairs.update(splitter.parser.repairs)
    return value


class _Splitter:
    def __init__(self, names: Collection[str] | None) -> None:
        self.parser = Parser(Counter())
        name = "" if names is None else f'"(?:{"|".join(map(re.escape, names))})'
        self.key = re.compile(rf'{name}"\s*:\s*\Z'.encode())
        self.skeleton: list[bytes] = []
        """The row without the elements of its lists."""
        self.lists: list[SpooledList[Any]] = []
        self.element: list[bytes] = []
        """Parts of the element that is not complete."""
        self.opened: list[bytes] = []
        """Open brackets outside the current list."""
        self.inner: int | None = None
        """Open brackets inside the current list; None outside."""
        self.list_bytes = 0
        self.carry, self.before = b"", b""
        """Beginning of a string that continues in the next chunk, and the bytes before this chunk."""
        self.n_values = 0

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the row."""
        self.n_values += chunk.count(b",") + chunk.count(b"[") + chunk.count(b"{")
        if self.n_values > MAX_VALUES:
            raise _NotSplit
        data, start, at = self.carry + chunk, len(self.carry), 0
        while (found := (OUTER if self.inner == 0 else INNER).match(data, at)) and (mark := found[1]):
            at = found.end()
            if self.inner is not None:
                start = self._inside(mark, data, start, at)
            elif self._outside(mark, chunk, at - len(self.carry)):
                self.skeleton += (data[start:at], (_MARK % len(self.lists)).encode())
                start, self.inner, self.list_bytes = at, 0, 0
                self.lists.append(SpooledList())
        self.carry = b"" if found is None or found[2] is None else b'"' + found[3]
        self.before = (self.before + chunk)[-_KEY_CHARS:] if len(chunk) < _KEY_CHARS else chunk[-_KEY_CHARS:]
        (self.skeleton if self.inner is None else self.element).append(data[start:])

    def _outside(self, mark: bytes, chunk: bytes, at: int) -> bool:
        """Take a bracket outside the split lists, which ends at `at`; return whether it opens one."""
        if mark in b"]}":
            if not self.opened:
                raise _NotSplit
            self.opened.pop()
            return False
        if mark == b"[" and b"[" not in self.opened:
            beginning = chunk[max(0, at - 1 - _KEY_CHARS) : at - 1]
            if self.key.search(beginning if at > _KEY_CHARS else self.before + beginning):
                return True
        self.opened.append(mark)
        if len(self.opened) > MAX_DEPTH:
            raise _NotSplit
        return False

    def _inside(self, mark: bytes, data: bytes, start: int, at: int) -> int:
        """Take a bracket or comma of a list; return where the text begins that is not taken yet."""
        if mark in b"[{":
            self.inner = (self.inner or 0) + 1
        elif self.inner:
            self.inner -= 1
        elif mark == b"}":
            raise _NotSplit
        else:
            self._append(data[start : at - 1], is_end=mark == b"]")
            if mark == b",":
                return at
            self.inner = None
            return at - 1
        return start

    def _append(self, rest: bytes, *, is_end: bool) -> None:
        """Append the element that ends with these bytes to the current list."""
        values = self.lists[-1]
        raw, self.element = b"".join((*self.element, rest)), []
        if is_end and not len(values) and not raw.strip():
            return
        value = self.parser.parse(raw, outer=len(self.opened) + 1)
        if not isinstance(value, dict):
            raise _NotSplit
        self.list_bytes += len(raw)
        if self.list_bytes > MEMORY_BYTES:
            values.append_stored(value, self.list_bytes)
        else:
            values.append(value)

    def value(self) -> Any:
        """Return the row with its lists."""
        skeleton = b"".join(self.skeleton)
        marks = {f"\1list {n}": values for n, values in enumerate(self.lists)}
        if self.inner is not None or skeleton.count(_MARK.encode().partition(b"%")[0]) != len(marks):
            raise _NotSplit
        return self._filled(self.parser.parse(skeleton), marks)

    def _filled(self, value: Any, lists: dict[str, SpooledList[Any]]) -> Any:
        if isinstance(value, dict):
            return {key: self._filled(inner, lists) for key, inner in value.items()}
        if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str) and value[0] in lists:
            values = lists[value[0]]
            return values if values.is_spooled else list(values)
        return value
