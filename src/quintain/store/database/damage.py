"""Damage of an SQLite file: how it is recognised, and the rows that can still be read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from quintain.errors import Conflict

_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

PROBLEMS = 5
"""Problems that a check lists at most."""


class ReadableRows(NamedTuple):
    """Rows of a table that can be read."""

    table: str
    rows: int
    problem: str | None
    """Why it may have more. None: these are all."""


def is_damage(error: BaseException | None) -> bool:
    """Whether SQLite reports that a file is damaged, or is not a database."""
    return isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE


def problems(path: Path) -> list[str]:
    """Return what SQLite finds wrong with a database, at most `PROBLEMS`; empty if it is sound."""
    with closing(_open(path)) as connection:
        try:
            found = [str(row[0]) for row in connection.execute(f"PRAGMA quick_check({PROBLEMS})")]
        except sqlite3.DatabaseError as error:
            return [str(error)]
    return [] if found == ["ok"] else [line for text in found for line in text.splitlines()][:PROBLEMS]


def readable(path: Path) -> list[ReadableRows]:
    """Count the rows that can be read, by table; empty if not even the list of tables can."""
    with closing(_open(path)) as connection:
        found = []
        for table in _tables(connection):
            reader = _Rows(connection, table)
            rows = sum(1 for _ in reader)
            found.append(ReadableRows(table, rows, reader.problem))
        return found


def salvage(path: Path, target: Path) -> list[ReadableRows]:
    """Copy every row that can be read of a damaged file into a new database of this version. Return what was copied.

    Raises:
        Conflict: The target has rows.
    """
    found = []
    with closing(_open(path)) as source, closing(sqlite3.connect(target)) as copy:
        copy.execute("PRAGMA foreign_keys=OFF")
        for table in _tables(source):
            columns = {row[1] for row in copy.execute(f'PRAGMA table_info("{table}")')}
            if not columns or table == "alembic_version":
                continue
            if copy.execute(f'SELECT 1 FROM "{table}" LIMIT 1').fetchone():
                raise Conflict(f"expected an empty database at {target.name}, got rows in {table}; name a new file")
            reader = _Rows(source, table)
            names = [name for name in reader.columns if name in columns]
            places = [reader.columns.index(name) for name in names]
            listed = ", ".join(f'"{name}"' for name in names)
            insert = f'INSERT OR IGNORE INTO "{table}" ({listed}) VALUES ({", ".join("?" * len(names))})'
            before = copy.total_changes
            copy.executemany(insert, ([row[place] for place in places] for row in reader))
            found.append(ReadableRows(table, copy.total_changes - before, reader.problem))
        copy.commit()
    return found


class _Rows:
    """Rows of a table from its begin up to the damage, then from its end back to it.

    `problem` is set once the rows were read.
    """

    def __init__(self, connection: sqlite3.Connection, table: str) -> None:
        self.problem: str | None = None
        self._connection, self._table = connection, table
        self.columns = [str(row[1]) for row in connection.execute(f'PRAGMA table_info("{table}")')]

    def __iter__(self) -> Iterator[tuple[object, ...]]:
        last: int | None = None
        for order in ("ASC", "DESC"):
            try:
                for rowid, *row in self._connection.execute(
                    f'SELECT rowid, * FROM "{self._table}" ORDER BY rowid {order}'
                ):
                    if order == "DESC" and last is not None and rowid <= last:
                        return
                    last = rowid if order == "ASC" else last
                    yield tuple(row)
            except sqlite3.DatabaseError as error:
                self.problem = str(error)
                continue
            return


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)


def _tables(connection: sqlite3.Connection) -> list[str]:
    """Return the tables with rows of the store, without those of indexes for searches."""
    try:
        rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY rowid").fetchall()
    except sqlite3.DatabaseError:
        return []
    virtual = [name for name, sql in rows if (sql or "").upper().startswith("CREATE VIRTUAL")]
    owned = tuple(f"{name}_" for name in virtual)
    return [name for name, _ in rows if name not in virtual and not name.startswith(("sqlite_", *owned))]
