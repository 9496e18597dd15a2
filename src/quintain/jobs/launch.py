"""Start of one attempt of a job: directory, launch file, row, shim, in this order, under the job's lock."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from quintain.jobs import processes
from quintain.jobs.directory import JobDirectory, write_atomically
from quintain.records.job import LIGHT_KINDS, Job, JobError, JobStatus
from quintain.records.record import Record
from quintain.store.store import Store

LOG_BYTES = 4 * 1024 * 1024
"""Bytes of a job's log kept from its start, and again from its end."""

URL_VARIABLE = "QUINTAIN_DATABASE_URL"
"""Environment variable with the database's URL, which may contain a password. Shims have it for their reconciler, workers
do not, and no file of a job contains it."""


@dataclass(frozen=True)
class JobOptions:
    """Operator settings for jobs."""

    jobs_dir: Path
    slots: int
    max_attempts: int
    auto_resume: bool
    grace_s: float
    light_kinds: frozenset[str] = LIGHT_KINDS
    """Kinds that do not need a slot."""


class Launch(Record):
    """`launch.json`: parameters of the shim for its attempt."""

    attempt: int
    lock_fd: int
    worker: tuple[str, ...]
    reconcile: tuple[str, ...]
    env: dict[str, str | None]
    grace_s: float
    log_bytes: int
    options: JobOptions


def start_attempt(
    store: Store, options: JobOptions, job: Job, lock: int, attempt: int, clock: Callable[[], datetime]
) -> bool:
    """Start an attempt of a queued job, or the next attempt of a dead one. Return False if the row has moved on.

    Args:
        store: Store of the job.
        options: Operator settings.
        job: The job as read under the leader lock.
        lock: Descriptor of the job's lock, held by the caller. The shim inherits it and this function closes it, so the
            job never looks dead in between.
        attempt: Attempt number, from 1.
        clock: Returns the current time.
    """
    directory = JobDirectory(options.jobs_dir / job.id)
    try:
        directory.prepare(job)
        launch = _launch(options, directory, job.id, lock, attempt)
        write_atomically(directory.launch, launch.model_dump_json().encode())
        if not store.jobs.begin_attempt(job.id, job.attempt, attempt, clock()):
            return False
        shim = Path(__file__).with_name("shim.py")
        processes.start_detached(
            [sys.executable, "-I", "-S", str(shim), str(directory.path)], lock, {URL_VARIABLE: store.url}
        )
    except OSError as error:
        if not directory.has_begun(attempt):  # otherwise the shim died later, and the next reconcile handles it
            reason = JobError(
                code="launch_failed",
                message=f"cannot start attempt {attempt}: {error}",
                hint="Check free disk space and the permissions of the home folder, then resume the job.",
            )
            current = store.jobs.get(job.id).attempt
            store.jobs.finish(job.id, current, JobStatus.INTERRUPTED, clock(), error=reason)
    finally:
        os.close(lock)  # does not unlock: the shim holds the same lock
    return True


def _launch(options: JobOptions, directory: JobDirectory, job_id: str, lock: int, attempt: int) -> Launch:
    python = (sys.executable, "-P")  # never import from the job's folder
    return Launch(
        attempt=attempt,
        lock_fd=lock,
        worker=(*python, "-m", "quintain.worker", str(directory.path), str(attempt), str(lock)),
        reconcile=(*python, "-m", "quintain.jobs", str(directory.launch)),
        env={processes.JOB_VARIABLE: job_id, "PYTHONUNBUFFERED": "1", URL_VARIABLE: None},
        grace_s=options.grace_s,
        log_bytes=LOG_BYTES,
        options=options,
    )
