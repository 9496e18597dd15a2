"""How attempts end: by their own last event, else by their shim's record, else by what their launcher reports.

`attempts.jsonl` in the job's folder records the attempts that were killed or never began: why, at which step and when. Pauses
before the next attempt, and crash loops, follow from it.
"""

from __future__ import annotations

import signal
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from pydantic import Field, ValidationError

from quintain.jobs.directory import ExitRecord, JobDirectory, append_line, read_lines
from quintain.jobs.ingestion import agent_of_job
from quintain.records.jobs.job import Job, JobError, JobResult, JobStatus
from quintain.records.record import Instant, Record
from quintain.records.wording import size_text
from quintain.store.store import Store

OWN_FAULTS = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL})
"""Signals that a process causes itself."""

LONGEST_PAUSE_S = 60.0

HINT_LINES = 10
"""Log lines shown for a worker that ended without a result."""

NEARLY_ALL = 0.8
"""Share of a worker's available memory from which on a SIGKILL is likely the kernel's."""

STOPPED = "stopped"
"""Reason of an attempt that was asked to stop from outside, and did."""

PROCESS_LOST = "process_lost"
"""Reason of a training one of whose processes died or went silent."""

RESUME = "Resume the job to continue from its newest complete checkpoint."


class ExitStatus(NamedTuple):
    """End of a dead attempt. `status` is None if it was killed and may be retried."""

    status: JobStatus | None
    error: JobError | None = None
    result: JobResult | None = None
    own_fault: bool = False
    """Whether a killed worker caused its own end, by a fault signal or by using up the memory."""


_LIMITS = {
    "time_limit": (JobStatus.INTERRUPTED, "Raise QUINTAIN_MAX_MINUTES, then resume the job."),
    "disk_limit": (JobStatus.INTERRUPTED, "Raise QUINTAIN_JOB_DISK_MB, then resume the job."),
    "memory_limit": (
        JobStatus.FAILED,
        "Raise QUINTAIN_JOB_MEMORY_MB, or train with smaller batches; plan_training estimates the memory.",
    ),
    "stalled": (None, RESUME),
}
"""Limit -> what becomes of the job, and the remedy. A stalled job goes on from its newest checkpoint."""


def exit_status(
    store: Store, job: Job, directory: JobDirectory, now: datetime, launcher_exit: str, *, begins_whole: bool
) -> ExitStatus:
    """Return how the last attempt of a job ended, all of whose events are stored.

    Args:
        store: The store.
        job: The job.
        directory: Its folder.
        now: Time of the end.
        launcher_exit: How the launcher's back end reports the end; empty if it does not.
        begins_whole: Whether a new attempt has all its processes, none of which the operator starts on another machine.
    """
    last = {event.type: event for event in store.jobs.events(job.id) if event.attempt == job.attempt}
    exit_record = directory.exit(job.attempt)
    if "result" in last:
        result = JobResult.model_validate(last["result"].result or {})
        agent = agent_of_job(store, directory, now)
        return ExitStatus(JobStatus.SUCCEEDED, result=result.model_copy(update={"agent": agent or result.agent}))
    lost: JobError | None = None
    if "failed" in last:
        event = last["failed"]
        error = JobError(code=event.code or "crashed", message=event.message or "", hint=event.hint or "")
        lost = error if error.code == PROCESS_LOST and begins_whole else None
        if lost is None:
            return ExitStatus(JobStatus.FAILED, error=error)
    if job.cancel_requested or (exit_record and exit_record.cancelled):
        return ExitStatus(JobStatus.CANCELLED, error=_forced_error(exit_record))
    if exit_record and exit_record.reason in _LIMITS:
        status, hint = _LIMITS[exit_record.reason]
        message = f"attempt {job.attempt} of {job.max_attempts} was ended: {exit_record.detail}"
        return ExitStatus(status, error=JobError(code=exit_record.reason, message=message, hint=hint))
    if lost is not None:  # usually out of memory, or by its own fault
        return ExitStatus(None, error=lost, own_fault=True)
    if exit_record and exit_record.returncode is not None and "cancelled" not in last:
        return ExitStatus(JobStatus.FAILED, error=_crash_error(exit_record.returncode, directory))
    own_fault = exit_record is not None and (exit_record.signal in OWN_FAULTS or _lacked_memory(exit_record))
    return ExitStatus(None, error=_kill_error(exit_record, job, launcher_exit), own_fault=own_fault)


