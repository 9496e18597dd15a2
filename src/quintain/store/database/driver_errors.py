"""Errors of the database's driver, as errors with a code and a remedy."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from quintain.errors import InvalidInput, QuintainError, Unavailable
from quintain.store.database.damage import is_damage
from quintain.store.database.postgresql import address
from quintain.store.migrations import require_known


class Progress:
    """Whether the connection may break while the server commits: then the outcome is unknown."""

    committing = False


@contextmanager
def translate_errors(engine: Engine) -> Iterator[Progress]:
    """Raise errors of the driver, wrapped by SQLAlchemy or not, as errors with a remedy."""
    progress = Progress()
    try:
        yield progress
    except PoolTimeoutError as error:
        raise Unavailable(
            f"expected a free database connection, got none within 30 s; {_remedy(engine)}", code="database_unavailable"
        ) from error
    except (DBAPIError, engine.dialect.loaded_dbapi.Error, OverflowError) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        translated = _translated(cause, engine, progress)
        if translated is None:
            raise
        raise translated from error


def _translated(cause: BaseException | None, engine: Engine, progress: Progress) -> QuintainError | None:
    """Return the error for a driver's error; None for one that the caller handles, such as a violated constraint."""
    driver, sqlstate = engine.dialect.loaded_dbapi, getattr(cause, "sqlstate", None)
    if isinstance(cause, driver.DataError | OverflowError) or sqlstate == _TOO_LARGE:
        return InvalidInput(
            f"the database cannot store a value: {_text(cause, engine)}; shorten or correct it", code="bad_value"
        )
    is_unfit = _is_unfit(cause)
    if (emptied := is_unfit and _is_emptied(engine)) or is_damage(cause):
        engine.dispose()
        found = "an empty file" if emptied else f"a damaged file ({_text(cause, engine)})"
        return Unavailable(
            f"expected a sound SQLite database {Path(engine.url.database or '').name!r}, got {found}; call `quintain doctor`, "
            "which lists what can still be read and how to get it back",
            code="database_damaged",
        )
    if is_unfit and (newer := _newer_schema(engine)):
        return newer
    unavailable = (driver.OperationalError, driver.InternalError, driver.InterfaceError, driver.NotSupportedError)
    if not isinstance(cause, unavailable) and sqlstate not in _NOT_PREPARED:
        return None
    if engine.dialect.name == "sqlite":
        engine.dispose()  # an open connection keeps pages of a file that is repaired behind its back
    outcome = "the request was rolled back"
    if progress.committing:
        outcome = "whether the request was stored is unknown, so look before you repeat it"
    return Unavailable(
        f"the database rejected a request: {_text(cause, engine)}; {outcome}. {_NOT_PREPARED.get(sqlstate) or _remedy(engine)}",
        code="database_unavailable",
    )


_TOO_LARGE, _WRONG_STATEMENT = "54000", "42"
"""SQLSTATE of PostgreSQL for a text of more than 2,704 bytes in an index, and the class of statements that do not fit the schema."""

_NOT_PREPARED: Mapping[str | None, str] = {
    "42501": "Grant the role what it lacks, such as CREATE on the schema, then call again",
    "3F000": "Create the schema that the role's search_path names, then call again",
    "42704": "Put the schema of the extension pg_trgm into the role's search_path, then call again",
}
"""SQLSTATE of PostgreSQL for a database that was not set up for this role -> remedy."""


def _is_emptied(engine: Engine) -> bool:
    """Whether the file of an SQLite database has lost its content; SQLite takes it for a database without tables."""
    path = engine.url.database if engine.dialect.name == "sqlite" else None
    try:
        return bool(path) and Path(path or "").stat().st_size == 0
    except OSError:
        return False


def _is_unfit(cause: BaseException | None) -> bool:
    """Whether a statement does not fit the schema, such as one that names a missing table."""
    code, sqlstate = getattr(cause, "sqlite_errorcode", 0), str(getattr(cause, "sqlstate", None))
    return code & 0xFF == sqlite3.SQLITE_ERROR or sqlstate.startswith(_WRONG_STATEMENT)


def _newer_schema(engine: Engine) -> Unavailable | None:
    """Return the error of a schema that a newer version has changed under this process; None if none has."""
    revision, reading = None, engine.execution_options(sqlite_begin="BEGIN")
    with suppress(SQLAlchemyError, engine.dialect.loaded_dbapi.Error), reading.connect() as connection:
        revision = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    try:
        require_known(revision)
    except Unavailable as error:
        return error
    return None


def _text(cause: BaseException | None, engine: Engine) -> str:
    """Return a driver's message in one line, without the password."""
    text = " ".join(str(cause).split())
    password = engine.url.password
    return text.replace(str(password), "***") if password else text


def _remedy(engine: Engine) -> str:
    if engine.dialect.name == "sqlite":
        return (
            "Check free disk space and the permissions of the home folder, close programs that lock the database, then "
            "call again"
        )
    return f"Check that PostgreSQL at {address(engine.url)} runs and accepts connections, then call again"
