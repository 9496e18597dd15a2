"""One look at every unfinished job: take in what it wrote, end it, give it its next attempt, start those that wait.

Any process that has the store open may do this; a lock elects one at a time (JobRunner.reconcile). Whether a job lives is
asked of its lock alone: who gets it knows that shim and worker are gone, and keeps it while deciding.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from quintain.jobs import processes
from quintain.jobs.directory import ExitRecord, JobDirectory
from quintain.jobs.ingestion import ingest, made_agent
from quintain.jobs.launch import JobOptions, start_attempt
from quintain.records.job import Job, JobError, JobEvent, JobResult, JobStatus
from quintain.store.store import Store

logger = logging.getLogger(__name__)

HINT_LINES = 10
"""Lines of the log that explain a worker that ended without a word."""


class Verdict(NamedTuple):
    """How a dead attempt ended; `status` None: it was killed, and may get a next one."""

    status: JobStatus | None
    error: JobError | None = None
    result: JobResult | None = None


def tend_all(store: Store, options: JobOptions, clock: Callable[[], datetime]) -> set[str]:
    """Look after every running job; returns the ids of those that changed."""
    changed = set()
    for job in store.jobs.running():
        try:
            if _tend(store, options, job, clock):
                changed.add(job.id)
        except Exception:  # one broken directory may not stop the others
            logger.exception("job %s could not be reconciled", job.id)
    return changed


def dispatch(store: Store, options: JobOptions, clock: Callable[[], datetime]) -> set[str]:
    """Start queued jobs while slots are free; returns their ids."""
    started = set()
    for job in store.jobs.startable(options.slots, options.light_kinds):
        try:
            lock = processes.try_lock(JobDirectory(options.jobs_dir / job.id).lock)
            if lock is not None and start_attempt(store, options, job, lock, job.attempt + 1, clock):
                started.add(job.id)
        except Exception:  # one broken directory may not stop the others
            logger.exception("job %s could not be started", job.id)
    return started


def _tend(store: Store, options: JobOptions, job: Job, clock: Callable[[], datetime]) -> bool:
    directory = JobDirectory(options.jobs_dir / job.id)
    lock = processes.try_lock(directory.lock)
    if lock is None:
        if job.cancel_requested:
            directory.request_cancel()  # again: who asked may have died before this
        return ingest(store, job.id, directory, clock())
    try:
        begun = directory.has_begun(job.attempt)  # if not, its starter died before its shim ran: it is still to come
        if begun and directory.exit(job.attempt) is None:
            processes.kill_leftovers(job.id)
        if begun:
            directory.sweep()
        ingest(store, job.id, directory, clock())
        job = store.jobs.get(job.id)
        verdict = _judge(store, job, directory, clock())
        if begun:
            verdict = _conclude(job, verdict, options)
        if verdict.status is not None:
            return store.jobs.finish(
                job.id, job.attempt, verdict.status, clock(), error=verdict.error, result=verdict.result
            )
        attempt = job.attempt + begun
        given, lock = lock, None
        return start_attempt(store, options, job, given, attempt, clock)
    except OSError as error:
        return store.jobs.finish(job.id, job.attempt, JobStatus.INTERRUPTED, clock(), error=_unreadable(error))
    finally:
        if lock is not None:
            processes.unlock(lock)


def _judge(store: Store, job: Job, directory: JobDirectory, now: datetime) -> Verdict:
    """What the last attempt came to: its own last word first, then what its shim saw."""
    last = {event.type: event for event in store.jobs.events(job.id) if event.attempt == job.attempt}
    exit_record = directory.exit(job.attempt)
    if "result" in last:
        result = JobResult.model_validate(last["result"].result or {})
        agent = made_agent(store, directory, now)
        return Verdict(JobStatus.SUCCEEDED, result=result.model_copy(update={"agent": agent or result.agent}))
    if "failed" in last:
        return Verdict(JobStatus.FAILED, error=_failure(last["failed"]))
    if job.cancel_requested or (exit_record and exit_record.cancelled):
        return Verdict(JobStatus.CANCELLED, error=_forced(exit_record))
    if exit_record and exit_record.returncode is not None and "cancelled" not in last:
        return Verdict(JobStatus.FAILED, error=_silent(exit_record.returncode, directory))
    return Verdict(None, error=_killed(exit_record, job))


def _conclude(job: Job, verdict: Verdict, options: JobOptions) -> Verdict:
    """A killed attempt is followed by the next one, unless the operator or the limit says no."""
    if verdict.status is not None or (options.auto_resume and job.attempt < job.max_attempts):
        return verdict
    return verdict._replace(status=JobStatus.INTERRUPTED)


def _failure(event: JobEvent) -> JobError:
    return JobError(code=event.code or "crashed", message=event.message or "", hint=event.hint or "")


def _forced(exit_record: ExitRecord | None) -> JobError | None:
    if exit_record is None or not exit_record.forced:
        return None
    return JobError(
        code="forced",
        message="the worker did not stop in its grace time and was killed",
        hint="resume_job continues from its newest complete checkpoint.",
    )


def _silent(returncode: int, directory: JobDirectory) -> JobError:
    message = f"the worker ended with exit code {returncode} and without a result"
    return JobError(code="crashed", message=message, hint=f"Last lines of its log:\n{directory.log_tail(HINT_LINES)}")


def _unreadable(error: OSError) -> JobError:
    message = f"the job has ended and its directory cannot be read: {error}"
    return JobError(code="directory_unreadable", message=message, hint="Repair the directory, then call resume_job.")


def _killed(exit_record: ExitRecord | None, job: Job) -> JobError:
    hint = "resume_job continues from its newest complete checkpoint."
    attempt = f"attempt {job.attempt} of {job.max_attempts}"
    if exit_record is None:
        message = f"{attempt} ended with its supervisor: killed, or the machine was restarted"
        return JobError(code="killed", message=message, hint=hint)
    if exit_record.signal is None:
        return JobError(code="stopped", message=f"{attempt} was stopped from outside", hint=hint)
    name = signal.Signals(exit_record.signal).name
    message = f"{attempt} was killed by {name}; its peak memory was {exit_record.peak_rss_mb:g} MB"
    if exit_record.signal == signal.SIGKILL:
        hint = f"The system may have run out of memory. {hint}"
    return JobError(code="killed", message=message, hint=hint)
