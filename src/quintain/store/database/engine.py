"""Engine factory, read and write transactions, and inserts that skip or replace existing rows.

Python's `sqlite3` does not open a transaction for SELECT, and PostgreSQL does not lock what it reads, so a read followed by a
write silently loses updates between processes. All transactions are opened here: `write_transaction` takes the write lock
first (BEGIN IMMEDIATE, or an advisory lock of PostgreSQL), `read_transaction` does not.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy import Connection, Dialect, Engine, Table, event
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry

from quintain.errors import Unavailable
from quintain.store.database.driver_errors import translate_errors
from quintain.store.database.postgresql import (
    READ_OPTIONS,
    WAIT_S,
    create_postgresql_engine,
    parse_url,
    take_write_lock,
)
from quintain.store.database.write_queue import LONGEST_WAIT_S, writers_turn
from quintain.store.migrations import require_known

BUSY_TIMEOUT_S = 30
"""Seconds that a transaction waits for the write lock. The longest wait measured with 16 processes was 2 s."""

JOURNAL_BYTES = 4 * 1024 * 1024
"""Size to which a larger journal is cut after a transaction."""

SPILL_PAGES = 4096
"""Changed pages of 4 KiB that a transaction keeps in memory. Beyond them it writes to the file, and with a rollback journal
locks readers out until its end: half a second for a pass over new texts, at SQLite's default of 2 MB."""

_PRAGMAS = ("synchronous=FULL", "fullfsync=1", "foreign_keys=ON", f"cache_spill={SPILL_PAGES}")

FOLLOWS_SCHEMA = "quintain_follows_schema"
"""Option of an engine after `follow_schema`."""

_shared = threading.local()
"""`connection` is that of this thread's shared transaction."""


