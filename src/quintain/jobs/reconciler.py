"""Reconciliation of unfinished jobs: ingest their files, finish or retry dead jobs, start queued ones.

Any process with an open store may reconcile; a lock elects one at a time (JobRunner.reconcile). A job is alive while
its lock is held. The process that gets the lock knows that shim and worker are gone, and keeps it while deciding.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from quintain.jobs import processes
from quintain.jobs.directory import ExitRecord, JobDirectory
from quintain.jobs.ingestion import agent_of_job, ingest
from quintain.jobs.launch import JobOptions, start_attempt
from quintain.records.job import Job, JobError, JobResult, JobStatus
from quintain.records.job_events import JobEvent
from quintain.store.store import Store

logger = logging.getLogger(__name__)

HINT_LINES = 10
"""Log lines shown for a worker that ended without a result."""


class ExitStatus(NamedTuple):
    """End of a dead attempt. `status` is None if it was killed and may be retried."""

    status: JobStatus | None
    error: JobError | None = None
    result: JobResult | None = None


def reconcile_running(store: Store, options: JobOptions, clock: Callable[[], datetime]) -> set[str]:
    """Reconcile every running job. Return the ids of those that changed."""
    changed = set()
    for job in store.jobs.running():
        try:
            if _reconcile_job(store, options, job, clock):
                changed.add(job.id)
        except Exception:  # one broken directory must not stop the others
            logger.exception("job %s could not be reconciled", job.id)
    return changed


def dispatch(store: Store, options: JobOptions, clock: Callable[[], datetime]) -> set[str]:
    """Start queued jobs while slots are free. Return their ids."""
    started = set()
    for job in store.jobs.startable(options.slots, options.light_kinds):
        try:
            lock = processes.try_lock(JobDirectory(options.jobs_dir / job.id).lock)
            if lock is not None and start_attempt(store, options, job, lock, job.attempt + 1, clock):
                started.add(job.id)
        except Exception:  # one broken directory must not stop the others
            logger.exception("job %s could not be started", job.id)
    return started


def index_texts(store: Store, options: JobOptions, clock: Callable[[], datetime]) -> set[str]:
    """Index the texts of new runs for searches, a bounded amount in one pass. No job changes."""
    store.trajectories.index_new_texts()
    return set()


def _reconcile_job(store: Store, options: JobOptions, job: Job, clock: Callable[[], datetime]) -> bool:
    directory = JobDirectory(options.jobs_dir / job.id)
    lock = processes.try_lock(directory.lock)
    if lock is None:
        if job.cancel_requested:
            directory.request_cancel()  # repeated, because the requester may have died before this
        return ingest(store, job.id, directory, clock())
    try:
        begun = directory.has_begun(job.attempt)  # False if the starter died before its shim ran
        if begun and directory.exit(job.attempt) is None:
            processes.kill_orphans(job.id)
        if begun:
            directory.sweep()
        ingest(store, job.id, directory, clock())
        job = store.jobs.get(job.id)
        exit_status = _exit_status(store, job, directory, clock())
        if begun:
            exit_status = _apply_retry_limit(job, exit_status, options)
        if exit_status.status is not None:
            return store.jobs.finish(
                job.id, job.attempt, exit_status.status, clock(), error=exit_status.error, result=exit_status.result
            )
        attempt = job.attempt + begun
        inherited, lock = lock, None
        return start_attempt(store, options, job, inherited, attempt, clock)
    except OSError as error:
        return store.jobs.finish(job.id, job.attempt, JobStatus.INTERRUPTED, clock(), error=_directory_error(error))
    finally:
        if lock is not None:
            processes.unlock(lock)


def _exit_status(store: Store, job: Job, directory: JobDirectory, now: datetime) -> ExitStatus:
    """Return how the last attempt ended: by its own final event, or else by the shim's record."""
    last = {event.type: event for event in store.jobs.events(job.id) if event.attempt == job.attempt}
    exit_record = directory.exit(job.attempt)
    if "result" in last:
        result = JobResult.model_validate(last["result"].result or {})
        agent = agent_of_job(store, directory, now)
        return ExitStatus(JobStatus.SUCCEEDED, result=result.model_copy(update={"agent": agent or result.agent}))
    if "failed" in last:
        return ExitStatus(JobStatus.FAILED, error=_failure_error(last["failed"]))
    if job.cancel_requested or (exit_record and exit_record.cancelled):
        return ExitStatus(JobStatus.CANCELLED, error=_forced_error(exit_record))
    if exit_record and exit_record.returncode is not None and "cancelled" not in last:
        return ExitStatus(JobStatus.FAILED, error=_crash_error(exit_record.returncode, directory))
    return ExitStatus(None, error=_kill_error(exit_record, job))


def _apply_retry_limit(job: Job, exit_status: ExitStatus, options: JobOptions) -> ExitStatus:
    """Leave a killed attempt open for a retry, unless the operator or the attempt limit forbids it."""
    if exit_status.status is not None or (options.auto_resume and job.attempt < job.max_attempts):
        return exit_status
    return exit_status._replace(status=JobStatus.INTERRUPTED)


def _failure_error(event: JobEvent) -> JobError:
    return JobError(code=event.code or "crashed", message=event.message or "", hint=event.hint or "")


def _forced_error(exit_record: ExitRecord | None) -> JobError | None:
    if exit_record is None or not exit_record.forced:
        return None
    return JobError(
        code="forced",
        message="the worker did not stop within its grace time and was killed",
        hint="Resume the job to continue from its newest complete checkpoint.",
    )


def _crash_error(returncode: int, directory: JobDirectory) -> JobError:
    message = f"the worker ended with exit code {returncode} and without a result"
    return JobError(code="crashed", message=message, hint=f"Last lines of its log:\n{directory.log_tail(HINT_LINES)}")


def _directory_error(error: OSError) -> JobError:
    message = f"cannot read the directory of the ended job: {error}"
    return JobError(code="directory_unreadable", message=message, hint="Repair the directory, then resume the job.")


def _kill_error(exit_record: ExitRecord | None, job: Job) -> JobError:
    hint = "Resume the job to continue from its newest complete checkpoint."
    attempt = f"attempt {job.attempt} of {job.max_attempts}"
    if exit_record is None:
        message = f"{attempt} ended together with its supervisor: killed, or the machine restarted"
        return JobError(code="killed", message=message, hint=hint)
    if exit_record.signal is None:
        return JobError(code="stopped", message=f"{attempt} was stopped from outside", hint=hint)
    name = signal.Signals(exit_record.signal).name
    message = f"{attempt} was killed by {name}; its peak memory was {exit_record.peak_rss_mb:g} MB"
    if exit_record.signal == signal.SIGKILL:
        hint = f"The system may have run out of memory. {hint}"
    return JobError(code="killed", message=message, hint=hint)
