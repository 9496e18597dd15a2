"""Start of one attempt of a job: directory, launch file, row, launcher, in this order, under the job's lock."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from quintain.errors import QuintainError, Unavailable, explained, is_without_room
from quintain.jobs import processes
from quintain.jobs.devices import VARIABLE as DEVICES_VARIABLE
from quintain.jobs.devices import devices_needed, widest_training
from quintain.jobs.directory import JobDirectory, write_atomically
from quintain.jobs.launchers.contract import Attempt, ClusterOptions, Launcher
from quintain.records.hyperparameters.methods import TrainingConfig
from quintain.records.jobs.job import LIGHT_KINDS, Job, JobError, JobStatus
from quintain.records.record import Record

if TYPE_CHECKING:
    from quintain.store.store import Store

LOG_BYTES = 4 * 1024 * 1024
"""Bytes of a job's log kept from its start, and again from its end."""

URL_VARIABLE = "QUINTAIN_DATABASE_URL"
"""Environment variable with the database's URL, which may contain a password. Shims of this machine have it for their
reconciler, workers and other machines do not, and no file of a job contains it."""

RAY_VARIABLE = "QUINTAIN_RAY_ADDRESS"
"""The same for the address of the Ray cluster."""

RAY_TRIES_VARIABLE = "RAY_gcs_server_port_wait_time_s"
"""Tries of a worker to reach a Ray cluster for its actors, each of 45 s; Ray's default is 20."""

THREADS_VARIABLE = "OMP_NUM_THREADS"

LOCAL = "local"
"""Name of the launcher of the server's machine."""


@dataclass(frozen=True)
class JobLimits:
    """Limits of one attempt, which its shim enforces. None: no limit."""

    stall_s: float | None = None
    """Seconds without a report."""
    max_s: float | None = None
    """Seconds from its start."""
    memory_mb: float | None = None
    """Resident memory of its processes."""
    disk_mb: float | None = None
    """Size of its folder."""


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
    launcher: str = LOCAL
    """Launcher of jobs that need a slot. Light kinds always run on the server's machine."""
    cluster: ClusterOptions = field(default_factory=ClusterOptions)
    devices: tuple[str, ...] | None = ()
    """Devices of this machine that jobs get; empty for none. Null: all that are found."""
    lease_s: float = 60.0
    """Silence after which an attempt without a lock is dead, and after which its shim ends it."""
    limits: JobLimits = JobLimits()

    @property
    def beat_s(self) -> float:
        """Seconds between two heartbeats."""
        return min(2.0, self.lease_s / 10)


class Launch(Record):
    """`launch.json`: parameters of the shim for its attempt."""

    attempt: int
    token: str = ""
    launcher: str = LOCAL
    machine: str = ""
    devices: tuple[str, ...] = ()
    lock_fd: int | None
    worker: tuple[str, ...]
    reconcile: tuple[str, ...]
    env: dict[str, str | None]
    grace_s: float
    log_bytes: int
    beat_s: float = 2.0
    lease_s: float = 60.0
    stall_s: float | None = None
    max_s: float | None = None
    memory_mb: float | None = None
    disk_mb: float | None = None
    options: JobOptions


def read_launch(directory: JobDirectory, attempt: int) -> Launch | None:
    """Return the launch file of this attempt, or None if there is none that this version can read."""
    launch = _newest_launch(directory)
    return launch if launch is not None and launch.attempt == attempt else None


def lease_s(directory: JobDirectory) -> float:
    """Return the lease of a job's newest attempt in seconds; the default without a launch file."""
    launch = _newest_launch(directory)
    return launch.lease_s if launch is not None else JobOptions.lease_s


