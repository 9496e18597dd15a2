"""Silence of running jobs: how long it lasts, from when on a job seems stalled, and why."""

from __future__ import annotations

import os
from datetime import datetime

from quintain.records.jobs.job import Job, JobStatus
from quintain.records.jobs.talk import TalkSpec

_QUIET_S = 10.0
"""Silence that is never remarkable."""

_USUAL_GAPS = 5
"""Usual gaps of silence that are remarkable."""

_UNKNOWN_QUIET_S = 60.0
"""Silence that is remarkable if the usual gap is unknown."""


def quiet_for(job: Job, now: datetime) -> float | None:
    """Return the seconds since the newest report of a running job, or None for other jobs."""
    if job.status is not JobStatus.RUNNING or job.last_progress_at is None:
        return None
    return round(max(0.0, (now - job.last_progress_at).total_seconds()), 1)


def lease_notice(job: Job, now: datetime) -> str | None:
    """Return that a running job is past its lease, so that nobody knows whether it runs, or None.

    Its home renews the lease while the job is alive, and ends a dead job. Past the lease, the servers of that home are
    down, or see neither heartbeats nor an answer of the launcher.
    """
    if job.status is not JobStatus.RUNNING or job.lease_until is None or now <= job.lease_until:
        return None
    return (
        f"its home {job.home} has not confirmed since {job.lease_until:%Y-%m-%d %H:%M:%S} UTC that it is alive, so whether it "
        "runs is unknown; start a server of that home"
    )


def stall_of(job: Job, quiet_for_s: float | None, *, is_suspended: bool, is_elsewhere: bool = False) -> str | None:
    """Return why a running job seems stalled, or None if it does not.

    Of a job that belongs to another home, the load of this machine does not matter.
    """
    if quiet_for_s is None:
        return None
    usual = job.usual_gap_s
    bound = _UNKNOWN_QUIET_S if usual is None else max(_QUIET_S, _USUAL_GAPS * usual)
    if isinstance(job.spec, TalkSpec):  # silent while the person thinks, after which it ends by itself
        bound = max(bound, job.spec.idle_s)
    if quiet_for_s <= bound and not is_suspended:
        return None
    where = f" in phase {job.phase!r}" if job.phase else ""
    usually = "the usual time is unknown" if usual is None else f"usually {usual:.2g} s"
    cause = f"it runs in home {job.home}" if is_elsewhere else _load()
    cause = "one of its processes is suspended (SIGSTOP)" if is_suspended else cause
    return f"no step for {quiet_for_s:.0f} s{where}, {usually}; {cause}"


def _load() -> str:
    try:
        load = os.getloadavg()[0]
    except OSError:
        return "the load of the machine is unknown"
    return f"the machine has load {load:.1f} on {os.cpu_count() or 1} cores"
