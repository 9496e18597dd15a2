"""The store: one engine, and one attribute per kind of record."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import AbstractContextManager, closing, nullcontext
from glob import escape
from pathlib import Path

import sqlalchemy
from sqlalchemy import Column, Connection, Engine, MetaData, String, Table

from quintain.errors import Conflict, Unavailable
from quintain.records.wording import size_text
from quintain.store.agents import Agents
from quintain.store.calibrations import Calibrations
from quintain.store.database.driver_errors import translate_errors
from quintain.store.database.engine import (
    BUSY_TIMEOUT_S,
    create_engine,
    empty_log,
    follow_schema,
    read_transaction,
    shared_transaction,
    write_transaction,
)
from quintain.store.database.postgresql import address, require_unicode
from quintain.store.database.tables import metadata
from quintain.store.database.write_queue import writers_turn
from quintain.store.datasets import Datasets
from quintain.store.evaluations import Evaluations
from quintain.store.homes import Homes
from quintain.store.imports import Imports
from quintain.store.jobs import Jobs
from quintain.store.judging import JudgingBatches
from quintain.store.lineage.lineage import Lineage
from quintain.store.migrations import REVISIONS, require_known
from quintain.store.preferences import Preferences
from quintain.store.scores import Scores
from quintain.store.trajectories.text_index import create_text_index
from quintain.store.trajectories.trajectories import Trajectories


class Store:
    """The database. Safe to share between threads: every call is a short transaction."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.trajectories = Trajectories(engine)
        self.scores = Scores(engine)
        self.preferences = Preferences(engine)
        self.judging = JudgingBatches(engine)
        self.calibrations = Calibrations(engine)
        self.datasets = Datasets(engine)
        self.agents = Agents(engine)
        self.evaluations = Evaluations(engine)
        self.jobs = Jobs(engine)
        self.homes = Homes(engine)
        self.imports = Imports(engine)
        self.lineage = Lineage(engine)

    @property
    def url(self) -> str:
        """URL of the database, with its password."""
        return self.engine.url.render_as_string(hide_password=False)

    def transaction(self) -> AbstractContextManager[None]:
        """Return a context in which all calls of this thread are one transaction."""
        return shared_transaction(self.engine)

    def description(self) -> str:
        """Return the database's program and version, its place, and how it is backed up; without the password."""
        if self.engine.dialect.name == "sqlite":
            return f"SQLite {sqlite3.sqlite_version}, {self.engine.url.database}"
        with read_transaction(self.engine) as connection:
            version = connection.exec_driver_sql("SHOW server_version").scalar_one()
        return f"PostgreSQL {version}, {address(self.engine.url)}; back it up with pg_dump"

    def is_in(self, folder: Path) -> bool:
        """Whether the database is a file in this folder."""
        path = self.engine.url.database if self.engine.dialect.name == "sqlite" else None
        return bool(path) and Path(path or "").resolve().parent == folder.resolve()

    def ping(self) -> None:
        """Read from the database."""
        with read_transaction(self.engine) as connection:
            connection.exec_driver_sql("SELECT 1 FROM jobs LIMIT 1")

    def unused_bytes(self) -> int:
        """Return the bytes of an SQLite file that deleted rows have left; 0 for PostgreSQL, which looks after its own."""
        if self.engine.dialect.name != "sqlite":
            return 0
        with read_transaction(self.engine) as connection:
            pages, size = (
                connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in ("freelist_count", "page_size")
            )
            return int(pages * size)

    def vacuum(self) -> int:
        """Write an SQLite file anew, without the space of deleted rows. Return the bytes that it has lost.

        It needs as much free disk space as the file has content, and lets nobody else write meanwhile.

        Raises:
            Conflict: The database is PostgreSQL.
            Unavailable: The disk is full, or other programs keep the database locked.
        """
        if self.engine.dialect.name != "sqlite":
            raise Conflict("expected an SQLite database, got PostgreSQL, which vacuums itself; see its VACUUM command")
        path = Path(self.engine.url.database or "")
        before = path.stat().st_size
        with translate_errors(self.engine), writers_turn(path), self.engine.connect() as connection:
            connection.connection.cursor().execute("VACUUM").close()  # outside of a transaction
        empty_log(self.engine)
        return before - path.stat().st_size

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


