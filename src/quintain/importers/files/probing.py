"""Read the beginning of a file for format detection, and describe files that are not logs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from quintain.errors import InvalidInput
from quintain.importers.files.archives import archive
from quintain.importers.files.byte_streams import ReadState, chunks, open_regular
from quintain.importers.files.databases import MARK as DATABASE
from quintain.importers.files.databases import tables
from quintain.importers.files.json_parser import Parser
from quintain.importers.files.raw_values import LongValue, RawValue, elements, is_lines, lines
from quintain.importers.files.spooled_list import SpooledList
from quintain.importers.files.tables import is_table, table_rows, with_small_names
from quintain.importers.log_file import parse_piece
from quintain.importers.protocol import Probe, Report
from quintain.records.text import MAX_DEPTH
from quintain.records.wording import clip

MAX_ROWS = 20
"""Valid rows of a probe."""

MAX_PROBE_BYTES = 32 * 2**20
"""Unpacked bytes read to find them; of a larger value only the beginning is examined, of a long list its first objects."""

_ENOUGH_BYTES = 4 * 2**20
"""Bytes after which two rows are enough."""

_TEXT_BYTES = 64 * 2**10
_MAX_BAD_ROWS = 100
_MAX_NAMES = 10_000
_UNKNOWN = "of no known format"
WORKBOOK = "xl/workbook.xml"
"""Member of the zip archive that an Excel workbook is (ECMA-376)."""

_KINDS = (
    (b"\x89PNG", "an image"),
    (b"\xff\xd8\xff", "an image"),
    (b"GIF8", "an image"),
    (b"RIFF", "a picture, sound or film"),
    (b"%PDF", "a PDF document"),
    (b"PAR1", "a Parquet file: rows of a dataset, not a log; export_dataset(kind='sft', name=..., path=...) reads it"),
    (DATABASE, "an SQLite database of no known format; export its runs as JSON first"),
    (b"\x7fELF", "a program"),
    (b"\xfd7zXZ\0", "packed with xz; unpack it first"),
    (b"7z\xbc\xaf", "a 7z archive; unpack it first"),
    (b"Rar!", "a rar archive; unpack it first"),
    (b"version https://git-lfs", "a Git LFS pointer without the file that it stands for; run `git lfs pull` first"),
)
_MARKS = tuple(mark for mark, _ in _KINDS)
_MARK_BYTES = max(map(len, _MARKS))
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|"|[\[\]{},]', re.DOTALL)


class ProbeResult(NamedTuple):
    """A probe and the problems found."""

    probe: Probe
    nothing: str
    """Description of the file in case no reader accepts it."""
    damage: str | None = None
    """Why a file that begins like JSON contains no value; None if it has one or is not JSON."""
    parsed: Mapping[bytes, Any] = MappingProxyType({})
    """Raw row -> value, so that the reader need not parse it again; empty if a value had to be repaired."""


def probe(path: Path, root: Path) -> Probe:
    """Return the probe of a file.

    Raises:
        InvalidInput: it cannot be opened, or not even its beginning can be unpacked.
    """
    return probe_file(path, root).probe


def probe_file(path: Path, root: Path) -> ProbeResult:
    """Return the probe of a file, with a description in case no reader accepts it.

    Raises:
        InvalidInput: as `probe`.
    """
    with open_regular(path, root) as file:
        start = file.read(_MARK_BYTES)
    if start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _archive(path, root)
    if start.startswith(DATABASE):
        return _database(path, root, start)
    if is_table(path) and not start.startswith(_MARKS):
        return _table(path, root)
    return _json(path, root, start)


def _archive(path: Path, root: Path) -> ProbeResult:
    with archive(path, root) as opened:
        names = tuple(opened.names[:_MAX_NAMES])
    other = f"a zip archive {_UNKNOWN}; unpack it first"
    what = "an Excel workbook; save it as CSV" if WORKBOOK in names else other
    return ProbeResult(Probe(path.relative_to(root).parts, "zip", rows=names), what)


def _database(path: Path, root: Path, start: bytes) -> ProbeResult:
    probed = Probe(path.relative_to(root).parts, "sqlite", rows=tables(path, root)[:_MAX_NAMES])
    return ProbeResult(probed, _kind(start, start))


def _table(path: Path, root: Path) -> ProbeResult:
    parts = path.relative_to(root).parts
    try:
        rows = [row for _, row in islice(table_rows(path, root, ReadState(), Report()), MAX_ROWS)]
    except InvalidInput as error:
        return ProbeResult(Probe(parts, "other"), error.message)
    what = f"a table {_UNKNOWN}{_keys(rows)}" if rows else "a table without rows"
    return ProbeResult(Probe(parts, "lines", rows=tuple(map(with_small_names, rows))), what)


def _json(path: Path, root: Path, start: bytes) -> ProbeResult:
    """Return the probe of a JSON document, an array or lines of JSON, and of what is neither."""
    parts = path.relative_to(root).parts
    reading = ReadState()
    content = _bounded(chunks(path, root, reading), reading)
    head = next(content, b"")
    by_line, opening = is_lines(head), head.lstrip()[:1]
    report = Report()
    rows, parsed = _rows((lines if by_line else elements)(chain([head], content)), reading, report)
    damage = report.rejected[-1][1] if report.rejected else None
    was_cut = reading.unpacked >= MAX_PROBE_BYTES
    is_json = opening in (b"{", b"[")
    is_outlined = not rows and was_cut and is_json
    if is_outlined:
        outlined = outline(head.decode("utf-8", errors="replace"))
        rows = outlined[:MAX_ROWS] if isinstance(outlined, list) else [outlined]
        was_cut, damage = isinstance(outlined, list), None
    text = "" if is_json or b"\0" in head else head[:_TEXT_BYTES].decode("utf-8", errors="replace")
    is_marked = start.startswith(_MARKS)  # a database has rows of JSON between its pages
    if is_marked or not any(isinstance(row, dict | list) for row in rows):
        is_read = damage is None and (bool(rows) or opening == b"[")
        nothing = _without_object(rows, opening) if is_read and not is_marked else _kind(start, head)
        return ProbeResult(Probe(parts, "other", text=text), nothing, damage if is_json else None)
    if not is_json and report.n_rejected > len(rows):
        what = "text with few lines of JSON; if it is a log, import it by its own path with its format"
        return ProbeResult(Probe(parts, "other", text=text), what)
    if opening == b"[" and not by_line:
        return ProbeResult(Probe(parts, "array", rows=tuple(rows)), f"an array {_UNKNOWN}{_keys(rows)}", None, parsed)
    is_object = len(rows) == 1 and isinstance(rows[0], dict) and not was_cut and damage is None
    if is_object and not {".jsonl", ".ndjson"} & set(path.suffixes):
        what = "too large to detect from its beginning (set its format)" if is_outlined else _UNKNOWN
        return ProbeResult(Probe(parts, "object", document=rows[0]), f"a JSON object {what}{_keys(rows)}")
    what = f"lines of JSON {_UNKNOWN}{_keys(rows)}"
    return ProbeResult(Probe(parts, "lines", rows=tuple(rows), text=text), what, None, parsed)


def _bounded(content: Iterator[bytes], reading: ReadState) -> Iterator[bytes]:
    for chunk in content:
        yield chunk
        if reading.unpacked >= MAX_PROBE_BYTES:
            return


def _rows(pieces: Iterator[RawValue], reading: ReadState, report: Report) -> tuple[list[Any], dict[bytes, Any]]:
    """Return the first valid rows, and their values by raw bytes; the report gets the invalid ones before them."""
    rows: list[Any] = []
    parsed: dict[bytes, Any] = {}
    parser = Parser(reading.repairs)
    try:
        for piece in pieces:
            if isinstance(piece.raw, LongValue) and reading.unpacked >= MAX_PROBE_BYTES:
                break  # it is cut
            values = parse_piece(piece, parser, report, None)
            if isinstance(piece.raw, LongValue):
                rows += map(_beginning, values)
            else:
                rows += values
                if piece.raw and len(values) == 1:
                    parsed[piece.raw] = values[0]
            if len(rows) >= MAX_ROWS or report.n_rejected >= _MAX_BAD_ROWS:
                break
            if len(rows) > 1 and reading.unpacked > _ENOUGH_BYTES:
                break
    except InvalidInput:
        if not rows:
            raise
    # Kept in memory until they are read; a repair is counted where its row is.
    is_kept = reading.unpacked <= _ENOUGH_BYTES and not reading.repairs
    return rows[:MAX_ROWS], parsed if is_kept else {}


def _beginning(value: Any) -> Any:
    """Return a value with the beginning of its long lists alone."""
    if isinstance(value, SpooledList):
        return value.unspooled()
    return {key: _beginning(inner) for key, inner in value.items()} if isinstance(value, dict) else value


def outline(text: str) -> Any:
    """Parse the beginning of a JSON text: cut after the last whole member and closed; {} if there is none."""
    still_open: list[str] = []
    cut, closing = 0, ""
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark in ("[", "{"):
            still_open.append("]" if mark == "[" else "}")
        elif mark in ("]", "}") and still_open:
            still_open.pop()
        elif mark == ",":
            cut, closing = token.start(), "".join(reversed(still_open))
        if mark == '"' or len(still_open) > MAX_DEPTH:
            break
    try:
        value = json.loads(text[:cut] + closing, strict=False)
    except ValueError:
        return {}
    return value if isinstance(value, dict | list) else {}


def _kind(start: bytes, head: bytes) -> str:
    for mark, kind in _KINDS:
        if start.startswith(mark):
            return kind
    if not head.strip():
        return "empty"
    return "a binary file" if b"\0" in head[:4096] else "text other than JSON"


def _without_object(rows: list[Any], opening: bytes) -> str:
    """Return the description of JSON that has no object."""
    if opening == b"[":
        return "a JSON array without an object" if rows else "an empty JSON array"
    return "JSON without an object, such as null, a number or a text alone"


def _keys(rows: list[Any]) -> str:
    """Return the keys of the first object, phrased as the end of a sentence."""
    names = [clip(str(key)) for key in next((row for row in rows if isinstance(row, dict)), {})]
    return f", with the keys {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}" if names else ""
