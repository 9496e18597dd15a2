"""What the rest of the program does with jobs: start, cancel, resume, reconcile, read the log."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from quintain.errors import Conflict
from quintain.jobs import processes, reconciler
from quintain.jobs.directory import SPEC, JobDirectory
from quintain.jobs.launch import JobOptions
from quintain.records.job import Job, JobSpec, JobStatus
from quintain.store.store import Store

__all__ = ["JobOptions", "JobRunner", "Started"]


Duty = Callable[[Store, JobOptions, Callable[[], datetime]], set[str]]


class Started(NamedTuple):
    """A job, and whether the same request was already under way."""

    job: Job
    deduplicated: bool


class JobRunner:
    """The jobs of one home. It holds no state: any number of runners, in any number of processes, act alike."""

    def __init__(self, store: Store, options: JobOptions, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._options = options
        self._clock = clock

    def start(
        self,
        spec: JobSpec,
        *,
        request_key: str | None = None,
        priority: int = 0,
        resumed_from: str | None = None,
    ) -> Started:
        """Start a job, or queue it where no slot is free. It is stored before anything runs.

        Args:
            spec: What to do.
            request_key: The same key among unfinished jobs is the same job; default: the hash of the spec.
            priority: Higher starts earlier.
            resumed_from: Id of an ended job whose checkpoints the new one begins with.
        """
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
            created_at=now,
            updated_at=now,
        )
        job, deduplicated = self._store.jobs.insert(job)
        return Started(self._set_going(job), deduplicated)

    def cancel(self, job_id: str) -> Job:
        """Ask a job to stop; one that waits ends at once, one that has ended stays as it is."""
        job = self._store.jobs.request_cancel(job_id, self._clock())
        if job.status is JobStatus.RUNNING:
            self._directory(job_id).request_cancel()
        return job

    def resume(self, job_id: str) -> Job:
        """Continue a job: an interrupted one under its id, a failed or cancelled one as a new job.

        Raises:
            Conflict: it is under way, or has succeeded.
        """
        job = self._store.jobs.get(job_id)
        if job.status is JobStatus.INTERRUPTED:
            return self._set_going(self._store.jobs.requeue(job_id, self._clock()))
        if job.status in {JobStatus.FAILED, JobStatus.CANCELLED}:
            return self.start(job.spec, request_key=job.request_key, priority=job.priority, resumed_from=job_id).job
        if job.status is JobStatus.SUCCEEDED:
            raise Conflict(f"job {job_id} has succeeded, there is nothing to resume; look at its result with get_job")
        raise Conflict(f"job {job_id} is {job.status} already; follow it with get_job")

    def reconcile(self, wait_s: float = 0.0) -> set[str]:
        """Take in what the jobs wrote, end and restart those that died, start those that wait.

        Args:
            wait_s: How long to wait while another process does the same.

        Returns:
            The ids of the jobs that changed.
        """
        return self._elected((reconciler.dispatch, reconciler.tend_all, reconciler.dispatch), wait_s=wait_s)

    def log_tail(self, job_id: str, lines: int = 50) -> str:
        """The last lines that a job's worker wrote."""
        return self._directory(self._store.jobs.get(job_id).id).log_tail(lines)

    def directory(self, job_id: str) -> Path:
        """The folder of a job."""
        return self._directory(self._store.jobs.get(job_id).id).path

    def _directory(self, job_id: str) -> JobDirectory:
        return JobDirectory(self._options.jobs_dir / job_id)

    def _set_going(self, job: Job) -> Job:
        """Start a queued job at once where a slot is free; a full pass only where it still waits."""
        if job.status is JobStatus.QUEUED:
            self._elected((reconciler.dispatch,), wait_s=0.1, insist=True)
            job = self._store.jobs.get(job.id)
        if job.status is JobStatus.QUEUED:
            self.reconcile()
            job = self._store.jobs.get(job.id)
        return job

    def _elected(self, duties: Sequence[Duty], *, wait_s: float, insist: bool = False) -> set[str]:
        """Carry out duties under the election lock; where another process holds it, `insist` leaves a note.

        Whoever holds the lock looks for the note after letting go, and then begins again: so a job that was inserted during
        another process's pass is started, though the one that inserted it does not wait.
        """
        lock = self._options.jobs_dir / "reconcile.lock"
        note = self._options.jobs_dir / "reconcile.again"
        changed: set[str] = set()
        while True:
            with processes.elected(lock, wait_s) as chosen:
                if chosen:
                    note.unlink(missing_ok=True)
                    for duty in duties:
                        changed |= duty(self._store, self._options, self._clock)
            wait_s = 0.0
            if chosen and not note.exists():
                return changed
            if not chosen:
                if not insist:
                    return changed
                note.touch()
                insist = False  # try once more: the holder may have looked just before the note
