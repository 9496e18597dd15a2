"""Ends of a job's attempts, `attempts.jsonl` in its folder: why each died and where, and when the next one begins."""

from __future__ import annotations

import signal
from datetime import datetime, timedelta
from itertools import pairwise

from pydantic import Field, ValidationError

from quintain.jobs.directory import JobDirectory, append_line, read_lines
from quintain.records.record import Instant, Record

OWN_FAULTS = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL})
"""Signals that a process brings on itself."""

LONGEST_PAUSE_S = 60.0


class AttemptEnd(Record):
    """One line of `attempts.jsonl`: an attempt that was killed."""

    attempt: int
    step: int
    reason: str
    message: str
    own_fault: bool = Field(
        description="Whether the worker brought it about, so that the same step is likely to end the same way."
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


def pause_left_s(known: list[AttemptEnd], now: datetime) -> float:
    """Return the seconds until the next attempt may begin: 1, 2, 4, ... after 1, 2, 3, ... attempts in a row without a new step.

    An attempt with a new step is followed at once. A clock that was set back or forward shortens a pause and never
    lengthens it.
    """
    vain = 0
    for before, after in reversed([*pairwise(known)]):
        if after.step > before.step:
            break
        vain += 1
    if not vain:
        return 0.0
    pause = timedelta(seconds=min(LONGEST_PAUSE_S, 2.0 ** (vain - 1)))
    passed = now - known[-1].at
    return (pause - passed).total_seconds() if timedelta() <= passed < pause else 0.0
