"""Operations on jobs: start, cancel, resume, reconcile, read the log."""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from quintain.errors import Conflict
from quintain.jobs import processes
from quintain.jobs.directory import SPEC, JobDirectory
from quintain.jobs.home_claim import folder_fault
from quintain.jobs.launch import JobOptions, known_attempt, read_launch
from quintain.jobs.reconciler import Reconciler
from quintain.next_step import Hint, call
from quintain.records.jobs.job import Job, JobSpec, JobStatus, TrainSpec
from quintain.store.jobs import InsertedJob, JobState
from quintain.store.store import Store

__all__ = ["JobOptions", "JobRunner", "JobState"]


RECENT_S = 1.0
"""Age of a pass that a start trusts to have found the ended jobs. A server makes one sooner, and an ended job's shim too."""

START_WAIT_S = 0.1
"""Seconds that a start waits while another process reconciles, which then finds its note."""

ReconcileStep = Callable[[], set[str]]


class Queue(NamedTuple):
    """Jobs that need a slot."""

    slots: int
    """Number of them that may run at once."""
    running: list[Job]
    queued: list[str]
    """Ids in the order of their starts."""


class _Pass(NamedTuple):
    """A complete pass over the jobs."""

    changes: int
    """Changes by this runner before it began."""
    ended: float
    """Monotonic time of its end."""


