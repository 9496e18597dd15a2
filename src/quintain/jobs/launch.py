"""Starting one attempt of a job: its directory, its launch file, its row, its shim. In this order, under the job's lock."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from quintain.jobs import processes
from quintain.jobs.directory import JobDirectory, write_whole
from quintain.records.job import LIGHT_KINDS, Job, JobError, JobStatus
from quintain.records.record import Record
from quintain.store.store import Store

LOG_BYTES = 4 * 1024 * 1024
"""Bytes of a job's log that are kept from its start, and again from its end."""

WITHHELD = ("QUINTAIN_DATABASE_URL",)
"""Environment variables that a worker does not get: it never opens the database."""


@dataclass(frozen=True)
class JobOptions:
    """What the operator decides about jobs."""

    jobs_dir: Path
    url: str
    slots: int
    max_attempts: int
    auto_resume: bool
    grace_s: float
    light_kinds: frozenset[str] = LIGHT_KINDS
    """Kinds that take no slot."""


class Launch(Record):
    """`launch.json`: all that the shim knows of its attempt."""

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
    """Start an attempt of a queued job, or the next one of a job that died; false where the row has moved on.

    Args:
        store: The job's store.
        options: Of the operator.
        job: The job as it was read under the election lock.
        lock: Descriptor of the job's lock, held. It is inherited by the shim and closed here, so the job is never seen
            dead between this call and its first sign of life.
        attempt: Its number, from 1.
        clock: Gives the moment.
    """
    directory = JobDirectory(options.jobs_dir / job.id)
    try:
        directory.prepare(job)
        launch = _launch(options, directory, job.id, lock, attempt)
        write_whole(directory.launch, launch.model_dump_json().encode())
        if not store.jobs.begin_attempt(job.id, job.attempt, attempt, clock()):
            return False
        shim = Path(__file__).with_name("shim.py")
        processes.start_detached([sys.executable, "-I", "-S", str(shim), str(directory.path)], lock)
    except OSError as error:
        if not directory.has_begun(attempt):  # else the shim died at work: the next reconcile sees to it
            reason = JobError(
                code="launch_failed",
                message=f"attempt {attempt} could not be started: {error}",
                hint="Check free disk space and the rights of the home folder, then continue with resume_job.",
            )
            current = store.jobs.get(job.id).attempt
            store.jobs.finish(job.id, current, JobStatus.INTERRUPTED, clock(), error=reason)
    finally:
        os.close(lock)  # without unlocking: the shim holds the same lock
    return True


def _launch(options: JobOptions, directory: JobDirectory, job_id: str, lock: int, attempt: int) -> Launch:
    python = (sys.executable, "-P")  # the job's folder is no place to import from
    return Launch(
        attempt=attempt,
        lock_fd=lock,
        worker=(*python, "-m", "quintain.worker", str(directory.path), str(attempt), str(lock)),
        reconcile=(*python, "-m", "quintain.jobs", str(directory.launch)),
        env={processes.JOB_VARIABLE: job_id, "PYTHONUNBUFFERED": "1", **dict.fromkeys(WITHHELD)},
        grace_s=options.grace_s,
        log_bytes=LOG_BYTES,
        options=options,
    )
