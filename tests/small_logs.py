"""One log of each format, hand-made from the format's definition: tests of its reader read it, hostile tests bend and break it."""

from __future__ import annotations

import copy
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "importers" / "small_logs"


def _tables(raw: bytes) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each table of a database."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(raw)
        connection.row_factory = sqlite3.Row
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {name: [dict(row) for row in connection.execute(f'SELECT * FROM "{name}"')] for name in names}


def _parsed(file: Path) -> Any:
    if file.suffix == ".db":
        return _tables(file.read_bytes())
    text = file.read_bytes().decode()
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    return text if file.suffix == ".md" else json.loads(text)


SMALL_LOGS: dict[str, tuple[str, Any]] = {
    file.parent.name: (file.name, _parsed(file)) for file in sorted(FOLDER.glob("*/*"))
}
"""Format -> name of its log, and its rows, its JSON value or its text."""


def log_path(format: str) -> Path:
    """The file of the log of a format."""
    return FOLDER / format / SMALL_LOGS[format][0]


def small_log(format: str) -> Any:
    """The log of a format, to change: its rows, its JSON value or its text."""
    return copy.deepcopy(SMALL_LOGS[format][1])


def content(name: str, value: Any) -> bytes:
    """As a file of this name holds it: text, a row a line, the tables of a database by their names, or JSON."""
    if name.endswith(".db") and isinstance(value, dict):
        return _database(value)
    if isinstance(value, str):
        return value.encode()
    if name.endswith(".jsonl"):
        return b"".join(json.dumps(row).encode() + b"\n" for row in value)
    return json.dumps(value).encode()


def _database(tables: dict[str, Any]) -> bytes:
    """Return a database of these tables; values that no cell can have are in it as JSON."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("PRAGMA page_size = 512")
        for name, value in tables.items():
            rows = [row for row in (value if isinstance(value, list) else []) if isinstance(row, dict)]
            columns = list(dict.fromkeys(key for row in rows for key in row)) or ["id"]
            connection.execute(f"CREATE TABLE {_quoted(name)} ({', '.join(map(_quoted, columns))})")
            cells = [[_cell(row.get(column)) for column in columns] for row in rows]
            connection.executemany(f"INSERT INTO {_quoted(name)} VALUES ({', '.join('?' * len(columns))})", cells)
        connection.commit()
        return connection.serialize()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _cell(value: Any) -> Any:
    is_plain = value is None or isinstance(value, str | float) or (isinstance(value, int) and abs(value) < 2**63)
    return value if is_plain and "\ud800" not in str(value) else json.dumps(value)
