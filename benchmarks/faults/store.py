"""Faults of the database: locks, damaged and replaced files, killed migrations."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import inspect, text

from benchmarks.faults.home import call, exit_code, fault_home, forked, record, record_by, wait_for
from benchmarks.figures import report
from benchmarks.first_schema import create_first_schema
from benchmarks.server import Client
from quintain.errors import Unavailable
from quintain.records.jobs.job import SelftestSpec
from quintain.records.trajectory import Actor, Step, Task, Trajectory
from quintain.store.database.damage import problems
from quintain.store.database.engine import BUSY_TIMEOUT_S, create_engine, write_transaction
from quintain.store.migrations import REVISIONS
from quintain.store.store import open_store
from quintain.store.trajectories.rows import encode_run

OLD_RUNS = 40
"""Runs in the database that is migrated."""


def locked(seconds: int) -> None:
    """Lock the database in another process for so long: writes are refused with a code, reads and a job go on."""
    wait_s, wrong = min(BUSY_TIMEOUT_S, seconds / 3), []
    with fault_home() as home:
        steps = 10 * seconds + 5
        job = home.runner.start(SelftestSpec(steps=steps, step_s=0.1, checkpoint_every_steps=5)).job
        home.until_step(1, job.id)
        store, gate = open_store(home.url, wait_s), home.folder.parent / "locked"
        first = record(store, "before")
        locker = forked(_hold_lock, home.folder / "quintain.db", seconds, gate)
        wait_for(gate)
        begin = time.monotonic()
        try:
            record(store, "during")
            wrong.append("a write was acknowledged while another process held the lock")
        except Unavailable as error:
            wrong += [] if _has_remedy(str(error)) else [f"no remedy: {error}"]
        waited = time.monotonic() - begin
        wrong += [] if store.trajectories.get(first).id == first else ["a row cannot be read"]
        exit_code(locker)
        record(store, "after")
        store.close()
        home.finished()
        wrong += [] if home.store.jobs.get(job.id).attempt == 1 else ["the job was taken for dead"]
        wrong += home.audit()
    report("locked_write_refused_after", [waited], "s", wait_s + 2, "lower", lock_s=seconds)
    report("faults_after_a_lock", [len(wrong)], "faults", 0, "lower", found=wrong[:5])


def _hold_lock(path: Path, seconds: float, gate: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        gate.touch()
        time.sleep(seconds)


def _has_remedy(message: str) -> bool:
    """Whether an error has a code of the database and a remedy, without pages of SQLAlchemy."""
    return message.startswith("[database_") and (";" in message or ". " in message) and "sqlalche.me" not in message


def _truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _empty(path: Path) -> None:
    os.truncate(path, 0)


def _zero_first_page(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(bytes(4096))


def _write_letters(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"A letter, and not a database.\n" * 1000)


def _replace(path: Path) -> None:
    other = path.with_name("other.db")
    open_store(f"sqlite:///{other}").close()
    for left in path.parent.glob("other.db.*"):
        left.unlink()
    os.replace(other, path)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "truncated": _truncate,
    "emptied": _empty,
    "first page zeroed": _zero_first_page,
    "overwritten by text": _write_letters,
    "deleted": Path.unlink,
    "replaced": _replace,
}


def damaged_databases(count: int) -> None:
    """Damage the database under a running server in each way: plain answers, and all rows back with the file."""
    wrong: list[str] = []
    with fault_home() as home:
        path, saved = home.folder / "quintain.db", home.folder.parent / "saved.db"
        client = home.server()
        rows = [record_by(client, "first")]
        for number in range(count):
            for name, damage in DAMAGES.items():
                home.store.close()
                shutil.copyfile(path, saved)
                damage(path)
                acknowledged = _answers(client, f"{name} {number}", wrong)
                stored = _stored(path) if acknowledged else set()
                wrong += [f"{name}: an acknowledged row is in no file" for row in acknowledged if row not in stored]
                if damage in (_replace, Path.unlink):
                    os.replace(saved, path)
                else:
                    path.write_bytes(saved.read_bytes())
                rows.append(record_by(client, f"after {name} {number}"))
        wrong += _newer(home.url, path)
        present = {run.id for run in home.store.trajectories.iterate()}
        lost = [row for row in rows if row not in present]
        client.close()
        wrong += home.audit()
    report("databases_damaged_under_a_server", [count * len(DAMAGES)], "databases", None)
    report("acknowledged_lost_after_damage", [len(lost)], "rows", 0, "lower")
    report("faults_after_damage", [len(wrong)], "faults", 0, "lower", found=wrong[:5])


def _answers(client: Client, name: str, wrong: list[str]) -> list[str]:
    """Write and read while the database is damaged. Return the ids of rows acknowledged nevertheless."""
    acknowledged = []
    for tool in ("record", "search_trajectories", "list_jobs"):
        try:
            if tool == "record":
                acknowledged.append(record_by(client, name))
            else:
                call(client, tool)
        except RuntimeError as error:
            if not _has_remedy(str(error)):
                wrong.append(f"{name}: {error}")
    return acknowledged


def _stored(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        return {row[0] for row in connection.execute("SELECT id FROM trajectories")}


def _newer(url: str, path: Path) -> list[str]:
    """Open a database of a newer version: it is refused with its code, and unchanged."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    try:
        open_store(url).close()
        wrong = ["a newer database was opened"]
    except Unavailable as error:
        wrong = [] if error.code == "database_newer" else [str(error)]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (REVISIONS[-1],))
    return wrong