def ended_early(job: Job, launcher_exit: str, log: str) -> ExitStatus:
    """Return the end of an attempt that its launcher's back end ended before it began."""
    if job.cancel_requested:
        return ExitStatus(JobStatus.CANCELLED)
    message = f"attempt {job.attempt} of {job.max_attempts} ended before it began: {launcher_exit or 'its launcher gives no reason'}"
    tail = "\n".join(log.splitlines()[-HINT_LINES:])
    hint = f"Check that its machine sees this Python and the home folder. Last lines of its output:\n{tail}"
    return ExitStatus(None, error=JobError(code="launch_failed", message=message, hint=hint))


def directory_error(error: OSError) -> JobError:
    """Return the error of an ended job whose directory cannot be read."""
    message = f"cannot read the directory of the ended job: {error}"
    return JobError(code="directory_unreadable", message=message, hint="Repair the directory, then resume the job.")


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
        return JobError(code=STOPPED, message=f"{attempt} was stopped from outside", hint=hint)
    name = signal.Signals(exit_record.signal).name
    total = f" of {size_text(exit_record.memory_mb * 2**20)}" if exit_record.memory_mb else ""
    is_counted = exit_record.reason == "out_of_memory"
    cause = ""
    if _lacked_memory(exit_record):
        cause = ", out of memory" if is_counted else ", likely out of memory"
        hint = f"Train with smaller batches or a smaller model. {hint}"
    message = f"{attempt} was killed by {name}{cause}; its peak memory was {size_text(exit_record.peak_rss_mb * 2**20)}{total}"
    return JobError(code="out_of_memory" if is_counted else "killed", message=message, hint=hint)


def crash_loop(error: JobError | None, step: int) -> ExitStatus:
    """Return the end of a job that died twice by its own fault at the same step."""
    message = f"two attempts in a row died after step {step}" + (f": {error.message}" if error else "")
    hint = f"It would die there again. Change its settings or data, and start another. {error.hint if error else ''}"
    return ExitStatus(JobStatus.FAILED, error=JobError(code="crash_loop", message=message, hint=hint.strip()))


def _lacked_memory(record: ExitRecord) -> bool:
    """Whether the worker was killed for lack of memory: by the kernel's count, or because it had nearly all of it."""
    near = record.memory_mb is not None and record.peak_rss_mb > NEARLY_ALL * record.memory_mb
    return record.reason == "out_of_memory" or (record.signal == signal.SIGKILL and near)


class AttemptEnd(Record):
    """One line of `attempts.jsonl`: an attempt that was killed, or never began."""

    attempt: int
    step: int
    reason: str
    message: str
    own_fault: bool = Field(
        description="Whether the worker caused it itself, so that the same step is likely to end the same way."
    )
    at: Instant


def ends(directory: JobDirectory) -> list[AttemptEnd]:
    """Return the ends of a job's killed attempts in order."""
    found: dict[int, AttemptEnd] = {}
    for line in read_lines(directory.attempts, 0).lines:
        try:
            end = AttemptEnd.model_validate_json(line)
        except ValidationError:
            continue
        found.setdefault(end.attempt, end)
    return [found[attempt] for attempt in sorted(found)]


def record_end(directory: JobDirectory, end: AttemptEnd) -> list[AttemptEnd]:
    """Add the end of an attempt unless it is there. Return all of them. Requires the job's lock."""
    known = ends(directory)
    if any(other.attempt == end.attempt for other in known):
        return known
    append_line(directory.attempts, end.model_dump_json())
    return [*known, end]


def is_crash_loop(known: list[AttemptEnd]) -> bool:
    """Whether the newest two attempts ended by their own fault at the same step."""
    newest = known[-2:]
    return len(newest) == 2 and all(end.own_fault for end in newest) and newest[0].step == newest[1].step


def is_spared(known: list[AttemptEnd]) -> bool:
    """Whether the newest attempt stopped on request after a new step. It does not count against the job's attempts.

    A batch system requests it before its time limit and before a preemption. New steps show that the job makes progress.
    """
    before = known[-2].step if len(known) > 1 else 0
    return bool(known) and known[-1].reason == STOPPED and known[-1].step > before


def pause_left_s(known: list[AttemptEnd], now: datetime) -> float:
    """Return the seconds until the next attempt may begin: 1, 2, 4, ... after 1, 2, 3, ... attempts in a row without a new step.

    An attempt with a new step is followed at once. A clock that was set back or forward shortens a pause and never
    lengthens it.
    """
    idle = 0
    for before, after in reversed([*pairwise(known)]):
        if after.step > before.step:
            break
        idle += 1
    if not idle:
        return 0.0
    pause = timedelta(seconds=min(LONGEST_PAUSE_S, 2.0 ** (idle - 1)))
    passed = now - known[-1].at
    return (pause - passed).total_seconds() if timedelta() <= passed < pause else 0.0
