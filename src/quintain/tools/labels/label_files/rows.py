"""Rows of a file of labels, each with its cells by dotted name: a table, JSON, Parquet, or a table of a database."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from quintain.datasets.row_files import is_rows, rows_of
from quintain.errors import InvalidInput
from quintain.importers.files.databases import is_database, opened, records, tables
from quintain.importers.log_file import NumberedValue
from quintain.importers.protocol import Report
from quintain.records.wording import list_names, shown

NO_ROWS = "no_rows"
"""Code of the error that a file has no rows."""
_MOST_PARTS = 100
"""Entries of a list in a cell; longer ones are not labels."""


class Row(NamedTuple):
    """One row; a cell is a text, a number, a boolean, None, or a list of these: one of each rater."""

    line: int
    cells: dict[str, Any]

    def texts(self, column: str) -> list[str]:
        """Return what a cell names: a text or a whole number, or those of its list."""
        cell = self.cells.get(column)
        values = (name_in(value) for value in (cell if isinstance(cell, list) else [cell]))
        return [value for value in values if value is not None]


def name_in(cell: Any) -> str | None:
    """Return a cell as a name: a text without spaces around it, or a whole number."""
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    if isinstance(cell, bool) or not isinstance(cell, str | int):
        return None
    return str(cell).strip() or None


class LabelTable(NamedTuple):
    """A table of labels: a file, or a table of a database."""

    path: Path
    table: str | None = None

    def rows(self, report: Report) -> Iterator[Row]:
        """Stream the rows; those that are not objects are rejected."""
        for line, value in _unwrapped(self._values(report)):
            if isinstance(value, Mapping):
                yield Row(line, flat_cells(value))
            else:
                report.reject(line, f"expected a row with named columns, got {shown(value)}")

    def _values(self, report: Report) -> Iterator[NumberedValue]:
        if self.table is None:
            yield from rows_of(self.path, report)
            return
        quoted = self.table.replace('"', '""')
        with opened(self.path, self.path.parent) as connection:
            found = records(connection, f'SELECT * FROM "{quoted}"')  # a name that the database itself lists
            yield from (NumberedValue(number, row) for number, row in enumerate(found, 1))


def label_tables(path: Path, table: str | None) -> list[LabelTable]:
    """Return the tables that a file has: itself, or those of a database, of which `table` chooses one.

    Raises:
        InvalidInput: the file has no rows, or no table of this name.
    """
    if not path.is_file():
        raise InvalidInput(f"expected one file of labels, got the folder {path.name!r}; name a file in it")
    if is_database(path, path.parent):
        names = tables(path, path.parent)
        if table is not None and table not in names:
            raise InvalidInput(
                f"columns: expected a table of {path.name} ({list_names(names, 20)}), got {shown(table)}"
            )
        return [LabelTable(path, name) for name in names if table in (None, name)]
    if table is not None:
        raise InvalidInput(f"columns: `table` is for a database, got {path.name}; leave it out")
    if not is_rows(path):
        raise InvalidInput(
            f"expected labels as CSV, JSON, JSON lines, Parquet or SQLite, got {path.name}; save them so", code=NO_ROWS
        )
    return [LabelTable(path)]


def _unwrapped(values: Iterable[NumberedValue]) -> Iterator[NumberedValue]:
    """Yield rows; of an answer of an API, an object with its rows as `data`, those."""
    for line, value in values:
        data = value.get("data") if isinstance(value, Mapping) else None
        if isinstance(data, list):
            yield from (NumberedValue(number, row) for number, row in enumerate(data, 1))
        else:
            yield NumberedValue(line, value)


def flat_cells(value: Any, name: str = "") -> dict[str, Any]:
    """Return what is in a row by dotted names; of a list of several objects each cell is a list, of one its content."""
    if isinstance(value, Mapping):
        inner = (flat_cells(one, f"{name}.{key}" if name else str(key)) for key, one in value.items())
        return {key: cell for part in inner for key, cell in part.items()}
    if not isinstance(value, list):
        return {name: None if isinstance(value, float) and not math.isfinite(value) else value}
    parts = [flat_cells(one, name) for one in value[:_MOST_PARTS]]
    if len(parts) == 1:
        return parts[0]
    return {key: [part.get(key) for part in parts] for key in dict.fromkeys(key for part in parts for key in part)}


def exploded(row: Row, columns: Sequence[str]) -> Iterator[Row]:
    """Yield a row for each entry of the lists in these columns, with the entries of lists of the same length."""
    lengths = Counter(len(cell) for name in columns if isinstance(cell := row.cells.get(name), list))
    if not lengths:
        yield row
        return
    n = max(lengths)
    for place in range(n):
        yield Row(
            row.line,
            {
                key: cell[place] if isinstance(cell, list) and len(cell) == n else cell
                for key, cell in row.cells.items()
            },
        )
