"""Freeing the disk space of ended jobs: their checkpoints and inputs go, their results, curves and logs stay."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from quintain.jobs.directory import JobDirectory
from quintain.jobs.processes import try_lock, unlock
from quintain.records.agent import Agent
from quintain.records.jobs.job import Job, JobStatus
from quintain.store.database.paging import read_pages
from quintain.store.store import Store

ENDED = (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED)


class Prunable(NamedTuple):
    """Folders of one ended job that can be deleted."""

    job: Job
    folders: tuple[Path, ...]
    bytes: int
    """Bytes on the disk that deleting frees; a file that another folder has too counts nothing."""


def prunable(
    store: Store,
    jobs_dir: Path,
    now: datetime,
    *,
    older_than: timedelta,
    statuses: Collection[JobStatus],
    only: Collection[str] | None = None,
) -> list[Prunable]:
    """Return what jobs that ended at least `older_than` ago can give back, the largest first; `only` restricts them to some.

    Checkpoints that a registered agent uses as its model are left out, and so are jobs that a queued or running job continues or
    names, such as the training whose checkpoint it plays. Jobs that failed or were cancelled cannot be resumed afterwards.
    """
    used = model_folders(read_pages(store.agents.page))
    needed = "\n".join(f"{job.resumed_from} {job.spec.model_dump_json()}" for job in store.jobs.unfinished())
    found = []
    unreadable = list[str]()  # such jobs keep what they have
    for job in chain.from_iterable(
        read_pages(partial(store.jobs.page, status=status), unreadable) for status in statuses
    ):
        if only is not None and job.id not in only:
            continue
        if job.ended_at is None or now - job.ended_at < older_than or job.id in needed:
            continue
        folders = [path for path in _folders(JobDirectory(jobs_dir / job.id)) if not _contains(path, used)]
        if size := sum(map(_size, folders)):
            found.append(Prunable(job, tuple(folders), size))
    return sorted(found, key=lambda one: -one.bytes)


def prune(found: Prunable, jobs_dir: Path) -> int:
    """Delete the folders of a job, unless a process has it. Return the bytes that were freed."""
    lock = try_lock(JobDirectory(jobs_dir / found.job.id).lock)
    if lock is None:
        return 0
    try:
        for folder in found.folders:
            shutil.rmtree(folder)
            folder.mkdir(mode=0o700)
    finally:
        unlock(lock)
    return found.bytes


def model_folders(agents: Iterable[Agent]) -> set[Path]:
    """Return the folders of the models and adapters of agents."""
    paths = (path for agent in agents for path in (agent.model.path, agent.model.adapter))
    return {Path(path).resolve() for path in paths if path and os.path.isabs(path)}


def _folders(directory: JobDirectory) -> Iterator[Path]:
    """Yield the folders of checkpoints and inputs, of stages too."""
    stages = sorted(directory.stages.iterdir()) if directory.stages.is_dir() else []
    for parent in (directory.path, *stages):
        for name in ("checkpoints", "inputs"):
            path = parent / name
            if path.is_dir() and not path.is_symlink():
                yield path


def _contains(folder: Path, paths: Collection[Path]) -> bool:
    resolved = folder.resolve()
    return any(path.is_relative_to(resolved) for path in paths)


def _size(folder: Path) -> int:
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            about = (Path(place) / name).lstat()
            total += about.st_size if about.st_nlink == 1 else 0
    return total
