"""Read SQLite databases of other programs, from a copy in memory that their own triggers and views cannot reach."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from quintain.errors import InvalidInput
from quintain.records.wording import size_text

MARK = b"SQLite format 3\0"
UNREAD_LOG = "the write-ahead log {name}-wal is not read: messages may be missing until the program closes its database"
MAX_BYTES = 32 * 2**20
"""Bytes of a database, which is in memory with its copy."""
_STEPS, _ROUNDS = 1_000_000, 300
"""Instructions of SQLite in a round, and the rounds that all queries of a database may take."""
_VERSIONS = 18, 20
"""Place of the header that demands a write-ahead log, which a copy in memory cannot have."""


def is_database(path: Path) -> bool:
    """Whether a file is an SQLite database."""
    with path.open("rb") as file:
        return file.read(len(MARK)) == MARK


@contextmanager
def opened(content: bytes) -> Iterator[sqlite3.Connection]:
    """Open a copy of a database, to read it only.

    Raises:
        InvalidInput: it is too large or damaged, lacks what a query names, or its queries take too long.
    """
    if len(content) > MAX_BYTES:
        raise InvalidInput(
            f"expected a database of at most {size_text(MAX_BYTES)}, got {size_text(len(content))}; export its runs as JSON",
            code="too_large",
        )
    begin, end = _VERSIONS
    rounds = iter(range(_ROUNDS))
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        try:
            connection.deserialize(content[:begin] + b"\1\1" + content[end:])
            connection.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
            connection.set_progress_handler(lambda: next(rounds, None) is None, _STEPS)
            for setting in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON"):
                connection.execute(f"PRAGMA {setting}")
            yield connection
        except (sqlite3.Error, UnicodeDecodeError) as error:  # names and messages of a damaged file are any bytes
            raise InvalidInput(f"the database cannot be read: {error}") from None


def tables(content: bytes) -> tuple[str, ...]:
    """Return the names of a database's tables, without views and virtual tables; () if it cannot be read."""
    try:
        with opened(content) as connection:
            found = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'").fetchall()
    except InvalidInput:
        return ()
    return tuple(name for name, sql in found if isinstance(sql, str) and not sql.upper().startswith("CREATE VIRTUAL"))


def records(connection: sqlite3.Connection, query: str, *values: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a query as objects."""
    cursor = connection.execute(query, values)
    names = [column[0] for column in cursor.description]
    yield from (dict(zip(names, row, strict=True)) for row in cursor)
