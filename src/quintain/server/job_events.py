"""Events of jobs as log messages: starts, phases, warnings, ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from mcp.types import LoggingLevel

if TYPE_CHECKING:
    from quintain.records.job import Job

SOURCE = "quintain.jobs"
"""Name of the logger in log messages about jobs."""

_LEVELS: Mapping[str, LoggingLevel] = {"failed": "error", "interrupted": "warning"}
"""Status -> level; others are informative. The enumeration is not imported, which would slow the start of the server."""


class JobEvent(NamedTuple):
    """One event of a job."""

    level: LoggingLevel
    text: str


class JobEvents:
    """Compares the newest jobs of one look with those of the look before.

    Args:
        jobs: The newest jobs now.
    """

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._before = {job.id: job for job in jobs}

    def since_last(self, jobs: Iterable[Job]) -> list[JobEvent]:
        """Return what happened to the newest jobs since the last call, oldest job first."""
        before, self._before = self._before, {job.id: job for job in jobs}
        return [event for job in reversed(self._before.values()) for event in events_between(before.get(job.id), job)]


def events_between(before: Job | None, job: Job) -> Iterator[JobEvent]:
    """Yield the events between two states of a job.

    Args:
        before: The earlier state. None: the job is new.
        job: The later state.
    """
    name = f"{job.id} ({job.kind})"
    if before is None or before.status is not job.status:
        reason = f": [{job.error.code}] {job.error.message}" if job.error else ""
        yield JobEvent(_LEVELS.get(job.status, "info"), f"{name}: {job.status}{reason}")
    if job.phase and (before is None or before.phase != job.phase):
        yield JobEvent("info", f"{name}: phase {job.phase}")
    elif before is not None and job.step > before.step:
        total = f" of {job.total_steps}" if job.total_steps else ""
        yield JobEvent("debug", f"{name}: step {job.step}{total}")
    for warning in job.warnings[len(before.warnings) if before else 0 :]:
        yield JobEvent("warning", f"{name}: {warning}")
