"""A home that trials of faults share: real jobs, a real server over stdio, and one audit at the end of each trial."""

from __future__ import annotations

import dataclasses
import json
import os
import sqlite3
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from benchmarks.server import OURS, Client
from quintain.jobs.directory import JobDirectory, read_lines
from quintain.jobs.launch import JobOptions
from quintain.jobs.runner import JobRunner
from quintain.records.jobs.job import UNFINISHED, Job, JobStatus
from quintain.records.jobs.job_events import JobEvent
from quintain.records.trajectory import Actor, Step, Task, Trajectory
from quintain.settings import sqlite_url
from quintain.store.database.damage import problems
from quintain.store.database.paging import read_pages
from quintain.store.store import Store, open_store

SECRET = "quintain-canary-7f3a91"
"""In the environment of every process of a trial; a file of the home that has it is a leak."""

COUNTED = frozenset({"selftest", "train"})
"""Kinds of jobs that report each step once."""


class FaultHome:
    """One home, with a store and a runner of this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.options = JobOptions(
            jobs_dir=folder / "jobs", slots=4, max_attempts=50, auto_resume=True, grace_s=2.0, light_kinds=frozenset()
        )
        self.options.jobs_dir.mkdir(parents=True, exist_ok=True)
        self.url = sqlite_url(folder / "quintain.db")
        self.store: Store = open_store(self.url)
        self.runner = self.runner_with()
        self.seen: dict[str, list[JobStatus]] = {}
        self.faults: list[str] = []
        """What an audit found wrong."""

    def runner_with(self, **changes: Any) -> JobRunner:
        """Return another server's runner, with other options."""
        return JobRunner(self.store, dataclasses.replace(self.options, **changes), lambda: datetime.now(UTC))

    def directory(self, job_id: str) -> JobDirectory:
        """Return the folder of a job."""
        return JobDirectory(self.options.jobs_dir / job_id)

    def server(self) -> Client:
        """Start the shipped server on this home and list its tools."""
        client = Client(OURS, self.folder)
        client.list_tools()
        return client

    def look(self, reconcile: bool = True) -> None:
        """Reconcile as a server does, and note the states of the jobs for the audit."""
        if reconcile:
            self.runner.reconcile()
        found = self.store.jobs.states()
        left = [job_id for job_id, states in self.seen.items() if states[-1] in UNFINISHED and job_id not in found]
        for job_id, state in (found | self.store.jobs.states(left)).items():
            states = self.seen.setdefault(job_id, [])
            if not states or state.status != states[-1]:
                states.append(JobStatus(state.status))

    def jobs(self) -> list[Job]:
        """Return all jobs."""
        return list(read_pages(self.store.jobs.page))

    def until(self, condition: Callable[[], object], limit_s: float = 120.0) -> bool:
        """Reconcile until the condition is true. Return False if it was not in time."""
        deadline = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > deadline:
                return False
            self.look()
            time.sleep(0.05)
        return True

    def until_step(self, step: int, *job_ids: str) -> bool:
        """Wait until each of the jobs has reported a step. Return False if one did not in time."""
        return self.until(lambda: all(self.store.jobs.get(job_id).step >= step for job_id in job_ids))

    def until_ended(self, job_id: str, limit_s: float = 300.0) -> bool:
        """Wait until a job has ended. Return False if it did not in time."""
        return self.until(lambda: self.store.jobs.get(job_id).status not in UNFINISHED, limit_s)

    def finished(self, limit_s: float = 120.0) -> bool:
        """Wait until no job is unfinished."""
        return self.until(lambda: not self.store.jobs.unfinished(), limit_s)

    def worker(self, job_id: str) -> int | None:
        """Return the process id of a job's newest worker, or None."""
        record = self.directory(job_id).shim()
        return record.worker if record else None

    def processes(self) -> list[psutil.Process]:
        """Return every living process that works on this home."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.pid != os.getpid() and any(str(self.folder) in part for part in process.cmdline()):
                    found.append(process)
        return [process for process in found if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]

    def audit(self, expected: JobStatus | None = JobStatus.SUCCEEDED) -> list[str]:
        """Return what is wrong with this home now that its jobs have ended; empty if nothing is.

        Args:
            expected: State of every job. None: any final state.
        """
        self.look()
        wrong = list(self._processes_left())
        wrong += [f"integrity: {problem}" for problem in self._integrity()]
        for job in self.jobs():
            wrong += [f"{job.id}: {text}" for text in self._job_faults(job, expected)]
        half = [path for path in self.folder.rglob(".*") if path.is_file()]
        wrong += [f"left over: {path.relative_to(self.folder)}" for path in half]
        for path in self.folder.rglob("*"):
            if path.is_file() and path.stat().st_size < 50_000_000 and SECRET.encode() in path.read_bytes():
                wrong.append(f"secret in {path.relative_to(self.folder)}")
        self.faults += wrong
        return wrong

    def close(self) -> None:
        """Close the store and end what is left."""
        self.store.close()
        for process in self.processes():
            with suppress(psutil.Error):
                process.kill()

    def _processes_left(self) -> Iterator[str]:
        deadline = time.monotonic() + 10
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        for process in left:
            with suppress(psutil.Error):
                yield f"process left: {' '.join(process.cmdline())[:120]}"
        children = psutil.Process().children()
        yield from (f"zombie left: {child.pid}" for child in children if child.status() == psutil.STATUS_ZOMBIE)

    def _integrity(self) -> list[str]:
        with closing(sqlite3.connect(self.folder / "quintain.db")) as connection:
            orphans = connection.execute(
                "SELECT count(*) FROM job_events WHERE job_id NOT IN (SELECT id FROM jobs)"
            ).fetchone()[0]
        return problems(self.folder / "quintain.db") + ([f"{orphans} events without a job"] if orphans else [])

    def _job_faults(self, job: Job, expected: JobStatus | None) -> Iterator[str]:
        if expected is not None and job.status is not expected:
            yield f"ended as {job.status}: {job.error}"
        states = self.seen.get(job.id, [])
        for before, after in pairwise(states):
            if before not in UNFINISHED:  # looks are too seldom to see every state before the end
                yield f"went from {before} to {after}"
        progress = self.store.jobs.events(job.id, type="progress")
        stored = [event.step for event in progress]
        if len({(event.step, event.attempt) for event in progress}) != len(set(stored)):
            yield f"a step is stored for two attempts: {stored}"
        first = (
            stored[0] if job.resumed_from and stored else 1
        )  # a resumed job begins after the checkpoint of the other
        is_missing = job.status is JobStatus.SUCCEEDED and stored != list(range(first or 1, job.step + 1))
        if is_missing and job.kind in COUNTED:
            yield f"steps are missing or repeated: {stored}"
        lines = read_lines(self.directory(job.id).events, 0).lines
        events = [JobEvent.model_validate_json(line) for line in lines]
        if overlapping := _overlap(events):
            yield overlapping


def _overlap(events: list[JobEvent]) -> str | None:
    """Return that two attempts of a job wrote at the same time, or None: attempts follow one another in the file."""
    attempts = [event.attempt for event in events]
    return None if attempts == sorted(attempts) else f"attempts overlap: {attempts}"


@contextmanager
def fault_home(parent: Path | None = None) -> Iterator[FaultHome]:
    """Make a home in a new folder, and remove it."""
    os.environ["QUINTAIN_TEST_CANARY"] = SECRET
    with tempfile.TemporaryDirectory(dir=parent, ignore_cleanup_errors=True) as folder:
        home = FaultHome(Path(folder) / "home")
        try:
            yield home
        finally:
            home.close()


@contextmanager
def environment(**changes: str) -> Iterator[None]:
    """Give processes that start meanwhile these variables."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool over stdio.

    Raises:
        OSError, ValueError: The server has died.
        RuntimeError: The tool answers an error.
    """
    answer = client.ask("tools/call", {"name": tool, "arguments": arguments})
    if answer.get("isError"):
        raise RuntimeError(answer["content"][0]["text"])
    found: dict[str, Any] = answer.get("structuredContent") or json.loads(answer["content"][0]["text"])
    return found


def record_by(client: Client, name: str, task: str = "") -> str:
    """Store a run that begins with these words by a server. Return its id."""
    steps = [{"actor": "user", "message": name}, {"actor": "agent", "message": "yes"}]
    answer = call(client, "record_trajectory", trajectory={"task": {"id": task or name}, "steps": steps})
    return str(answer["trajectory_id"])


def record(store: Store, name: str) -> str:
    """Store a run of a task of this name. Return its id."""
    steps = (Step(actor=Actor.USER, message=name), Step(actor=Actor.AGENT, message="yes"))
    (stored,) = store.trajectories.add_many(
        [Trajectory(task=Task(id=name, prompt=name), steps=steps)], datetime.now(UTC)
    )
    return stored.id


def forked(function: Callable[..., object], *arguments: object) -> int:
    """Call a function in a copy of this process. Return the process id; it exits with 0, or with 1 after an exception."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        function(*arguments)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def exit_code(child: int) -> int:
    """Wait for a process. Return its exit code, or the negative signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def wait_for(path: Path, limit_s: float = 60.0) -> None:
    """Wait until a file exists.

    Raises:
        TimeoutError: It did not appear in time.
    """
    deadline = time.monotonic() + limit_s
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"expected {path.name} within {limit_s} s, got none")
        time.sleep(0.002)
