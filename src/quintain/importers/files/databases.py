"""Read SQLite databases of other programs, from a copy without their journals, and no views or virtual tables."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from quintain.errors import InvalidInput, Unavailable, disk_remedy
from quintain.importers.files.byte_streams import open_regular
from quintain.records.wording import size_text

MARK = b"SQLite format 3\0"
UNREAD_LOG = "the write-ahead log {name}-wal is not read: messages may be missing until the program closes its database"
MAX_BYTES = 2**30
"""Bytes of a database, of which a copy is on the disk while it is read."""
_STEPS, _ROUNDS = 1_000_000, 300
"""Instructions of SQLite in a round, and the rounds that all queries of a database may take."""


def is_database(path: Path, root: Path) -> bool:
    """Whether a file is an SQLite database."""
    with open_regular(path, root) as file:
        return file.read(len(MARK)) == MARK


@contextmanager
def opened(path: Path, root: Path) -> Iterator[sqlite3.Connection]:
    """Open a copy of a database, to read it only.

    Raises:
        InvalidInput: it is too large or damaged, lacks what a query names, or its queries take too long.
    """
    rounds = iter(range(_ROUNDS))
    with tempfile.TemporaryDirectory(prefix="quintain-") as folder:
        copy = Path(folder) / "copy.db"
        _copy(path, root, copy)
        with closing(sqlite3.connect(f"{copy.as_uri()}?immutable=1", uri=True, check_same_thread=False)) as connection:
            try:
                connection.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
                connection.set_progress_handler(lambda: next(rounds, None) is None, _STEPS)
                for setting in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON"):
                    connection.execute(f"PRAGMA {setting}")
                yield connection
            except (sqlite3.Error, UnicodeDecodeError) as error:  # names and messages of a damaged file are any bytes
                raise InvalidInput(f"the database cannot be read: {error}") from None


def _copy(path: Path, root: Path, copy: Path) -> None:
    try:
        with open_regular(path, root) as source, copy.open("wb") as target:
            if (size := os.fstat(source.fileno()).st_size) > MAX_BYTES:
                raise InvalidInput(
                    f"expected a database of at most {size_text(MAX_BYTES)}, got {size_text(size)}; export its runs as JSON",
                    code="too_large",
                )
            shutil.copyfileobj(source, target)
    except OSError as error:
        raise Unavailable(
            f"expected to copy the database to a temporary file, got {error.strerror}; {disk_remedy(error)}, or set TMPDIR "
            "to another folder",
            code="no_temporary_file",
        ) from error


def tables(path: Path, root: Path) -> tuple[str, ...]:
    """Return the names of a database's tables, without views and virtual tables; () if it cannot be read."""
    try:
        with opened(path, root) as connection:
            found = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'").fetchall()
    except InvalidInput:
        return ()
    return tuple(name for name, sql in found if isinstance(sql, str) and not sql.upper().startswith("CREATE VIRTUAL"))


def records(connection: sqlite3.Connection, query: str, *values: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a query as objects."""
    cursor = connection.execute(query, values)
    names = [column[0] for column in cursor.description]
    yield from (dict(zip(names, row, strict=True)) for row in cursor)