class JobRunner:
    """The jobs of one home. Any number of runners in any number of processes are equivalent."""

    def __init__(self, store: Store, options: JobOptions, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._options = options
        self._clock = clock
        self._reconciler = Reconciler(store, options, clock)
        self._is_viewer = folder_fault(options.jobs_dir, self.home) is not None
        """Whether this user may not write the folder, whose owner looks after its jobs."""
        self._changes = 0
        """Number of starts, cancels and resumes by this runner."""
        self._newest_pass = _Pass(changes=0, ended=float("-inf"))

    @property
    def home(self) -> str | None:
        """Id of the home whose jobs this process starts and ends; None if the home is read-only."""
        return self._reconciler.home

    def start(
        self,
        spec: JobSpec,
        *,
        request_key: str | None = None,
        priority: int = 0,
        resumed_from: str | None = None,
        warnings: Sequence[str] = (),
    ) -> InsertedJob:
        """Start a job, or queue it if no slot is free. The job is stored first.

        The request key identifies equal requests among unfinished jobs; by default it is the hash of the spec. Higher priorities start
        earlier. `resumed_from` is an ended job with whose checkpoints the new one starts. The job keeps the `warnings` of its start.
        """
        self._reconciler.require_launchable(spec)
        now = self._clock()
        job = Job(
            id=f"job-{uuid.uuid4().hex[:10]}",
            kind=spec.kind,
            status=JobStatus.QUEUED,
            spec=spec,
            request_key=request_key or hashlib.sha256(SPEC.dump_json(spec)).hexdigest()[:32],
            priority=priority,
            max_attempts=self._options.max_attempts,
            resumed_from=resumed_from,
            warnings=tuple(map(str, warnings)),
            home=self.home,
            created_at=now,
            updated_at=now,
        )
        job, deduplicated = self._store.jobs.insert(job)
        with self._counting_change():
            return InsertedJob(self._dispatch(job), deduplicated)

    def cancel(self, job_id: str) -> Job:
        """Cancel a job. A queued job ends at once; an ended job is unchanged."""
        with self._counting_change():
            job = self._store.jobs.request_cancel(job_id, self._clock())
            directory = self._directory(job_id)
            if job.status is JobStatus.RUNNING and directory.path.exists():
                directory.request_cancel()
            return job

    def put_first(self, job_id: str) -> Job:
        """Let a queued job start before the others that wait.

        Raises:
            Conflict: It is not queued.
        """
        return self._store.jobs.put_first(job_id, self._clock())

    def resume(self, job_id: str, spec: JobSpec | None = None) -> Job:
        """Continue a job: an interrupted one under its id, a failed or cancelled one, or with another spec, as a new job.

        Raises:
            Conflict: The job is unfinished, or has succeeded, or its checkpoints are in another home.
        """
        job = self._store.jobs.get(job_id)
        if job.status is JobStatus.INTERRUPTED and spec is None:
            with self._counting_change():
                return self._dispatch(self._store.jobs.requeue(job_id, self._clock()))
        if job.status in {JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.INTERRUPTED}:
            if self.is_elsewhere(job):
                raise Conflict(
                    f"expected a job of this home, got {job_id} of home {job.home}, which has its checkpoints; resume it by a "
                    "server of that home",
                    code="other_home",
                )
            spec = spec or job.spec
            return self.start(spec, request_key=job.request_key, priority=job.priority, resumed_from=job_id).job
        status = "which succeeded" if job.status is JobStatus.SUCCEEDED else f"which is {job.status}"
        remedy = Hint("see ", call("get_job", job_id=job_id))
        if job.status is JobStatus.SUCCEEDED and isinstance(done := job.spec, TrainSpec):
            source = {"dataset_id": done.dataset_id, "environment": done.environment}
            further = call("start_training", method=done.method, model=job_id, **source)
            remedy = Hint("train its agent further with ", further)
        raise Conflict(Hint(f"expected a failed, cancelled or interrupted job, got {job_id}, {status}; ", remedy))

    def reconcile(self, wait_s: float = 0.0) -> set[str]:
        """Ingest the files of all jobs, finish or retry dead ones, start queued ones; index the texts of new runs.

        It waits `wait_s` seconds while another process reconciles, and returns the ids of the jobs that changed.
        """
        return self._pass(self._reconciler.index_texts, wait_s=wait_s)

    def _pass(self, *further: ReconcileStep, wait_s: float = 0.0) -> set[str]:
        work, changes = self._reconciler, self._changes
        steps = (work.dispatch, work.reconcile_running, work.dispatch_after_ends, *further)
        changed, is_leader = self._run_elected(steps, wait_s=wait_s)
        if is_leader:
            self._newest_pass = _Pass(changes, time.monotonic())
        elif not self._is_viewer and folder_fault(self._options.jobs_dir, self.home):
            work.has_folder()  # nobody can lead: readers are told
        return changed

    def refresh(self, within_s: float) -> None:
        """Reconcile for a reader, unless a pass of this runner has ended within these seconds and since its last change.

        Another runner's pass does not count: its clock and its database may be others. A reader does not wait for the texts of
        new runs: after a large import, indexing takes a fifth of a second of each pass.
        """
        newest = self._newest_pass
        if newest.changes != self._changes or time.monotonic() - newest.ended > within_s:
            self._pass()

    def states(self, job_ids: Iterable[str]) -> dict[str, JobState]:
        """Return the state of each of these jobs that exists, whichever process stored it."""
        return self._store.jobs.states(job_ids)

    @property
    def is_idle(self) -> bool:
        """Whether the newest pass of this runner left no job unfinished, and it has started none since."""
        return self._reconciler.is_idle and self._newest_pass.changes == self._changes

    def trouble(self, job_id: str) -> str | None:
        """Return what keeps a job's state from being stored, or its next attempt from starting; None if nothing does."""
        return self._reconciler.trouble(job_id)

    def next_start_s(self) -> float | None:
        """Return the seconds until the earliest attempt that the last `reconcile` let wait; None without one."""
        return self._reconciler.next_start_s()

    def queue(self) -> Queue:
        """Return the jobs that hold a slot, and those that wait for one."""
        return Queue(self._options.slots, *self._store.jobs.queue(self._options.light_kinds, self.home))

    def is_suspended(self, job_id: str) -> bool:
        """Whether a process of a running job, or its supervisor, is stopped by a signal.

        False on another machine and in a folder that this user may not read: unknown.
        """
        directory = self._directory(job_id)
        with suppress(OSError):
            shim = directory.shim()
            launch = read_launch(directory, shim.attempt) if shim else None
            if launch and (launch.lock_fd is None or not processes.is_this_machine(launch.machine)):
                return False
            return shim is not None and processes.is_suspended(shim.shim)
        return False

    def launcher_queue(self, job: Job) -> str | None:
        """Return the launcher on other machines that has not begun a running job's attempt; None where it has begun."""
        directory = self._directory(job.id)
        with suppress(OSError):
            if job.status is not JobStatus.RUNNING or directory.has_begun(job.attempt):
                return None
            launch = read_launch(directory, job.attempt)
            return launch.launcher if launch is not None and launch.lock_fd is None else None
        return None

    def log_tail(self, job_id: str, lines: int = 50) -> str:
        """Return the last lines that a job's worker wrote, or else those of its launcher."""
        job, directory = self._store.jobs.get(job_id), self._directory(job_id)
        if self.is_elsewhere(job):
            return f"[the log is in home {job.home}; read it by a server of that home]"
        launch = read_launch(directory, job.attempt)
        if not (tail := directory.log_tail(lines)) and launch:
            attempt = known_attempt(directory, job, launch)
            tail = "\n".join(self._reconciler.launcher(launch.launcher).log(attempt).splitlines()[-lines:])
        return tail

    def is_elsewhere(self, job: Job) -> bool:
        """Whether a job belongs to another home, which alone has its folder."""
        return job.home is not None and job.home != self.home and not self._directory(job.id).path.exists()

    def directory(self, job_id: str) -> Path:
        """Return the folder of a job."""
        return self._directory(self._store.jobs.get(job_id).id).path

    def _directory(self, job_id: str) -> JobDirectory:
        return JobDirectory(self._options.jobs_dir / job_id)

    @contextmanager
    def _counting_change(self) -> Iterator[None]:
        """Count a change at its end, so that no pass that began before counts for the readers after it."""
        try:
            yield
        finally:
            self._changes += 1

    def _dispatch(self, job: Job) -> Job:
        """Start a queued job at once if a slot is free. Else look for a slot of an ended job, at most once a second.

        A slot that becomes free after the look belongs to a job whose end another process finds, which then dispatches.
        """
        if job.status is JobStatus.QUEUED and self._reconciler.has_startable():
            self._run_elected((self._reconciler.dispatch,), wait_s=START_WAIT_S, leave_note=True)
            job = self._store.jobs.get(job.id)
        if job.status is JobStatus.QUEUED and time.monotonic() - self._newest_pass.ended > RECENT_S:
            self.reconcile()
            job = self._store.jobs.get(job.id)
        return job

    def _run_elected(
        self, steps: Sequence[ReconcileStep], *, wait_s: float, leave_note: bool = False
    ) -> tuple[set[str], bool]:
        """Run steps under the leader lock. With `leave_note`, leave a note for another process that holds it.

        The holder checks for the note after releasing the lock and then starts again. So a job inserted during another
        process's pass is started, although the inserting process does not wait.

        Returns:
            Ids of the jobs that changed, and whether the steps ran here.
        """
        lock = self._options.jobs_dir / "reconcile.lock"
        note = self._options.jobs_dir / "reconcile.again"
        changed: set[str] = set()
        has_run = False
        while True:
            with processes.leader_lock(lock, wait_s) as is_leader:
                if is_leader:
                    has_run = True
                    note.unlink(missing_ok=True)
                    for step in steps:
                        changed |= step()
            wait_s = 0.0
            if is_leader and not note.exists():
                return changed, has_run
            if not is_leader:
                if not leave_note:
                    return changed, has_run
                note.touch()
                leave_note = False  # try again: the holder may have checked just before the note
