"""The store: one engine and one attribute a noun."""

from __future__ import annotations

import os
import sqlite3
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy
from sqlalchemy import Connection, Engine

from quintain.errors import Unavailable
from quintain.store.agents import Agents
from quintain.store.calibrations import Calibrations
from quintain.store.datasets import Datasets
from quintain.store.engine import BUSY_TIMEOUT_S, create_engine, reading, writing
from quintain.store.evaluations import Evaluations
from quintain.store.imports import Imports
from quintain.store.jobs import Jobs
from quintain.store.judging import JudgingBatches
from quintain.store.lineage.lineage import Lineage
from quintain.store.migrations import REVISIONS
from quintain.store.preferences import Preferences
from quintain.store.scores import Scores
from quintain.store.trajectories.trajectories import Trajectories


@dataclass(frozen=True)
class Store:
    """All that lasts. Safe to share between threads; every call is its own short transaction."""

    engine: Engine
    trajectories: Trajectories
    scores: Scores
    preferences: Preferences
    judging: JudgingBatches
    calibrations: Calibrations
    datasets: Datasets
    agents: Agents
    evaluations: Evaluations
    jobs: Jobs
    imports: Imports
    lineage: Lineage

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


def open_store(url: str, wait_s: float = BUSY_TIMEOUT_S) -> Store:
    """Open the database at an SQLAlchemy URL; makes its folder and brings its schema up to date.

    Args:
        url: Of SQLite or PostgreSQL.
        wait_s: How long a transaction waits for others, with SQLite.

    Raises:
        Unavailable: the database was written by a newer program, or cannot be opened.
    """
    database = sqlalchemy.make_url(url).database if url.startswith("sqlite") else None
    path = Path(database) if database else None
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, wait_s)
    try:
        with reading(engine) as connection:
            due = _is_behind(connection)
        if due:
            _migrate(engine, path, 4 * wait_s)
    except BaseException:
        engine.dispose()
        raise
    return Store(
        engine,
        Trajectories(engine),
        Scores(engine),
        Preferences(engine),
        JudgingBatches(engine),
        Calibrations(engine),
        Datasets(engine),
        Agents(engine),
        Evaluations(engine),
        Jobs(engine),
        Imports(engine),
        Lineage(engine),
    )


def _is_behind(connection: Connection) -> bool:
    """Does this database lack a revision? One that we do not know was written by a newer program."""
    if not sqlalchemy.inspect(connection).has_table("alembic_version"):
        return True
    revision = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    if revision is not None and revision not in REVISIONS:
        raise Unavailable(
            f"the database has schema {revision}, this program knows up to {REVISIONS[-1]}: a newer version of quintain "
            "wrote it. Upgrade this installation, or point QUINTAIN_HOME at another folder",
            code="database_newer",
        )
    return revision != REVISIONS[-1]


def _migrate(engine: Engine, path: Path | None, wait_s: float) -> None:
    """Run the missing revisions, all or none, and keep a copy of what was there.

    A second process waits at the lock and then finds nothing to do.
    """
    from alembic import command
    from alembic.config import Config
    from filelock import FileLock

    lock: AbstractContextManager[object] = nullcontext()
    if path:
        lock = FileLock(f"{path}.migration.lock", timeout=wait_s)
    with lock, writing(engine) as connection:
        if not _is_behind(connection):
            return
        if path:
            _keep_copy(path, Path(f"{path}.before-{REVISIONS[-1]}"))
        config = Config()
        config.set_main_option("script_location", "quintain.store:migrations")
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def _keep_copy(path: Path, copy: Path) -> None:
    """Copy a database that holds something, once; the caller's write lock keeps everybody else from changing it."""
    if copy.exists():
        return
    aside = copy.with_name(f".{copy.name}.{os.getpid()}")
    try:
        with closing(sqlite3.connect(path)) as source:
            if source.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
                return
            with closing(sqlite3.connect(aside)) as target:
                source.backup(target)
        aside.replace(copy)
    except (OSError, sqlite3.Error) as error:
        aside.unlink(missing_ok=True)
        raise Unavailable(
            f"the database is of an older version, and the copy that is kept before it is changed could not be made ({error}); "
            f"free disk space, or copy {path} to {copy} yourself, then start again"
        ) from error
