"""Freeing the disk space of ended jobs by the tool `forget`: a report of what would go, then the deletion."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from quintain.errors import Conflict
from quintain.jobs.pruning import ENDED, Prunable, prunable, prune
from quintain.next_step import Hint, call
from quintain.records.jobs.job import UNFINISHED, JobStatus
from quintain.records.record import counted
from quintain.tools.jobs.descriptions import label_of
from quintain.tools.results import ForgetResult, TouchedThing
from quintain.tools.services import Services

_SHOWN = 100
"""Jobs in an answer; the rest is counted."""


def free_disk(services: Services, days: int, job_ids: Sequence[str], *, dry_run: bool) -> ForgetResult:
    """Delete checkpoints and inputs of jobs that ended; results, curves, logs and agents stay.

    Args:
        services: Whose jobs.
        days: Least days since the end of a job.
        job_ids: These jobs, however they ended; empty: all that succeeded.
        dry_run: Only report what would be freed.

    Raises:
        NotFound: an id of no job.
        Conflict: a job that has not ended.
    """
    services.jobs.refresh(services.settings.poll_s)
    for job_id in job_ids:
        if (status := services.store.jobs.get(job_id).status) in UNFINISHED:
            remedy = call("cancel_job", job_id=job_id)
            raise Conflict(
                Hint(f"expected a job that has ended, got {job_id}, which is {status}; stop it first with ", remedy)
            )
    found = _prunable(services, days, job_ids, (JobStatus.SUCCEEDED,) if not job_ids else ENDED)
    freed = [(one, one.bytes if dry_run else prune(one, services.settings.jobs_dir)) for one in found]
    return ForgetResult(
        dry_run=dry_run,
        touched=tuple(_touched(one, size, dry_run=dry_run) for one, size in freed[:_SHOWN]),
        touched_count=len(freed),
        removed=tuple(str(folder) for one, size in freed if size for folder in one.folders),
        freed_bytes=sum(size for _, size in freed),
        next_step=_next_step(services, days, job_ids, freed=sum(size for _, size in freed), dry_run=dry_run),
    )


def _prunable(services: Services, days: int, job_ids: Sequence[str], statuses: Sequence[JobStatus]) -> list[Prunable]:
    folder, now, only = services.settings.jobs_dir, services.clock(), job_ids or None
    return prunable(services.store, folder, now, older_than=timedelta(days=days), statuses=statuses, only=only)


def _touched(one: Prunable, freed: int, *, dry_run: bool) -> TouchedThing:
    about = f"{label_of(one.job.spec)}: {'would free' if dry_run else 'freed'} {_mib(freed)}"
    if not freed:
        about = f"{label_of(one.job.spec)}: a process still uses it; call again later"
    elif one.job.status is not JobStatus.SUCCEEDED:
        about += "; it cannot be resumed afterwards"
    return TouchedThing(kind="job", id=one.job.id, state=one.job.status, remedy=Hint(about))


def _next_step(services: Services, days: int, job_ids: Sequence[str], *, freed: int, dry_run: bool) -> Hint:
    named = {"id": job_ids[0], "trajectory_ids": list(job_ids[1:]) or None} if job_ids else {}
    named = {name: value for name, value in named.items() if value}
    if freed and dry_run:
        step = Hint(
            f"Nothing was changed. To free {_mib(freed)}: ",
            call("forget", **named, ended_days=days, dry_run=False),
            "; results, curves, logs and agents stay.",
        )
    elif freed:
        step = Hint(f"Freed {_mib(freed)}; results, curves, logs and agents stay.")
    else:
        asked = counted(len(job_ids), "named job") if job_ids else "succeeded jobs"
        step = Hint(f"Nothing to free: {asked} that ended at least {counted(days, 'day')} ago have no files to delete.")
    unsuccessful = () if job_ids else tuple(status for status in ENDED if status is not JobStatus.SUCCEEDED)
    if others := _prunable(services, days, (), unsuccessful):
        ids, size = [one.job.id for one in others], sum(one.bytes for one in others)
        more = call("forget", id=ids[0], trajectory_ids=ids[1:10] or None, ended_days=days)
        step = Hint(
            step,
            f" {counted(len(others), 'job')} that failed or was cancelled would free {_mib(size)}, and could not be resumed: ",
            more,
            ".",
        )
    return step


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"
