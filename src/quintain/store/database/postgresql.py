"""Engine for PostgreSQL: the driver, timeouts against dead peers, the write lock, and text with NUL characters.

The store's writes are reads followed by writes, as under SQLite's `BEGIN IMMEDIATE`. In READ COMMITTED two of them would
overwrite each other, so every write transaction first takes one advisory lock. Each statement after it sees all that the
previous holder committed, and the order of `seq` is the order of commits.
"""

from __future__ import annotations

import math
from typing import Any

import sqlalchemy
from sqlalchemy import URL, Connection, Engine, event
from sqlalchemy.exc import ArgumentError

from quintain.errors import InvalidInput, Unavailable

WRITE_LOCK = 0x7175696E7461696E
"""Key of the advisory lock of write transactions and migrations ("quintain" in ASCII). Locks belong to one database."""

IDLE_TRANSACTION_S = 60
"""Seconds without a statement after which the server ends a write transaction, whose client may be cut off or suspended."""

NUL_SYMBOL = "\u2400"
"""Replaces NUL, which PostgreSQL cannot store in text. JSON documents are unchanged, because they escape it."""

READ_OPTIONS = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
"""Execution options of a transaction with one snapshot and without the write lock. They cost no round trip."""

WAIT_S = "quintain_wait_s"
_LOCK = (
    "SELECT set_config('lock_timeout', %s, true), set_config('idle_in_transaction_session_timeout', %s, true), "
    "pg_advisory_xact_lock(%s)"
)
_CONNECTION = {
    "application_name": "quintain",
    # A cut network path sends no error: without these, a reply would be awaited for hours.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # milliseconds
    # Statements prepared by a session do not survive a pooler such as PgBouncer.
    "prepare_threshold": None,
}
_POOL = {"pool_size": 4, "max_overflow": 4, "pool_pre_ping": True, "pool_timeout": 30}
"""At most 8 connections a process, of the 100 that a server accepts by default. Dead ones are replaced when next used."""


def parse_url(url: str) -> URL:
    """Return a database URL with the driver that the store uses.

    Raises:
        InvalidInput: The URL is malformed, or names another database or driver. The message does not contain the URL, which
            may have a password.
    """
    try:
        parsed = sqlalchemy.make_url(url)
    except (ArgumentError, ValueError):
        parsed = None
    if parsed is not None and parsed.drivername in {"postgresql", "postgres", "postgresql+psycopg"}:
        return parsed.set(drivername="postgresql+psycopg")
    if parsed is not None and parsed.drivername.partition("+")[0] == "sqlite":
        return parsed
    scheme = repr(parsed.drivername) if parsed is not None else "text that is not a URL"
    raise InvalidInput(
        f"expected a database URL sqlite:///PATH or postgresql://USER:PASSWORD@HOST/DATABASE, got {scheme}; set "
        "QUINTAIN_DATABASE_URL",
        code="bad_database_url",
    )


def create_postgresql_engine(url: URL, wait_s: float) -> Engine:
    """Create an engine for a URL of `parse_url`, whose connections notice dead peers and store text with NUL characters.

    It waits `wait_s` seconds for the write lock, and for a connection to a server that does not answer.

    Raises:
        Unavailable: The driver is not installed.
        InvalidInput: The URL has a parameter that libpq does not know (`bad_database_url`).
    """
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import make_conninfo
        from psycopg.types.string import StrDumperUnknown
    except ImportError as error:
        raise Unavailable(
            f"expected the PostgreSQL driver psycopg, got {error}; install it with: pip install 'quintain[postgres]'",
            code="missing_driver",
        ) from error

    class NulFreeDumper(StrDumperUnknown):
        """Writes NUL as its symbol, in values and in conditions alike."""

        def dump(self, obj: str) -> Any:
            return super().dump(obj.replace("\0", NUL_SYMBOL) if "\0" in obj else obj)

    patience = {**_CONNECTION, "connect_timeout": min(10, max(2, math.ceil(wait_s)))}
    given = {name: value for name, value in patience.items() if name not in url.query}
    try:
        make_conninfo("", **dict.fromkeys(url.query.keys() - _CONNECTION.keys(), ""))
    except ProgrammingError as error:
        raise InvalidInput(
            f"expected parameters of libpq after the ? of the database URL, got {str(error).strip()}; correct QUINTAIN_DATABASE_URL",
            code="bad_database_url",
        ) from None
    options = {WAIT_S: wait_s}
    engine = sqlalchemy.create_engine(url, connect_args=given, execution_options=options, **_POOL)

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: object) -> None:
        connection.adapters.register_dumper(str, NulFreeDumper)

    return engine


def take_write_lock(connection: Connection) -> None:
    """Wait for the write lock. It ends with the transaction."""
    wait_s = connection.get_execution_options()[WAIT_S]
    connection.exec_driver_sql(_LOCK, (f"{math.ceil(wait_s * 1000)}ms", f"{IDLE_TRANSACTION_S}s", WRITE_LOCK)).close()


def require_unicode(connection: Connection) -> None:
    """Check the encoding of a database.

    Raises:
        Unavailable: It is not UTF-8.
    """
    if (encoding := connection.exec_driver_sql("SHOW server_encoding").scalar()) != "UTF8":
        raise Unavailable(
            f"expected a database with the encoding UTF8, got {encoding}; create it with: createdb -E UTF8 -T template0 NAME",
            code="database_encoding",
        )


def address(url: URL) -> str:
    """Return where the server is, for messages: host and port, or the folder of its socket."""
    socket = url.query.get("host")
    host = url.host or (socket if isinstance(socket, str) else None) or "the default host"
    return f"{host}:{url.port}" if url.port else host