def migrations(count: int) -> None:
    """Kill the migration of the oldest schema at random moments, then let two servers migrate at once."""
    dice, wrong, inside = random.Random(5), [], 0
    with TemporaryDirectory() as folder:
        origin = Path(folder) / "origin.db"
        write_oldest(f"sqlite:///{origin}")
        begin = time.monotonic()
        _migrate_copy(origin, Path(folder) / "measured")
        usual_s = time.monotonic() - begin
        for number in range(count):
            home = Path(folder) / str(number)
            path = _copied(origin, home)
            child = forked(open_and_close, f"sqlite:///{path}")
            time.sleep(dice.uniform(0, usual_s))
            os.kill(child, signal.SIGKILL)
            inside += exit_code(child) == -signal.SIGKILL
            wrong += _between(path)
            children = [forked(open_and_close, f"sqlite:///{path}") for _ in range(2)]
            wrong += [f"migration {number} ended with {code}" for code in map(exit_code, children) if code]
            wrong += _between(path, migrated=True)
            wrong += [f"left over: {left.name}" for left in home.glob(".*")]
    report("migrations_killed", [count], "kills", None, before_its_end=inside)
    report("faults_after_killed_migrations", [len(wrong)], "faults", 0, "lower", found=wrong[:5])


def write_oldest(url: str) -> None:
    """Write a database of the first schema with runs in it."""
    engine = create_engine(url)
    with write_transaction(engine) as connection:
        create_first_schema(connection)
    with write_transaction(engine) as connection:
        known = {column["name"] for column in inspect(connection).get_columns("trajectories")}
        for number in range(OLD_RUNS):
            steps = (Step(actor=Actor.USER, message="a " * 1000), Step(actor=Actor.AGENT, message="yes"))
            run = encode_run(Trajectory(task=Task(id=str(number), prompt="p"), steps=steps))
            columns = {name: value for name, value in run.columns.items() if name in known}
            columns |= dict.fromkeys(("created_at", "updated_at"), "2026-01-02T03:04:05.678901Z")
            marks = ", ".join(f":{name}" for name in columns)
            connection.execute(text(f"INSERT INTO trajectories ({', '.join(columns)}) VALUES ({marks})"), columns)
    engine.dispose()


def _copied(origin: Path, folder: Path) -> Path:
    folder.mkdir()
    return Path(shutil.copyfile(origin, folder / "quintain.db"))


def _migrate_copy(origin: Path, folder: Path) -> None:
    assert exit_code(forked(open_and_close, f"sqlite:///{_copied(origin, folder)}")) == 0


def open_and_close(url: str) -> None:
    """Migrate a database, as a server that starts does."""
    open_store(url).close()


def _between(path: Path, migrated: bool = False) -> list[str]:
    """Return what is wrong with a database whose migration was killed: it has the old or the new schema, and all runs."""
    with closing(sqlite3.connect(path)) as connection:
        (revision,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        (runs,) = connection.execute("SELECT count(*) FROM trajectories").fetchone()
    wrong = problems(path)
    wrong += [] if runs == OLD_RUNS else [f"{runs} of {OLD_RUNS} runs"]
    wrong += [] if revision in ({REVISIONS[-1]} if migrated else {REVISIONS[0], REVISIONS[-1]}) else [f"at {revision}"]
    has_backup = path.with_name(f"{path.name}.before-{REVISIONS[-1]}").exists()
    return wrong + (["migrated without a backup"] if revision == REVISIONS[-1] and not has_backup else [])
