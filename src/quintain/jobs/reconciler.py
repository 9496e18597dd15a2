"""Reconciliation of a home's unfinished jobs: ingest their files, finish or retry dead jobs, start queued ones.

Any process with an open store may reconcile; a lock elects one at a time (JobRunner.reconcile). A job whose lock is held
is alive. The process that gets the lock knows that no shim of this machine is left, keeps it while deciding, and asks
`liveness` for attempts on other machines.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from quintain.errors import InvalidInput, Unavailable
from quintain.jobs import processes
from quintain.jobs.attempts import AttemptEnd, ends, is_crash_loop, pause_left_s, record_end
from quintain.jobs.devices import assign_devices, detect_devices, devices_needed
from quintain.jobs.directory import JobDirectory
from quintain.jobs.exits import ExitStatus, crash_loop, directory_error, ended_early, exit_status
from quintain.jobs.ingestion import ingest
from quintain.jobs.launch import LOCAL, JobOptions, Starter, known_attempt, read_launch
from quintain.jobs.launchers.contract import Attempt, Launcher
from quintain.jobs.launchers.registry import open_launcher
from quintain.jobs.liveness import RETRY_S, Liveness, Watch
from quintain.jobs.process_counts import ONE_PROCESS, process_counts
from quintain.records.job import Job, JobSpec, JobStatus
from quintain.store.store import Store

logger = logging.getLogger(__name__)

CANCEL_MARGIN_S = 10.0
"""Seconds beyond the grace after which a cancelled job's launcher is asked to end it."""