def create_engine(url: str, wait_s: float = BUSY_TIMEOUT_S) -> Engine:
    """Create an engine with explicit transactions (see the module docstring), which wait `wait_s` seconds for the write lock.

    Raises:
        InvalidInput: The URL names another database, or is malformed.
        Unavailable: The driver of PostgreSQL is not installed.
    """
    parsed = parse_url(url)
    if parsed.get_backend_name() == "postgresql":
        return create_postgresql_engine(parsed, wait_s)
    # A cached statement keeps copies of its last values: 16 MB after the insertion of a long run.
    arguments = {"timeout": wait_s, "cached_statements": 0}
    engine = sqlalchemy.create_engine(url, connect_args=arguments, execution_options={WAIT_S: wait_s})

    journal = "WAL" if wal_is_safe(sqlite3.sqlite_version_info) else "PERSIST"
    pragmas = (f"journal_mode={journal}", f"journal_size_limit={JOURNAL_BYTES}", *_PRAGMAS)

    @event.listens_for(engine, "connect")
    def _prepare(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # sqlite3 must not begin transactions; `_begin` does
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        begin = connection.get_execution_options().get("sqlite_begin", "BEGIN IMMEDIATE")
        connection.connection.cursor().execute(begin)

    if parsed.database and parsed.database != ":memory:":
        _follow_file(engine, Path(parsed.database))
    return engine


def _create_private(path: Path) -> None:
    """Create a missing database file for this user alone, whatever the umask; SQLite gives its other files the same mode.

    A path that cannot be created is left to SQLite, which reports it.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _follow_file(engine: Engine, path: Path) -> None:
    """Use the file that is at the path now: SQLite would go on reading one that another program has replaced or deleted.

    A file that is gone is an error, and is not created again: it may be on a disk that is not mounted. A connection opened on a
    read-only disk cannot write when the disk can be written again, so it is replaced too.
    """
    known = False

    def identity() -> tuple[int, int, bool]:
        try:
            found = path.stat()
        except FileNotFoundError:
            raise Unavailable(
                f"expected the database {path.name!r} that this process has opened, got no file; put it back, call "
                "`quintain restore`, or start the server again to begin with an empty one",
                code="database_missing",
            ) from None
        return found.st_dev, found.st_ino, os.access(path, os.W_OK)

    @event.listens_for(engine, "do_connect")
    def _exists(*_: object) -> None:
        if known:
            identity()
        else:
            _create_private(path)

    @event.listens_for(engine, "connect")
    def _note(_connection: sqlite3.Connection, record: ConnectionPoolEntry) -> None:
        nonlocal known
        known, record.info["file"] = True, identity()

    @event.listens_for(engine, "checkout")
    def _same(_connection: sqlite3.Connection, record: ConnectionPoolEntry, _proxy: object) -> None:
        if record.info["file"] != identity():
            raise DisconnectionError(
                "the database file is another one, or is writable again"
            )  # the pool opens the new one


def wal_is_safe(version: tuple[int, ...]) -> bool:
    """Whether this SQLite version lacks the WAL-reset bug, which can corrupt a shared database.

    Source: sqlite.org/wal.html#walresetbug.
    """
    return version >= (3, 51, 3) or (3, 50, 7) <= version < (3, 51) or (3, 44, 6) <= version < (3, 45)


@contextmanager
def read_transaction(engine: Engine) -> Iterator[Connection]:
    """Open a short transaction with a consistent snapshot and without the write lock."""
    if (shared := _shared_connection(engine)) is not None:
        with translate_errors(engine):
            yield shared
        return
    options: Mapping[str, Any] = {"sqlite_begin": "BEGIN"} if engine.dialect.name == "sqlite" else READ_OPTIONS
    with translate_errors(engine), engine.connect().execution_options(**options) as connection, connection.begin():
        yield connection


@contextmanager
def write_transaction(engine: Engine) -> Iterator[Connection]:
    """Open a short transaction that takes the write lock at once and rolls back on an exception."""
    if (shared := _shared_connection(engine)) is not None:
        with translate_errors(engine), shared.begin_nested():
            yield shared
        return
    with translate_errors(engine) as progress, _in_turn(engine), engine.begin() as connection:
        if engine.dialect.name != "sqlite":
            take_write_lock(connection)
        if engine.get_execution_options().get(FOLLOWS_SCHEMA):
            require_known(connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar())
        yield connection
        progress.committing = engine.dialect.name != "sqlite"


@contextmanager
def shared_transaction(engine: Engine) -> Iterator[None]:
    """Let all transactions that this thread opens meanwhile be parts of one, which is stored as a whole or not at all.

    A part that raises an error is undone; the others stay unless the error leaves the block.
    """
    with write_transaction(engine) as connection:
        before, _shared.connection = _shared_connection(engine), connection
        try:
            yield
        finally:
            _shared.connection = before


def follow_schema(engine: Engine) -> None:
    """Let no transaction write from now on once a newer version of the program has migrated the database under this process."""
    engine.update_execution_options(**{FOLLOWS_SCHEMA: True})


def _shared_connection(engine: Engine) -> Connection | None:
    connection: Connection | None = getattr(_shared, "connection", None)
    return connection if connection is not None and connection.engine is engine else None


def _in_turn(engine: Engine) -> AbstractContextManager[None]:
    """Wait for this writer's turn, where the database is a file of SQLite: its locks are not granted in order."""
    path = engine.url.database if engine.dialect.name == "sqlite" else None
    if not path or path == ":memory:":
        return nullcontext()
    return writers_turn(Path(path), min(engine.get_execution_options()[WAIT_S], LONGEST_WAIT_S))


def leave_no_copy(connection: Connection) -> None:
    """Leave nothing of what this transaction deletes in free pages of an SQLite file, or in its rollback journal.

    Call `empty_log` after the transaction, for a write-ahead log keeps what it deleted. The connection is closed at its end.
    """
    if connection.dialect.name == "sqlite":
        connection.detach()
        for pragma in ("secure_delete=ON", "journal_size_limit=0"):
            connection.exec_driver_sql(f"PRAGMA {pragma}")


def empty_log(engine: Engine) -> None:
    """Move the content of SQLite's write-ahead log into the database, and empty it. No effect without one."""
    if engine.dialect.name == "sqlite":
        with translate_errors(engine), engine.connect() as connection:
            connection.connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


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
    if dialect.name == "sqlite":
        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql  # takes 2 MB, and most homes have SQLite

    return postgresql.insert(table)