def open_store(url: str, wait_s: float = BUSY_TIMEOUT_S) -> Store:
    """Open a SQLite or PostgreSQL database, creating its folder and migrating its schema if needed.

    A transaction waits `wait_s` seconds for others.

    Raises:
        Unavailable: A newer version of the program wrote the database, or it cannot be opened.
    """
    database = sqlalchemy.make_url(url).database if url.startswith("sqlite") else None
    path = Path(database) if database else None
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, wait_s)
    try:
        with read_transaction(engine) as connection:
            due = _is_behind(connection)
        if due:
            _migrate(engine, path, 4 * wait_s)
        follow_schema(engine)
    except BaseException:
        engine.dispose()
        raise
    return Store(engine)


def _is_behind(connection: Connection) -> bool:
    """Whether the schema lacks a revision."""
    if not sqlalchemy.inspect(connection).has_table("alembic_version"):
        return True
    revision = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    require_known(revision)
    return revision != REVISIONS[-1]


def _migrate(engine: Engine, path: Path | None, wait_s: float) -> None:
    """Create the schema, or apply the missing revisions after a backup of the database; all or none.

    A concurrent process waits for the lock and then has nothing to do.
    """
    from filelock import FileLock

    lock: AbstractContextManager[object] = nullcontext()
    if path:
        lock = FileLock(f"{path}.migration.lock", timeout=wait_s, mode=0o600)
    with lock, write_transaction(engine) as connection:
        if not _is_behind(connection):
            return
        if path:
            _back_up(path, Path(f"{path}.before-{REVISIONS[-1]}"))
        else:
            require_unicode(connection)
        if not sqlalchemy.inspect(connection).has_table("alembic_version"):
            create_schema(connection)
            return
        from alembic import command
        from alembic.config import Config

        config = Config()
        config.set_main_option("script_location", "quintain.store:migrations")
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def create_schema(connection: Connection) -> None:
    """Create the newest schema without alembic, whose import takes 10 MB and as long as ten of these schemas."""
    if connection.dialect.name == "postgresql":
        for index in (index for table in metadata.tables.values() for index in table.indexes):
            index.dialect_options["postgresql"]["where"] = index.dialect_options["sqlite"]["where"]
    metadata.create_all(connection, checkfirst=False)
    create_text_index(connection)
    version = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
    version.create(connection)
    connection.execute(version.insert().values(version_num=REVISIONS[-1]))


def _back_up(path: Path, copy: Path) -> None:
    """Copy a non-empty database once. The caller's write lock prevents concurrent changes."""
    if copy.exists():
        return
    aside = copy.with_name(f".{copy.name}.{os.getpid()}")
    _discard_unfinished(copy)  # of a migration that was killed
    try:
        if (free := shutil.disk_usage(copy.parent).free) < (needed := path.stat().st_size):
            raise OSError(f"the copy needs {size_text(needed)} and the disk has {size_text(free)}")
        with closing(sqlite3.connect(path)) as source:
            if source.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
                return
            with closing(sqlite3.connect(aside)) as target:
                source.backup(target)
        aside.replace(copy)
    except (OSError, sqlite3.Error) as error:
        _discard_unfinished(copy)
        raise Unavailable(
            f"cannot back up {path} before the migration: {error}; free disk space, or copy it to {copy} yourself, "
            "then start again"
        ) from error


def _discard_unfinished(copy: Path) -> None:
    """Delete what a copy wrote before it was complete, SQLite's journal included."""
    for unfinished in copy.parent.glob(f".{escape(copy.name)}.*"):
        unfinished.unlink(missing_ok=True)