class Reconciler:
    """Reconciles the jobs of one home, and remembers what it has observed of those on other machines."""

    def __init__(self, store: Store, options: JobOptions, clock: Callable[[], datetime]) -> None:
        self.home = processes.home_id(options.jobs_dir)
        self._store = store
        self._options = options
        self._clock = clock
        self._launchers: dict[str, Launcher] = {}
        self._starter = Starter(store, options, self.home, self.launcher, os.environ, clock)
        self.launcher(options.launcher)  # a wrong setting is an error at once
        self._watch = Watch(options.beat_s, options.lease_s)
        self._retry_at = float("-inf")
        self._cancel_at: dict[str, float] = {}
        """Job -> monotonic time from which its launcher may be asked to end it."""
        self._troubles: dict[str, str] = {}
        """Job, or empty for all of them -> what went wrong in the last pass."""
        self._pauses: dict[str, float] = {}
        """Job -> seconds until its next attempt, as of the last pass."""

    def launcher(self, name: str) -> Launcher:
        """Return a launcher by name."""
        if name not in self._launchers:
            self._launchers[name] = open_launcher(name, self._options.cluster)
        return self._launchers[name]

    def require_launchable(self, spec: JobSpec) -> None:
        """Check that the launcher can run a job.

        Raises:
            InvalidInput: It runs on several machines, which the launcher does not support (`one_machine`).
        """
        machines, name = (process_counts(spec) or ONE_PROCESS).machines, self._starter.launcher_name(spec.kind)
        if machines > 1 and not self.launcher(name).spans_machines:
            raise InvalidInput(
                f"expected machines 1 with QUINTAIN_LAUNCHER={name}, which gives a job one node, got {machines}; set machines "
                "to 1 and processes to the GPUs of one node",
                code="one_machine",
            )

    def reconcile_running(self) -> set[str]:
        """Reconcile every running job of this home. Return the ids of those that changed."""
        changed: set[str] = set()
        if not self._is_mounted():
            return changed
        running = self._store.jobs.running(self.home)
        self._watch.forget_others(job.id for job in running)
        self._cancel_at = {job.id: self._cancel_at[job.id] for job in running if job.id in self._cancel_at}
        self._pauses.clear()
        for job in running:
            with self._noting_trouble(job.id):
                if self._is_here(job) and self._reconcile_job(job):
                    changed.add(job.id)
        unfinished = {job.id for job in self._store.jobs.unfinished()} if self._troubles else set()
        self._troubles = {key: text for key, text in self._troubles.items() if not key or key in unfinished}
        return changed

    def trouble(self, job_id: str) -> str | None:
        """Return what kept the last pass of this process from storing a job's state, or from starting it; None if nothing did."""
        return self._troubles.get(job_id) or self._troubles.get("")

    def next_start_s(self) -> float | None:
        """Return the seconds until the earliest attempt that the last pass let wait; None without one."""
        return min(self._pauses.values(), default=None)

    def dispatch(self) -> set[str]:
        """Start queued jobs while slots and devices are free. Return their ids."""
        started: set[str] = set()
        if time.monotonic() < self._retry_at or not self._is_mounted():
            return started
        for job in self._store.jobs.startable(self._options.slots, self._options.light_kinds, self.home):
            with self._noting_trouble(job.id):
                devices = self._devices_for(job)
                if devices is None:
                    break  # smaller jobs must not overtake it for ever
                lock = processes.try_lock(JobDirectory(self._options.jobs_dir / job.id).lock)
                if lock is not None and self._starter.start(job, lock, job.attempt + 1, devices):
                    started.add(job.id)
            if time.monotonic() < self._retry_at:
                break
        return started

    def index_texts(self) -> set[str]:
        """Index the texts of new runs for searches, a bounded amount in one pass. No job changes."""
        with self._noting_trouble(""):
            self._store.trajectories.index_new_texts()
        return set()

    @contextmanager
    def _noting_trouble(self, key: str) -> Iterator[None]:
        """Note an error as the trouble of a job, or of all jobs for the key "". It is logged once, and ends here.

        One broken directory must not stop the other jobs, and a full disk must not hide behind a running one.
        """
        before = self._troubles.pop(key, None)
        try:
            yield
        except (Unavailable, OSError) as error:
            if isinstance(error, Unavailable):
                self._retry_at = time.monotonic() + RETRY_S
            self._troubles[key] = f"its state cannot be stored now: {error}"
            if self._troubles[key] != before:
                logger.warning("%s: %s", key or "all jobs", self._troubles[key])
        except Exception as error:
            self._troubles[key] = f"it cannot be looked after: {type(error).__name__}: {error}"
            if self._troubles[key] != before:
                logger.exception("job %s could not be reconciled", key)

    def _is_mounted(self) -> bool:
        """Whether the jobs folder is still that of this home. Without it, every job would look dead."""
        if self.home is None or processes.read_home_id(self._options.jobs_dir) == self.home:
            return True
        logger.error("the folder %s is not that of home %s: is it mounted?", self._options.jobs_dir, self.home)
        return False

    def _is_here(self, job: Job) -> bool:
        """Whether a job belongs to this home; one of an earlier version, without a home, if its folder is here."""
        return job.home is not None or (self._options.jobs_dir / job.id).exists()

    def _devices_for(self, job: Job) -> tuple[str, ...] | None:
        """Return devices of this machine for a job, empty for all of them; None if it has to wait."""
        if job.kind in self._options.light_kinds or self.launcher(self._options.launcher).is_remote:
            return ()
        devices = self._options.devices
        devices = detect_devices() if devices is None else devices
        if not devices:
            return ()
        others = (other for other in self._store.jobs.running(self.home) if other.id != job.id)
        launches = (read_launch(JobDirectory(self._options.jobs_dir / other.id), other.attempt) for other in others)
        taken = [launch.devices for launch in launches if launch and processes.is_this_machine(launch.machine)]
        return assign_devices(devices_needed(job.spec), devices, self._options.slots, taken)

    def _reconcile_job(self, job: Job) -> bool:
        directory = JobDirectory(self._options.jobs_dir / job.id)
        if job.cancel_requested and directory.path.exists():
            directory.request_cancel()  # repeated, because the requester may have died before this
        lock = processes.try_lock(directory.lock)
        if lock is None:
            self._renew(job)
            return ingest(self._store, job.id, directory, self._clock())
        try:
            launch = read_launch(directory, job.attempt)
            launcher = self.launcher(launch.launcher if launch else LOCAL)
            attempt = known_attempt(directory, job, launch)
            liveness = self._watch.assess(job, attempt, launcher, self._clock())
            if liveness in {Liveness.ALIVE, Liveness.UNKNOWN}:
                if liveness is Liveness.ALIVE:
                    self._renew(job)
                if job.cancel_requested and launcher.is_remote:
                    self._enforce_cancel(directory, attempt, launcher)
                return ingest(self._store, job.id, directory, self._clock())
            try:
                ending = self._ending(job, directory, attempt, launcher, liveness)
            except OSError as error:
                ending = ExitStatus(JobStatus.INTERRUPTED, error=directory_error(error))
            if ending.status is not None:
                return self._finish(job, ending)
            dead = liveness is Liveness.DEAD
            known = ends(directory) if dead else []
            if left_s := pause_left_s(known, self._clock()):
                self._pauses[job.id] = left_s
                self._troubles[job.id] = f"{known[-1].message}; the next attempt begins in {left_s:.0f} s"
                return False
            devices = self._devices_for(job)
            if devices is None:  # fewer than before, or given away: it keeps those that it had
                devices = launch.devices if launch else ()
            inherited, lock = lock, None
            note = f"attempt_ended: {known[-1].message}, after step {known[-1].step}" if known else None
            return self._starter.start(job, inherited, job.attempt + dead, devices, note)
        finally:
            if lock is not None:
                processes.unlock(lock)

    def _ending(
        self, job: Job, directory: JobDirectory, attempt: Attempt, launcher: Launcher, liveness: Liveness
    ) -> ExitStatus:
        """Ingest the last files of an attempt that does not run, and return how it ended; without a status to start again."""
        begun = liveness is Liveness.DEAD
        if begun and directory.exit(job.attempt) is None:
            processes.kill_orphans(job.id)
        if begun:
            directory.sweep()
        ingest(self._store, job.id, directory, self._clock())
        if liveness is Liveness.ENDED_EARLY:
            return ended_early(job, launcher.exit(attempt), launcher.log(attempt))
        job = self._store.jobs.get(job.id)
        words = launcher.exit(attempt) if begun and directory.exit(job.attempt) is None else ""
        ending = exit_status(self._store, job, directory, self._clock(), words)
        if ending.status is None and begun:
            return self._ending_of_killed(job, directory, ending)
        return ending

    def _ending_of_killed(self, job: Job, directory: JobDirectory, ending: ExitStatus) -> ExitStatus:
        """Record the end of a killed attempt, and return the end of its job; without a status to start again."""
        error = ending.error
        assert error is not None
        end = AttemptEnd(
            attempt=job.attempt,
            step=job.step,
            reason=error.code,
            message=error.message,
            own_fault=ending.own_fault,
            at=self._clock(),
        )
        if is_crash_loop(record_end(directory, end)):
            return crash_loop(error, job.step)
        retries_left = self._options.auto_resume and job.attempt < job.max_attempts
        return ending if retries_left else ending._replace(status=JobStatus.INTERRUPTED)

    def _finish(self, job: Job, ending: ExitStatus) -> bool:
        assert ending.status is not None
        return self._store.jobs.finish(
            job.id, job.attempt, ending.status, self._clock(), error=ending.error, result=ending.result
        )

    def _renew(self, job: Job) -> None:
        """Extend the lease of a live attempt where less than half of it is left."""
        now, lease = self._clock(), timedelta(seconds=self._options.lease_s)
        if job.lease_until is None or not now + lease / 2 < job.lease_until <= now + lease:
            self._store.jobs.renew_lease(job.id, job.attempt, now + lease)

    def _enforce_cancel(self, directory: JobDirectory, attempt: Attempt, launcher: Launcher) -> None:
        """Ask the launcher to end an attempt that waits in its queue, or whose shim has not stopped it in time."""
        now = time.monotonic()
        patience_s = self._options.grace_s + CANCEL_MARGIN_S if directory.has_begun(attempt.number) else 0.0
        if now < self._cancel_at.setdefault(attempt.job_id, now + patience_s):
            return
        self._cancel_at[attempt.job_id] = now + CANCEL_MARGIN_S
        try:
            launcher.cancel(attempt)
        except Unavailable as error:
            logger.warning("job %s could not be cancelled: %s", attempt.job_id, error)
