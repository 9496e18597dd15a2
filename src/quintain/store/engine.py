"""Engine factory, read and write transactions, and inserts that skip or replace existing rows.

Python's `sqlite3` does not open a transaction for SELECT, so a read followed by a write silently loses updates between
processes. All transactions are opened here: `write_transaction` takes the write lock first (BEGIN IMMEDIATE),
`read_transaction` does not.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy
from sqlalchemy import Connection, Dialect, Engine, Table, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import OperationalError

from quintain.errors import Unavailable

BUSY_TIMEOUT_S = 30
"""Seconds that a transaction waits for the write lock. The longest wait measured with 16 processes was 2 s."""


def create_engine(url: str, wait_s: float = BUSY_TIMEOUT_S) -> Engine:
    """Create an engine with explicit transactions (see the module docstring).

    Args:
        url: SQLAlchemy URL.
        wait_s: Seconds to wait for the write lock (SQLite only).
    """
    if not url.startswith("sqlite"):
        return sqlalchemy.create_engine(url)
    # A cached statement keeps copies of its last values: 16 MB after the insertion of a long run.
    engine = sqlalchemy.create_engine(url, connect_args={"timeout": wait_s, "cached_statements": 0})
    journal = "WAL" if wal_is_safe(sqlite3.sqlite_version_info) else "TRUNCATE"

    @event.listens_for(engine, "connect")
    def _prepare(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # sqlite3 must not begin transactions; `_begin` does
        for pragma in (f"journal_mode={journal}", "synchronous=FULL", "fullfsync=1", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        begin = connection.get_execution_options().get("sqlite_begin", "BEGIN IMMEDIATE")
        connection.connection.cursor().execute(begin)

    return engine


def wal_is_safe(version: tuple[int, ...]) -> bool:
    """Whether this SQLite version lacks the WAL-reset bug, which can corrupt a shared database.

    Source: sqlite.org/wal.html#walresetbug.
    """
    return version >= (3, 51, 3) or (3, 50, 7) <= version < (3, 51) or (3, 44, 6) <= version < (3, 45)


@contextmanager
def read_transaction(engine: Engine) -> Iterator[Connection]:
    """Open a short transaction with a consistent snapshot and without the write lock."""
    with (
        _translate_errors(),
        engine.connect().execution_options(sqlite_begin="BEGIN") as connection,
        connection.begin(),
    ):
        yield connection


@contextmanager
def write_transaction(engine: Engine) -> Iterator[Connection]:
    """Open a short transaction that takes the write lock at once and rolls back on an exception."""
    with _translate_errors(), engine.begin() as connection:
        yield connection


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except (OperationalError, sqlite3.OperationalError) as error:
        cause = error.orig if isinstance(error, OperationalError) else error
        raise Unavailable(
            f"the database rejected a request: {cause}; the request was rolled back. Check free disk space and the "
            "permissions of the home folder, close programs that lock the database, then call again",
            code="database_unavailable",
        ) from error


def insert_missing(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> int:
    """Insert the rows that violate no unique constraint and skip the others. Return the number inserted."""
    if not rows:
        return 0
    statement = dialect_insert(table, connection.dialect).on_conflict_do_nothing()
    # Without the option, PostgreSQL reports -1, because SQLAlchemy fetches the generated keys.
    inserted = connection.execute(statement, list(rows), execution_options={"preserve_rowcount": True})
    return int(inserted.rowcount)


def upsert(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows, replacing those with the same primary key."""
    if rows:
        insert = dialect_insert(table, connection.dialect)
        keys = [column.name for column in table.primary_key]
        rest = {name: insert.excluded[name] for name in rows[0] if name not in keys}
        connection.execute(insert.on_conflict_do_update(index_elements=keys, set_=rest), list(rows))


def dialect_insert(table: Table, dialect: Dialect) -> Any:
    """Return an insert statement with the `ON CONFLICT` clauses of the dialect."""
    return sqlite.insert(table) if dialect.name == "sqlite" else postgresql.insert(table)
