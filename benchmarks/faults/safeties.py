"""Each safety switched off once: its trial has to show the fault, or it could not fail."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy
from sqlalchemy import Engine

from benchmarks.faults.home import exit_code, fault_home, forked, wait_for
from benchmarks.figures import report, say
from quintain.jobs import processes
from quintain.jobs.directory import write_atomically
from quintain.records.jobs.job import JobStatus, SelftestSpec
from quintain.store.database.engine import create_engine
from quintain.store.jobs import Jobs

ROUNDS = 5
SLOW = SelftestSpec(steps=20, step_s=0.05)


def safeties(count: int) -> None:
    """Run each trial with its safety and without it, so many times."""
    kept, shown = 0, 0
    for name, trial in TRIALS.items():
        for _ in range(count):
            faults = trial(True), trial(False)
            say(f"  {name}: {faults[0]} faults with it, {faults[1]} without")
            kept += faults[0] == 0
            shown += faults[1] > 0
    report("safeties_that_prevent_their_fault", [kept], "trials", count * len(TRIALS))
    report("safeties_seen_to_fail_without_it", [shown], "trials", count * len(TRIALS), trials=list(TRIALS))


def _lost_updates(safe: bool) -> int:
    """Two processes read a counter and write it back. Without `create_engine`, sqlite3 begins no transaction for the read."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "counter.db"
        with closing(sqlite3.connect(path)) as database:
            database.executescript("CREATE TABLE counter (n INTEGER); INSERT INTO counter VALUES (0);")
        create: Callable[[str], Engine] = create_engine if safe else sqlalchemy.create_engine
        children = [forked(_increment, create, path, me) for me in range(2)]
        assert [exit_code(child) for child in children] == [0, 0]
        with closing(sqlite3.connect(path)) as database:
            return 2 * ROUNDS - int(database.execute("SELECT n FROM counter").fetchone()[0])


def _increment(create: Callable[[str], Engine], path: Path, me: int) -> None:
    engine = create(f"sqlite:///{path}")
    for number in range(ROUNDS):
        with engine.begin() as connection:
            n = connection.exec_driver_sql("SELECT n FROM counter").scalar_one()
            path.with_name(f"read-{number}-{me}").touch()
            _wait_at_most(path.with_name(f"read-{number}-{1 - me}"), 0.2)  # with a lock, the other waits for this one
            connection.exec_driver_sql("UPDATE counter SET n = ?", (n + 1,))
        path.with_name(f"done-{number}-{me}").touch()
        wait_for(path.with_name(f"done-{number}-{1 - me}"))
    engine.dispose()


def _wait_at_most(path: Path, seconds: float) -> None:
    try:
        wait_for(path, seconds)
    except TimeoutError:
        return


def _half_written(safe: bool) -> int:
    """Kill a process that writes a file again and again. Without the rename, some reader finds half of it."""
    with TemporaryDirectory() as folder:
        path, size, broken = Path(folder) / "state.json", 4_000_000, 0
        for _ in range(ROUNDS):
            child = forked(_write_for_ever, write_atomically if safe else _write_in_place, path, size)
            wait_for(path)
            deadline = time.monotonic() + 0.1
            while time.monotonic() < deadline:
                broken += len(path.read_bytes()) != size
            os.kill(child, signal.SIGKILL)
            exit_code(child)
            broken += len(path.read_bytes()) != size
        return broken


def _write_in_place(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _write_for_ever(write: Callable[[Path, bytes], None], path: Path, size: int) -> None:
    while True:
        write(path, b"x" * size)


def _false_deaths(safe: bool) -> int:
    """Look after a living job. Without its lock, it looks dead and is begun again."""
    with fault_home() as home:
        job = home.runner.start(SLOW).job
        home.until_step(2, job.id)
        with _patched(processes, "try_lock", processes.try_lock if safe else _no_lock):
            home.runner.reconcile()
        home.finished()
        return home.store.jobs.get(job.id).attempt - 1


def _no_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def _stale_writes(safe: bool) -> int:
    """A server that was suspended ends attempt 1 while attempt 2 runs. Without the guard, it ends the job."""
    with fault_home() as home:
        job = home.runner.start(SLOW).job
        home.until_step(2, job.id)
        os.kill(home.worker(job.id) or 0, signal.SIGKILL)
        home.until(lambda: home.store.jobs.get(job.id).attempt == 2)
        with _patched(Jobs, "_transition", Jobs._transition if safe else _unguarded):
            home.store.jobs.finish(job.id, 1, JobStatus.FAILED, datetime.now(UTC))
        overwritten = home.store.jobs.get(job.id).status is JobStatus.FAILED
        home.finished()
        return int(overwritten)


_guarded = Jobs._transition


def _unguarded(own: Jobs, connection: Any, job_id: str, attempt: int, states: Any, changes: Any) -> bool:
    (newest,) = connection.exec_driver_sql("SELECT attempt FROM jobs WHERE id = ?", (job_id,)).one()
    return _guarded(own, connection, job_id, newest, states, changes)


@contextmanager
def _patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = vars(owner)[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


TRIALS = {
    "transactions that lock before they read": _lost_updates,
    "files that appear by rename": _half_written,
    "lock of a living job": _false_deaths,
    "attempt number in every write": _stale_writes,
}
