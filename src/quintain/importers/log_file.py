"""One log file as readers see it: rows, elements or one document, decoded, repaired and bounded."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from quintain.errors import InvalidInput
from quintain.importers.files.byte_streams import ReadState, chunks
from quintain.importers.files.json_parser import MAX_VALUES, Parser
from quintain.importers.files.raw_values import (
    INNER,
    MAX_LINE_BYTES,
    OUTER,
    LongValue,
    RawValue,
    elements,
    is_lines,
    lines,
)
from quintain.importers.files.spooled_list import SpooledList, T
from quintain.importers.files.tables import is_table, table_rows, with_small_names
from quintain.importers.protocol import Report
from quintain.records.text import MAX_DEPTH
from quintain.records.wording import size_text

MAX_DOCUMENT_BYTES = 256 * 2**20
"""Unpacked size limit of a file that is one JSON value."""

MAX_SIBLINGS = 100_000
"""Number of files that `siblings` lists at most."""


class NumberedValue(NamedTuple):
    """A value and its position: line of a line format, or element (from 1) of an array."""

    line: int
    value: Any


@dataclass(frozen=True)
class LogFile:
    """One file of an import. Its values contain only valid Unicode and finite numbers, nested at most 100 deep."""

    path: Path
    root: Path
    """The imported folder; nothing outside it is read."""
    reading: ReadState = field(default_factory=ReadState, compare=False, repr=False)
    """Progress and repairs so far."""
    as_written: bool = False
    """Whether a table's columns have the names of its header, in which readers know lower case alone."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Parts of the path below the root."""
        return self.path.relative_to(self.root).parts

    def hold(self, value: T, values: SpooledList[T]) -> None:
        """Append a value of this file to a list; from the second megabyte of the file on, in the list's temporary file.

        Raises:
            Unavailable: the file cannot be written.
        """
        if self.reading.unpacked > MEMORY_BYTES:
            values.append_stored(value, self.reading.unpacked)
        else:
            values.append(value)

    def rows(self, report: Report, spooled: Collection[str] = ()) -> Iterator[NumberedValue]:
        """Stream the lines of a line format, the elements of a JSON array, or the rows of a table; an object is one element.

        Consecutive objects over several lines are elements too. Invalid values are rejected with their number, and
        blank lines are skipped. Memory contains one row. A file that cannot be read to its end gives the rows before
        the damage.

        Args:
            report: Gets the rejections.
            spooled: Names of fields whose lists of objects may be a `SpooledList` in a long row.
        """
        parser, number = Parser(self.reading.repairs, self.reading.parsed), 0
        try:
            if is_table(self.path):
                for number, row in table_rows(self.path, self.root, self.reading, report):
                    self.reading.row = number
                    yield NumberedValue(number, row if self.as_written else with_small_names(row))
                return
            pieces = self.pieces()
            while (piece := next(pieces, None)) is not None:
                number = self.reading.row = piece.number
                values = parse_piece(piece, parser, report, spooled)
                del piece  # its bytes would stay in memory while the caller works on the values
                yield from (NumberedValue(number, value) for value in values)
        except InvalidInput as error:
            report.reject(number + 1, error.message)

    def pieces(self) -> Iterator[RawValue]:
        """Stream the raw bytes of the rows.

        Raises:
            InvalidInput: the file cannot be read to its end.
        """
        content = chunks(self.path, self.root, self.reading)
        head = next(content, b"")
        yield from (lines if is_lines(head) else elements)(chain([head], content))

    def document(self) -> Any:
        """Return the whole file as one JSON value.

        Raises:
            InvalidInput: too large, not JSON, or nested too deep.
        """
        raw = self.content()
        try:
            return Parser(self.reading.repairs).parse(raw)
        except InvalidInput as error:
            raise InvalidInput(f"{self.path.name}: {error.message}", code=error.code) from None

    def text_lines(self) -> Iterator[NumberedValue]:
        """Yield the lines of a text file with their numbers, without their ends; invalid bytes become U+FFFD.

        Raises:
            InvalidInput: too large, or not readable to its end.
        """
        text = self.content().decode("utf-8", errors="replace")
        for number, line in enumerate(text.split("\n"), 1):
            yield NumberedValue(number, line.removesuffix("\r"))

    def content(self) -> bytes:
        """Return the whole file, unpacked and as UTF-8, without parsing it.

        Raises:
            InvalidInput: too large, or not readable to its end.
        """
        parts, size = [], 0
        for chunk in chunks(self.path, self.root, self.reading):
            size += len(chunk)
            if size > MAX_DOCUMENT_BYTES:
                raise InvalidInput(
                    f"{self.path.name} is one value of more than {size_text(MAX_DOCUMENT_BYTES)}; write one run a line",
                    code="too_large",
                )
            parts.append(chunk)
        return b"".join(parts)

    def sibling(self, relative: str) -> LogFile | None:
        """Return another file by its path relative to this file's folder; None if it does not exist inside the root.

        A sibling that itself has no runs is not reported as refused. Pass one whose runs came in with this file to
        `Report.consume`. A file that looks for siblings is read again by every later import.
        """
        self.reading.consulted = True
        try:
            beside = self.path.parent / relative
            if not beside.is_file():
                return None
            path, root = beside.resolve(), self.root.resolve()
            inside = path.is_relative_to(root) and path.is_file()
        except (OSError, RuntimeError, ValueError):  # a name that no file can have, or a ring of links
            return None
        if not inside:
            return None
        return LogFile(path, root, self.reading.beside())

    def sibling_document(self, relative: str, report: Report | None = None) -> Any:
        """Return the JSON value of another file (`sibling`); None if it does not exist or cannot be read.

        Args:
            relative: Its path relative to this file's folder.
            report: Marks it as read together with this one; None: it may have its own runs.
        """
        beside = self.sibling(relative)
        if beside is None:
            return None
        if report is not None:
            report.consume(beside.path)
        with suppress(InvalidInput):
            return beside.document()
        return None

    def disown(self) -> None:
        """State that this sibling, which was read, has nothing on the log: it is a separate file in the report."""
        self.reading.companions.discard(self.path.resolve())

    def folders(self, relative: str) -> list[str]:
        """Return the sorted names of the folders in a folder, given relative to this file's folder."""
        return [entry.name for entry in self._entries(relative) if entry.is_dir(follow_symlinks=False)][:MAX_SIBLINGS]

    def siblings(self, relative: str, suffix: str = ".json") -> list[LogFile]:
        """Return the files with a suffix in a folder, given relative to this file's folder, sorted by name."""
        found = (entry for entry in self._entries(relative) if entry.name.endswith(suffix))
        paths = [Path(entry.path) for entry in found if entry.is_file(follow_symlinks=False)][:MAX_SIBLINGS]
        return [LogFile(path, self.root.resolve(), self.reading.beside()) for path in paths]

    def _entries(self, relative: str) -> list[os.DirEntry[str]]:
        """Return the sorted entries of another folder; empty if it cannot be read or is outside the root."""
        self.reading.consulted = True
        try:
            folder = (self.path.parent / relative).resolve()
            if not folder.is_relative_to(self.root.resolve()):
                return []
            with os.scandir(folder) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except (OSError, RuntimeError, ValueError):
            return []


def parse_piece(piece: RawValue, parser: Parser, report: Report, spooled: Collection[str] | None) -> list[Any]:
    """Return the values of a piece, usually one; report why there is none."""
    number, raw = piece.number, piece.raw
    if raw is None:
        report.reject(number, f"larger than {size_text(MAX_LINE_BYTES)}")
        return []
    if not raw:
        report.reject(number, "the file ends before its array is closed; what followed is lost")
        return []
    try:
        if isinstance(raw, bytes):
            return [parser.parse(raw)]
        if spooled or spooled is None:
            return [parse_long_row(raw, parser, spooled)]
        return [parser.parse(raw.content())]
    except InvalidInput as error:
        content = raw if isinstance(raw, bytes) else raw.content()
        several = list(elements([content])) if error.code == "extra_data" else []
        if len(several) > 1:  # values that follow each other on one line
            inner = [piece._replace(number=number) for piece in several]
            return [value for piece in inner for value in parse_piece(piece, parser, report, spooled)]
        report.reject(number, error.message + (" (the file ends within it)" if piece.last else ""))
        return []


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
