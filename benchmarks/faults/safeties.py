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

import psutil
import sqlalchemy
from sqlalchemy import Engine

from benchmarks.faults.files import DAMAGES, TrialReporter, one_thread, require_killed, train_starter
from benchmarks.faults.home import FaultHome, environment, exit_code, fault_home, forked, record_by, wait_for
from benchmarks.figures import report, say
from quintain.jobs import processes
from quintain.jobs.directory import JobDirectory, write_atomically
from quintain.records.jobs.job import JobStatus, SelftestSpec
from quintain.store import job_spans
from quintain.store import jobs as stored_jobs
from quintain.store.database.engine import create_engine
from quintain.store.jobs import Jobs

ROUNDS = 5
SLOW = SelftestSpec(steps=20, step_s=0.05)
KEY = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
"""Has the form of a key, and opens nothing."""


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


def _equal_jobs(safe: bool) -> int:
    """Ask for one job twice. Without the unique index of unfinished requests, two are begun."""
    with fault_home() as home:
        if not safe:
            with closing(sqlite3.connect(home.folder / "quintain.db")) as database:
                database.execute("DROP INDEX uq_jobs_request_key_unfinished")
        for _ in range(2):
            home.runner.start(SLOW, request_key="same")
        home.finished()
        return len(home.jobs()) - 1


def _full_slots(safe: bool) -> int:
    """Two jobs look startable to a server with one slot. Without the limit in the transaction of a start, both run."""
    with fault_home() as home:
        waiting, one_slot = home.runner_with(slots=0), home.runner_with(slots=1)
        found = [waiting.start(SLOW, request_key=str(number)).job for number in range(2)]
        with (
            _patched(Jobs, "startable", lambda *_: found),
            _patched(stored_jobs, "_has_slot", stored_jobs._has_slot if safe else lambda *_: True),
        ):
            one_slot.reconcile()
            running = len(home.store.jobs.running())
        home.finished()
        return running - 1


def _kill_attempt(home: FaultHome, job_id: str) -> None:
    """Kill a job's supervisor, so that this process alone can look after it, and wait for the first step of the next attempt."""
    record = home.directory(job_id).shim()
    assert record is not None
    os.kill(record.shim, signal.SIGKILL)
    home.until(lambda: home.store.jobs.events(job_id, type="progress", after=(2, 0)))


def _orphans(safe: bool) -> int:
    """A worker dies too soon to end its children. Without the search for them, they stay."""
    with fault_home() as home:
        job = home.runner.start(SLOW.model_copy(update={"children": 2})).job
        home.until_step(2, job.id)
        worker = home.worker(job.id)
        assert worker is not None
        children = psutil.Process(worker).children()
        os.kill(worker, signal.SIGSTOP)
        with _patched(processes, "kill_orphans", processes.kill_orphans if safe else lambda *_: None):
            _kill_attempt(home, job.id)
            home.finished()
        return len(psutil.wait_procs(children, timeout=1)[1])


def _half_files(safe: bool) -> int:
    """An attempt leaves a half-written file. Without the sweep before the next attempt, that one has it too."""
    with fault_home() as home:
        job = home.runner.start(SLOW).job
        home.until_step(2, job.id)
        left = home.directory(job.id).checkpoints / ".machine.json.123"
        left.touch()
        with _patched(JobDirectory, "sweep", JobDirectory.sweep if safe else lambda _: None):
            _kill_attempt(home, job.id)
        is_left = left.exists()
        home.finished()
        return int(is_left)


def _repeated_steps(safe: bool) -> int:
    """A second attempt repeats steps that no checkpoint has. Without the removal of the first's, they are stored twice."""
    with fault_home() as home:
        job = home.runner.start(SLOW.model_copy(update={"checkpoint_every_steps": 1000})).job
        home.until_step(3, job.id)
        with _patched(job_spans, "_delete_repeated", job_spans._delete_repeated if safe else lambda *_: None):
            _kill_attempt(home, job.id)
        home.finished()
        steps = [event.step for event in home.store.jobs.events(job.id, type="progress")]
        return len(steps) - len(set(steps))


def _damaged_checkpoint(safe: bool) -> int:
    """One bit of the newest checkpoint is another. Without its checksums, a training goes on from it."""
    from quintain.trainers.loop import checkpoints

    with one_thread() as folder:
        require_killed(forked(train_starter, folder / "job", 4, TrialReporter(die_after=4)))
        newest = max((folder / "job/job/checkpoints").glob("step-*"))
        DAMAGES["flip"](newest / "model.safetensors")
        with _patched(checkpoints, "_fault", checkpoints._fault if safe else lambda _: None):
            return exit_code(forked(_require_resumed_at, folder / "job", 3))


def _require_resumed_at(folder: Path, step: int) -> None:
    if (first := train_starter(folder, 4).steps[0]) != step:
        raise AssertionError(f"expected step {step}, got {first}")


def _kept_keys(safe: bool) -> int:
    """Record a run with a key in it. Without the redaction, a file of the home has the key."""
    with environment(QUINTAIN_REDACT="secrets" if safe else "off"), fault_home() as home:
        server = home.server()
        record_by(server, f"The key is {KEY}.", "key")
        server.close()
        files = [path for path in home.folder.rglob("*") if path.is_file()]
        return sum(KEY.encode() in path.read_bytes() for path in files)


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
    "one unfinished job of a request": _equal_jobs,
    "slots in the transaction of a start": _full_slots,
    "search for what a worker left behind": _orphans,
    "sweep before the next attempt": _half_files,
    "one row a step": _repeated_steps,
    "checksums of a checkpoint": _damaged_checkpoint,
    "redaction before a run is stored": _kept_keys,
}
