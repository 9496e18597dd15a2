"""Rows of CSV and TSV files (RFC 4180), whose first row names the columns."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.files.byte_streams import ReadState, chunks
from quintain.importers.protocol import Report
from quintain.importers.values import parse_json_text, parse_python_text

SUFFIXES = frozenset({".csv", ".tsv"})
_DELIMITERS = ",;\t|"
"""Of these the most frequent one in the header; spreadsheets write `;` where the comma marks decimals."""

_MAX_CELL = 16 * 2**20
_NUMBERS = ("reward", "score")


def is_table(path: Path) -> bool:
    """Whether the file name is that of a table."""
    return path.suffix.lower() in SUFFIXES


def table_rows(path: Path, root: Path, reading: ReadState, report: Report) -> Iterator[tuple[int, dict[str, Any]]]:
    """Stream the rows of a table, numbered from 1 without the header; an empty cell is None. Uneven rows are rejected.

    Raises:
        InvalidInput: another encoding, not delimited text, or no header.
    """
    content = _Content(chunks(path, root, reading))
    number = 0
    with io.TextIOWrapper(io.BufferedReader(content), encoding="utf-8", newline="") as file:
        try:
            header = file.readline()
            rows = csv.reader(chain([header], file), delimiter=max(_DELIMITERS, key=header.count), strict=True)
            csv.field_size_limit(_MAX_CELL)
            for number, row in _named(rows, report):
                yield number, row
        except UnicodeDecodeError as error:
            raise InvalidInput(
                f"expected a table in UTF-8, got byte {error.object[error.start]:#04x} after row {number}, as Windows-1252 and "
                'Latin-1 have; save it as "CSV UTF-8", or run: iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW'
            ) from None
        except csv.Error as error:
            raise InvalidInput(f"{path.name} cannot be read as a table ({error}); save it again") from None


class _Content(io.RawIOBase):
    """Chunks of bytes as a file."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with the next bytes; return how many, 0 at the end."""
        while not self._rest:
            if (part := next(self._parts, None)) is None:
                return 0
            self._rest = part
        n = min(len(buffer), len(self._rest))
        buffer[:n], self._rest = self._rest[:n], self._rest[n:]
        return n


def _named(rows: Iterator[list[str]], report: Report) -> Iterator[tuple[int, dict[str, Any]]]:
    header = [name.strip() for name in next(rows, [])]
    # pandas writes the index of a data frame before the columns: without a name, or as one of them once more
    twin = header.index(header[0], 1) if header and header[0] in header[1:] else 0
    names = header[1:] if twin or header[:1] == [""] else header
    if not all(names) or len(set(names)) < len(names) or not names:
        raise _nameless(header)
    for number, cells in enumerate(rows, 1):
        if not cells:
            continue
        if len(cells) != len(header):
            report.reject(number, f"expected {len(header)} cells, as in the first row, got {len(cells)}")
            continue
        if cells[0] != cells[twin]:
            raise _nameless(header)
        values = map(_value, cells[len(header) - len(names) :])
        yield number, with_numbers(dict(zip(names, values, strict=True)))


def _nameless(header: list[str]) -> InvalidInput:
    return InvalidInput(f"expected a first row with the names of the columns, each once, got {header[:20]}; add one")


def _value(cell: str) -> Any:
    """Return a cell: None if it is empty, and the objects that pandas wrote as Python does."""
    return (parse_python_text(cell) if "{'" in cell and parse_json_text(cell) is cell else cell) or None


def with_small_names(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the names of its columns in lower case if all begin with a capital, as people write headers."""
    return {name.lower(): value for name, value in row.items()} if all(name[:1].isupper() for name in row) else row


def with_numbers(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the columns that are numbers in any log as numbers, where a table has them as text."""
    found = {name: number for name in _NUMBERS if (number := as_cell_number(row.get(name))) is not None}
    return {**row, **found}


_DECIMAL_COMMA = re.compile(r"\s*[+-]?(?:0,[0-9]+|[0-9]+,(?:[0-9]{1,2}|[0-9]{4,}))\s*")
"""A number with a comma that can only be decimal: `1,234` may be either, so it is not a number."""


def as_cell_number(cell: Any) -> float | None:
    """Return the finite number that a cell's text states, with a decimal point or comma."""
    if isinstance(cell, str):
        if _DECIMAL_COMMA.fullmatch(cell):
            cell = cell.replace(",", ".")
        with suppress(ValueError):
            return number if math.isfinite(number := float(cell)) else None
    return None
