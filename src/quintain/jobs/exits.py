"""How attempts end: by their own last event, or else by their shim's record, or else by the word of their launcher."""

from __future__ import annotations

import signal
from datetime import datetime
from typing import NamedTuple

from quintain.jobs.directory import ExitRecord, JobDirectory
from quintain.jobs.ingestion import agent_of_job
from quintain.records.job import Job, JobError, JobResult, JobStatus
from quintain.records.job_events import JobEvent
from quintain.store.store import Store

HINT_LINES = 10
"""Log lines shown for a worker that ended without a result."""

RESUME = "Resume the job to continue from its newest complete checkpoint."


class ExitStatus(NamedTuple):
    """End of a dead attempt. `status` is None if it was killed and may be retried."""

    status: JobStatus | None
    error: JobError | None = None
    result: JobResult | None = None


def exit_status(store: Store, job: Job, directory: JobDirectory, now: datetime, launcher_exit: str) -> ExitStatus:
    """Return how the last attempt of a job ended.

    Args:
        store: The store, with all events of the attempt.
        job: The job.
        directory: Its folder.
        now: Time of its agent's creation.
        launcher_exit: How the launcher's back end reports the end; empty if it does not.
    """
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
    return ExitStatus(None, error=_kill_error(exit_record, job, launcher_exit))


def ended_early(job: Job, launcher_exit: str, log: str) -> ExitStatus:
    """Return the end of an attempt that its launcher's back end ended before it began."""
    if job.cancel_requested:
        return ExitStatus(JobStatus.CANCELLED)
    message = f"attempt {job.attempt} ended before it began: {launcher_exit or 'its launcher gives no reason'}"
    tail = "\n".join(log.splitlines()[-HINT_LINES:])
    hint = f"Check that its machine sees this Python and the home folder. Last lines of its output:\n{tail}"
    return ExitStatus(JobStatus.INTERRUPTED, error=JobError(code="launch_failed", message=message, hint=hint))


def directory_error(error: OSError) -> JobError:
    """Return the error of an ended job whose directory cannot be read."""
    message = f"cannot read the directory of the ended job: {error}"
    return JobError(code="directory_unreadable", message=message, hint="Repair the directory, then resume the job.")


def _failure_error(event: JobEvent) -> JobError:
    return JobError(code=event.code or "crashed", message=event.message or "", hint=event.hint or "")


def _forced_error(exit_record: ExitRecord | None) -> JobError | None:
    if exit_record is None or not exit_record.forced:
        return None
    return JobError(code="forced", message="the worker did not stop within its grace time and was killed", hint=RESUME)


def _crash_error(returncode: int, directory: JobDirectory) -> JobError:
    message = f"the worker ended with exit code {returncode} and without a result"
    return JobError(code="crashed", message=message, hint=f"Last lines of its log:\n{directory.log_tail(HINT_LINES)}")


def _kill_error(exit_record: ExitRecord | None, job: Job, launcher_exit: str) -> JobError:
    hint = RESUME
    attempt = f"attempt {job.attempt} of {job.max_attempts}"
    if exit_record is None:
        message = f"{attempt} ended together with its supervisor: {launcher_exit or 'killed, or the machine restarted'}"
        return JobError(code="killed", message=message, hint=hint)
    if exit_record.signal is None:
        return JobError(code="stopped", message=f"{attempt} was stopped from outside", hint=hint)
    name = signal.Signals(exit_record.signal).name
    message = f"{attempt} was killed by {name}; its peak memory was {exit_record.peak_rss_mb:g} MB"
    if exit_record.signal == signal.SIGKILL:
        hint = f"The system may have run out of memory. {hint}"
    return JobError(code="killed", message=message, hint=hint)
