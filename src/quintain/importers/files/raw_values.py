"""Find the raw JSON values of a log file: lines, elements of arrays, or consecutive objects.

Nothing is parsed here, so a value that is not JSON costs only itself. A long value waits in a temporary file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from quintain.importers.files.byte_streams import CHUNK_BYTES
from quintain.importers.files.spooled_list import ScratchFile

MAX_LINE_BYTES = 64 * 2**20
"""Size limit of one line or element; a longer one is rejected with its number."""

MEMORY_BYTES = 4 * 2**20
"""Bytes of an unfinished value above which it goes to a temporary file."""

_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+'
_MARK = rb'(?:[^"%(marks)s]++|%(string)s")*+(?:([%(marks)s])|(%(string)s(\\?))?\Z)'
"""Matches up to the next mark outside strings, or to the end: group 2 is then an unfinished string, and group 3 its last
character if that begins an escape."""
INNER = re.compile(_MARK % {b"marks": rb"\[\]{}", b"string": _STRING}, re.DOTALL)
"""Finds the next bracket."""
OUTER = re.compile(_MARK % {b"marks": rb"\[\]{},", b"string": _STRING}, re.DOTALL)
"""Finds the next bracket or comma."""
_ARRAY, _OPENING = b"[", (b"[", b"{")


class LongValue:
    """Raw bytes of one value in a temporary file."""

    def __init__(self) -> None:
        """Create the value without bytes."""
        self._file = ScratchFile()

    def add(self, part: bytes) -> None:
        """Append bytes."""
        self._file.write(part)

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes in chunks."""
        for begin in range(0, self._file.size, CHUNK_BYTES):
            yield self._file.read(begin, begin + CHUNK_BYTES)

    def content(self) -> bytes:
        """Return all bytes."""
        return self._file.read(0, self._file.size)


class RawValue(NamedTuple):
    """Raw bytes of one value and their position."""

    number: int
    """Line of a line format, else element (from 1)."""
    raw: bytes | LongValue | None
    """None if the value is larger than the limit."""
    last: bool = False
    """Whether the file ended before the value was closed."""


def is_lines(head: bytes) -> bool:
    """Whether a file has one value a line, rather than an array or values that span lines.

    A single line with one object counts as lines; one with an array does not, because its elements are the rows.
    """
    found = [line for line in head.split(b"\n", 50)[:50] if line.strip()]
    if len(found) < 2:
        return not head.lstrip().startswith(b"[")
    if found[0].lstrip().startswith(b"["):
        return all(map(_is_value, found[:2]))
    if _is_value(found[0]):
        return True
    # A torn first line is followed by whole values; the lines of a value over several lines by commas and brackets.
    whole = sum(line.startswith(b"{") and _is_value(line) for line in found)
    parts = sum(line.startswith((b"]", b"}")) or line.rstrip().endswith((b",", b"[", b"{")) for line in found)
    return whole >= parts if whole or parts else found[1].startswith(b"{")


def _is_value(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line.decode("utf-8", "replace"), strict=False), dict | list)
    except (ValueError, RecursionError):
        return False


def lines(chunks: Iterable[bytes], limit: int = MAX_LINE_BYTES) -> Iterator[RawValue]:
    """Yield the non-blank lines; only LF ends a line, and JSON treats a CR before it as white space."""
    number, held = 1, _Held(limit)
    for chunk in chunks:
        first, *rest = chunk.split(b"\n")
        held.add(first)
        if rest:
            if held.has_value:
                yield held.take(number)
            for number, line in enumerate(rest[:-1], number + 1):  # noqa: B020 - the count goes on
                if line and not line.isspace():
                    yield RawValue(number, line if len(line) <= limit else None)
            number += 1
            held.add(rest[-1])
    if held.has_value:
        yield held.take(number, last=True)


def elements(chunks: Iterable[bytes], limit: int = MAX_LINE_BYTES) -> Iterator[RawValue]:
    """Yield the elements of arrays and the values outside arrays, in file order.

    An array that is never closed ends in an empty piece that is the last.
    """
    cutter = _Cutter(limit)
    for chunk in chunks:
        yield from cutter.cut(chunk)
    yield from cutter.end(last=True)
    if cutter.level == cutter.base == 1:
        yield RawValue(cutter.count + 1, b"", last=True)


class _Cutter:
    """Splits by counting brackets; strings are skipped."""

    def __init__(self, limit: int) -> None:
        self.held = _Held(limit)
        self.count = 0
        self.level = 0
        """Open brackets."""
        self.base = 0
        """Bracket level of elements: 1 inside an array, else 0."""
        self.carry = b""
        """Prefix for the next chunk when a string continues in it."""

    def cut(self, chunk: bytes) -> Iterator[RawValue]:
        """Yield the values that end in this chunk."""
        data, start, at = self.carry + chunk, len(self.carry), 0
        while (found := (INNER if self.level > self.base else OUTER).match(data, at)) and (mark := found[1]):
            at = found.end()
            if self.level > self.base:
                self.level += 1 if mark in _OPENING else -1
                if self.level == self.base:
                    yield from self.end(data[start:at])
                    start = at
            elif mark in _OPENING and (mark != _ARRAY or self.level):
                self.level += 1
            else:  # a comma, or the beginning or end of an array whose elements are what counts
                yield from self.end(data[start : at - 1])
                start = at
                if mark != b",":
                    self.level = self.base = int(mark == _ARRAY)
        self.carry = b"" if found is None or found[2] is None else b'"' + found[3]
        self.held.add(data[start:])

    def end(self, part: bytes = b"", *, last: bool = False) -> list[RawValue]:
        """Return the value whose last part this is, unless it is only white space."""
        self.held.add(part)
        if not self.held.has_value:
            return []
        self.count += 1
        return [self.held.take(self.count, last=last)]


class _Held:
    """Parts of a value across chunks, dropped when they exceed the limit."""

    def __init__(self, limit: int) -> None:
        self._limit, self._size, self._parts = limit, 0, list[bytes]()
        self._long: LongValue | None = None

    def add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._limit:
            self._parts.clear()
            self._long = None
        elif self._long is not None:
            self._long.add(part)
        else:
            self._parts.append(part)
            if self._size > MEMORY_BYTES and self.has_value:
                self._long = LongValue()
                while self._parts:
                    self._long.add(self._parts.pop(0))

    @property
    def has_value(self) -> bool:
        """Whether there is more than white space; white space alone is dropped."""
        is_kept = self._size <= self._limit and self._long is None
        if is_kept and not any(part and not part.isspace() for part in self._parts):
            self._parts.clear()
            self._size = 0
        return self._size > 0

    def take(self, number: int, *, last: bool = False) -> RawValue:
        """Return the value, and begin the next one."""
        raw = self._long or b"".join(self._parts) if self._size <= self._limit else None
        self._parts.clear()
        self._size, self._long = 0, None
        return RawValue(number, raw, last)
