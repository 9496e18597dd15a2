"""A home with real jobs: real processes and signals, audited when the test is over."""

from __future__ import annotations

import dataclasses
import os
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest
from benchmarks.faults.starter import starter
from benchmarks.postgres_server import VARIABLE, new_database

from quintain.jobs.directory import JobDirectory, read_lines
from quintain.jobs.runner import JobOptions, JobRunner
from quintain.records.jobs.job import UNFINISHED, Job, JobSpec, JobStatus
from quintain.records.jobs.job_events import JobEvent
from quintain.store.store import open_store


def now() -> datetime:
    return datetime.now(UTC)


class JobHome:
    """One home with its store and a runner, and what tests do with them."""

    def __init__(self, home: Path, url: str) -> None:
        self.home = home
        self.before = set(psutil.Process().children())
        """Children of other tests' making, such as the resource tracker of multiprocessing, or a cluster."""
        self.options = JobOptions(
            jobs_dir=home / "jobs",
            slots=1,
            max_attempts=5,
            auto_resume=True,
            grace_s=10.0,
        )
        self.options.jobs_dir.mkdir()
        self.store = open_store(url)
        self.runner = self.runner_with()

    def runner_with(self, **changes: object) -> JobRunner:
        """Another server on the same home, with options of its own."""
        return JobRunner(self.store, dataclasses.replace(self.options, **changes), now)

    def directory(self, job_id: str) -> JobDirectory:
        return JobDirectory(self.options.jobs_dir / job_id)

    def starter(self, spec: JobSpec, key: str, gate: Path) -> subprocess.Popen[str]:
        """A process that waits for the gate, starts the job and reconciles until it has ended."""
        return starter(self.store.url, self.options, spec, key, gate)

    def until(self, condition: Callable[[], object], what: str, limit_s: float = 100.0) -> None:
        """Poll until the condition holds, ten times a second: to reconcile takes 5 ms, which all waiting tests would add up."""
        deadline = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < deadline, f"after {limit_s} s still not: {what}"
            time.sleep(0.1)

    def wait(self, job_id: str, status: JobStatus, *, reconcile: JobRunner | None = None) -> Job:
        """Wait until the job is in this state; with a runner as a server would, without one as nobody would."""

        def there() -> bool:
            if reconcile:
                reconcile.reconcile()
            job = self.store.jobs.get(job_id)
            assert job.status is status or job.status in UNFINISHED, f"{job_id} is {job.status}: {job.error}"
            return job.status is status

        self.until(there, f"{job_id} is {status}")
        return self.store.jobs.get(job_id)

    def wait_for_step(self, job_id: str, step: int, attempt: int | None = 1) -> int:
        """Wait until the worker of this (or any) attempt has written this step or a later one; return the worker's process id."""
        events = self.directory(job_id).events

        def reached() -> bool:
            lines, _ = read_lines(events, 0)
            written = (JobEvent.model_validate_json(line) for line in lines)
            return any(attempt in (event.attempt, None) and (event.step or 0) >= step for event in written)

        self.until(reached, f"step {step} of attempt {attempt or 'any'}")
        shim = self.directory(job_id).shim()
        return shim.worker

    def shim(self, job_id: str) -> int:
        """The process id of the job's shim."""
        shim = self.directory(job_id).shim()
        return shim.shim

    def processes(self) -> list[psutil.Process]:
        """Every process that works on this home: shims, workers, reconciles."""
        home, found = os.fsencode(self.home), []
        for pid in psutil.pids():
            with suppress(OSError, psutil.Error):
                if home in Path("/proc", str(pid), "cmdline").read_bytes():
                    found.append(psutil.Process(pid))
        return found

    def no_children(self) -> bool:
        """Reconciling collects what has ended; an earlier test's job may take a moment to."""
        self.runner.reconcile()
        return self.before.issuperset(psutil.Process().children())

    def audit(self) -> None:
        """Nothing is left over: no process, no zombie, no torn database, no half file, no unfinished job."""
        self.until(lambda: not self.processes(), "all processes have ended")
        self.until(self.no_children, "no child is left, no zombie either")
        assert [job.id for job in self.store.jobs.unfinished()] == []
        if self.store.engine.dialect.name == "sqlite":
            with closing(sqlite3.connect(self.home / "quintain.db")) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert [path.name for path in self.options.jobs_dir.glob("*/.*")] == []
        noise = [path.read_text() for path in self.options.jobs_dir.glob("*/reconcile.log")]
        assert [text for text in noise if text] == []


@pytest.fixture
def jobs(home: Path) -> Iterator[JobHome]:
    """A home, whose database is a new one of the PostgreSQL server in QUINTAIN_TEST_DATABASE if there is one."""
    server = os.environ.get(VARIABLE)
    with new_database(server) if server else nullcontext(f"sqlite:///{home / 'quintain.db'}") as url:
        yield from _jobs_of(JobHome(home, url))


def _jobs_of(job_home: JobHome) -> Iterator[JobHome]:
    try:
        yield job_home
        job_home.audit()
    finally:
        for process in job_home.processes():
            process.kill()
        job_home.store.close()