def _newest_launch(directory: JobDirectory) -> Launch | None:
    try:
        return Launch.model_validate_json(directory.launch.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def known_attempt(directory: JobDirectory, job: Job, launch: Launch | None) -> Attempt:
    """Return the newest attempt of a job for questions to its launcher."""
    token, machine = (launch.token, launch.machine) if launch else ("", "")
    return Attempt(job.id, job.attempt, token, directory.path, machine)


@dataclass(frozen=True)
class Starter:
    """Starts attempts of one home."""

    store: Store
    options: JobOptions
    home: str | None
    launchers: Callable[[str], Launcher]
    """Returns a launcher by name."""
    environment: Mapping[str, str]
    """This process's environment."""
    clock: Callable[[], datetime]

    def launcher_name(self, kind: str) -> str:
        """Return the launcher for jobs of a kind."""
        return LOCAL if kind in self.options.light_kinds else self.options.launcher

    def start(
        self,
        job: Job,
        lock: int,
        attempt: int,
        devices: tuple[str, ...],
        note: str | None = None,
        *,
        further: bool = False,
    ) -> bool:
        """Start an attempt of a queued job, or the next attempt of a dead one. Return False if the row has moved on.

        Args:
            job: The job as read under the leader lock.
            lock: Descriptor of the job's lock, held by the caller and closed here. A shim on this machine inherits it, so
                the job never looks dead in between.
            attempt: Attempt number, from 1.
            devices: Devices of this machine for it; empty for all.
            note: How the attempt before ended, a warning of the job.
            further: Whether the job may have one attempt more for it.

        Raises:
            Unavailable: The launcher's back end does not answer, or the disk is full. The job is queued again.
        """
        from quintain.store.jobs import SlotLimit  # the processes of a training read launch files, and open no store

        directory = JobDirectory(self.options.jobs_dir / job.id)
        try:
            is_new = directory.prepare(job)
            launch = self._launch(directory, job, lock, attempt, devices)
            text = launch.model_dump_json(exclude={"options": {"cluster": {"ray_address"}}})  # it may have a password
            write_atomically(directory.launch, text.encode())
            lease = self.clock() + timedelta(seconds=self.options.lease_s)
            limit = SlotLimit(self.options.slots, self.options.light_kinds)
            begun = self.store.jobs.begin_attempt(
                job.id,
                job.attempt,
                attempt,
                self.clock(),
                home=self.home,
                lease_until=lease,
                slots=limit,
                note=note,
                max_attempts=job.max_attempts + further,
                is_new=is_new,
            )
            if not begun:
                return False
            self.launchers(launch.launcher).start(self._attempt(directory, job, launch))
        except (OSError, QuintainError) as error:
            cause = explained(error) if is_without_room(error) else error
            if isinstance(cause, Unavailable):
                self.store.jobs.put_back(job.id, attempt, attempt - 1, self.clock(), f"{cause.code}: {cause.message}")
                raise cause from None
            if not directory.has_begun(attempt):  # otherwise the shim died later, and the next reconcile handles it
                self._end_early(directory, attempt, job.id, error)
        finally:
            os.close(lock)  # does not unlock: the shim holds the same lock
        return True

    def _launch(self, directory: JobDirectory, job: Job, lock: int, attempt: int, devices: tuple[str, ...]) -> Launch:
        python = (sys.executable, "-P")  # never import from the job's folder
        launcher = self.launcher_name(job.kind)
        is_remote = self.launchers(launcher).is_remote
        own = {URL_VARIABLE: None, RAY_VARIABLE: None, "PYTHONUNBUFFERED": "1"}
        own[processes.JOB_VARIABLE] = processes.mark(directory.path)
        own[RAY_TRIES_VARIABLE] = self.environment.get(RAY_TRIES_VARIABLE, "1")
        if is_remote:
            cpus = self.options.cluster.cpus
            own[THREADS_VARIABLE] = self.environment.get(THREADS_VARIABLE) or (str(cpus) if cpus else None)
        elif devices or self.options.devices == ():
            own[DEVICES_VARIABLE] = ",".join(devices)
        return Launch(
            attempt=attempt,
            token=uuid.uuid4().hex[:8],
            launcher=launcher,
            machine=processes.this_machine(),
            devices=devices,
            lock_fd=None if is_remote else lock,
            worker=(
                *python,
                *("-m", "quintain.worker", str(directory.path), str(attempt), "none" if is_remote else str(lock)),
            ),
            reconcile=(*python, "-m", "quintain.jobs", str(directory.launch)),
            env=own,
            grace_s=self.options.grace_s,
            log_bytes=LOG_BYTES,
            beat_s=self.options.beat_s,
            lease_s=self.options.lease_s,
            **asdict(self.options.limits),
            options=self.options,
        )

    def _attempt(self, directory: JobDirectory, job: Job, launch: Launch) -> Attempt:
        """Return the attempt with the command that supervises it, and the variables that its machine does not have."""
        is_remote = launch.lock_fd is None
        training = widest_training(job.spec)
        shim = (sys.executable, "-I", "-S", str(Path(__file__).with_name("shim.py")), str(directory.path))
        names = set(self.options.cluster.environment) - {URL_VARIABLE, RAY_VARIABLE}
        passed = {name: self.environment[name] for name in sorted(names & self.environment.keys())}
        address = self.options.cluster.ray_address
        secret = {URL_VARIABLE: self.store.url} | ({RAY_VARIABLE: address} if address else {})
        return Attempt(
            job.id,
            launch.attempt,
            launch.token,
            directory.path,
            launch.machine,
            command=(*shim, launch.token) if is_remote else shim,
            environment=passed if is_remote else secret,
            devices=devices_needed(job.spec),
            machines=training.machines,
            port=_port(training),
            rank_launcher=_rank_launcher(training),
            rank_program=("-m", "quintain.worker.rank", str(directory.path), str(launch.attempt)),
            lock=launch.lock_fd,
        )

    def _end_early(self, directory: JobDirectory, attempt: int, job_id: str, error: Exception) -> None:
        """Interrupt a job that could not be started. One that has run before is tried again while attempts are left."""
        from quintain.jobs.exits import AttemptEnd, record_end

        reason = JobError(
            code="launch_failed",
            message=f"cannot start attempt {attempt}: {error}",
            hint="Check free disk space, the permissions of the home folder and the launcher, then resume the job.",
        )
        job, now = self.store.jobs.get(job_id), self.clock()
        if self.options.auto_resume and 1 < attempt == job.attempt < job.max_attempts:
            end = AttemptEnd(
                attempt=attempt, step=job.step, reason=reason.code, message=reason.message, own_fault=False, at=now
            )
            record_end(directory, end)
        else:
            self.store.jobs.finish(job.id, job.attempt, JobStatus.INTERRUPTED, now, error=reason)


def _port(training: TrainingConfig) -> int | None:
    """Return the port of the rendezvous, or None for one machine."""
    return int(training.rendezvous.rpartition(":")[2]) if training.machines > 1 and training.rendezvous else None


def _rank_launcher(training: TrainingConfig) -> tuple[str, ...]:
    """Return the command that starts a training's processes on a machine other than the first, without their program."""
    sizes = f"--nnodes={training.machines}", f"--nproc-per-node={training.processes_per_machine}"
    return (sys.executable, "-P", "-m", "torch.distributed.run", *sizes, f"--master-port={_port(training)}")
