"""Reconciliation of a home's unfinished jobs: ingest their files, finish or retry dead jobs, start queued ones.

Any process with an open store may reconcile; a lock elects one at a time (JobRunner.reconcile). A job whose lock is held
is alive. The process that gets the lock knows that no shim of this machine is left, keeps it while deciding, and asks
`liveness` for attempts on other machines.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from quintain.errors import Conflict, InvalidInput, NotFound, Unavailable, explained, is_without_room
from quintain.jobs import processes
from quintain.jobs.devices import assign_devices, detect_devices, devices_needed, widest_training
from quintain.jobs.directory import JobDirectory
from quintain.jobs.exits import (
    AttemptEnd,
    ExitStatus,
    crash_loop,
    directory_error,
    ended_early,
    ends,
    exit_status,
    is_crash_loop,
    is_spared,
    pause_left_s,
    record_end,
)
from quintain.jobs.home_claim import HomeClaim, folder_fault, own_home
from quintain.jobs.ingestion import ingest, ingest_outputs, new_events
from quintain.jobs.launch import LOCAL, JobOptions, Starter, known_attempt, read_launch
from quintain.jobs.launchers.contract import Attempt, Launcher
from quintain.jobs.launchers.registry import open_launcher
from quintain.jobs.liveness import RETRY_S, Liveness, Watch
from quintain.records.jobs.job import UNFINISHED, Job, JobSpec, JobStatus
from quintain.store.job_spans import Lease, Span
from quintain.store.jobs import RunningJob
from quintain.store.store import Store

logger = logging.getLogger(__name__)

CANCEL_MARGIN_S = 10.0
"""Seconds beyond the grace after which a cancelled job's launcher is asked to end it."""

_FOLDER = "the jobs folder"
"""Key of a trouble with the folder itself."""


class _Look(NamedTuple):
    """Findings of a pass on an attempt that has not ended."""

    job_id: str
    has_outputs: bool
    """Whether it had new outputs, which are stored already."""
    events: Span | None
    lease: Lease | None


class Reconciler:
    """Reconciles the jobs of one home, and remembers what it has observed of those on other machines."""

    def __init__(self, store: Store, options: JobOptions, clock: Callable[[], datetime]) -> None:
        home = processes.home_id(options.jobs_dir, lambda: _home_of_folders(store, options.jobs_dir))
        self.home = own_home(store, options.jobs_dir, home, clock())
        self._store = store
        self._options = options
        self._clock = clock
        self._launchers: dict[str, Launcher] = {}
        self._starter = Starter(store, options, self.home, self.launcher, os.environ, clock)
        self.launcher(options.launcher)  # a wrong setting is an error at once
        self._watch = Watch(options.beat_s, options.lease_s)
        self._claim = HomeClaim(store, options.jobs_dir, self.home, beat_s=options.beat_s, lease_s=options.lease_s)
        self._retry_at = float("-inf")
        self._cancel_at: dict[str, float] = {}
        """Job -> monotonic time from which its launcher may be asked to end it."""
        self._troubles: dict[str, str] = {}
        """Job, or empty for all of them -> what went wrong in the last pass."""
        self._noted: dict[str, str | None] = {}
        """The same of the pass that runs, None for nothing. A reader sees it when the pass is over."""
        self._logged: dict[str, str] = {}
        """Key of a trouble -> its text as logged."""
        self._marked: dict[str, list[int]] | None = None
        """Processes of jobs, as the pass that runs has found them; a search for each of many jobs that end takes seconds."""
        self._found_dead = False
        """Whether the last pass found an attempt whose lock is free."""
        self.is_idle = False
        """Whether the last pass of this process left no job unfinished."""
        self._pauses: dict[str, float] = {}
        """Job -> seconds until its next attempt, as of the last pass."""

    def launcher(self, name: str) -> Launcher:
        """Return a launcher by name."""
        if name not in self._launchers:
            self._launchers[name] = open_launcher(name, self._options.cluster)
        return self._launchers[name]

    def require_launchable(self, spec: JobSpec) -> None:
        """Check that this home and its launcher can run a job.

        Raises:
            InvalidInput: It runs on several machines, which the launcher does not support (`one_machine`).
            Conflict: Another folder acts for this home (`home_in_use`).
        """
        machines, name = widest_training(spec).machines, self._starter.launcher_name(spec.kind)
        if machines > 1 and not self.launcher(name).spans_machines:
            raise InvalidInput(
                f"expected machines 1 with QUINTAIN_LAUNCHER={name}, which gives a job one node, got {machines}; set machines "
                "to 1 and processes to the GPUs of one node",
                code="one_machine",
            )
        self._claim.require()

    def reconcile_running(self) -> set[str]:
        """Reconcile every running job of this home. Return the ids of those that changed."""
        changed: set[str] = set()
        self._found_dead, self._marked = False, None
        if not self.has_folder():
            return changed
        running = self._store.jobs.running(self.home)
        self._watch.forget_others(job.id for job in running)
        self._cancel_at = {job.id: self._cancel_at[job.id] for job in running if job.id in self._cancel_at}
        self._pauses.clear()
        if running and not self._claim.renew():
            return changed
        looks: list[_Look] = []
        with self._publishing_troubles():
            for job in running:
                with self._noting_trouble(job.id):
                    if self._is_here(job) and self._reconcile_job(job, looks):
                        changed.add(job.id)
            changed |= {look.job_id for look in looks if look.has_outputs}
            changed |= self._store_looks([look for look in looks if look.events or look.lease])
        states = self._store.jobs.states(self._troubles) if self._troubles else {}
        ended = {job_id for job_id, state in states.items() if state.status not in UNFINISHED}
        self._troubles = {key: text for key, text in self._troubles.items() if key not in ended}
        self._logged = {key: text for key, text in self._logged.items() if key in self._troubles}
        self.is_idle = not running and not self._store.jobs.has_unfinished(self.home)
        return changed

    def _store_looks(self, looks: Sequence[_Look]) -> set[str]:
        """Store the events and leases of live jobs in one transaction, else job by job. Return the ids of those with events."""
        if not looks:
            return set()
        spans, leases = [look.events for look in looks if look.events], [look.lease for look in looks if look.lease]
        stored: set[str] = set()
        with self._noting_trouble(*(look.job_id for look in looks)):
            try:
                stored = self._store.jobs.ingest_spans(spans, self._clock(), leases)
            except (Unavailable, OSError):
                raise
            except Exception:
                if len(looks) == 1:
                    raise
                stored = {job_id for look in looks for job_id in self._store_looks([look])}
        return stored

    def trouble(self, job_id: str) -> str | None:
        """Return what kept the last pass of this process from storing a job's state, or from starting it; None if nothing did."""
        own = self._troubles.get(_FOLDER) or self._troubles.get(job_id)
        return self._claim.trouble or own or self._troubles.get("")

    def next_start_s(self) -> float | None:
        """Return the seconds until the earliest attempt that the last pass let wait; None without one."""
        return min(self._pauses.values(), default=None)

    def dispatch(self) -> set[str]:
        """Start queued jobs while slots and devices are free. Return their ids."""
        started: set[str] = set()
        if time.monotonic() < self._retry_at or not self.has_folder():
            return started
        startable = self._startable()
        if not startable or not self._claim.renew():
            return started
        for job in startable:
            with self._publishing_troubles(), self._noting_trouble(job.id):
                devices = self._devices_for(job)
                if devices is None:
                    break  # smaller jobs must not overtake it for ever
                lock = processes.try_lock(JobDirectory(self._options.jobs_dir / job.id).lock)
                if lock is not None and self._starter.start(job, lock, job.attempt + 1, devices):
                    started.add(job.id)
            if time.monotonic() < self._retry_at:
                break
        return started

    def has_startable(self) -> bool:
        """Whether a queued job may start now, as far as slots decide."""
        return bool(self._startable())

    def _startable(self) -> list[Job]:
        return self._store.jobs.startable(self._options.slots, self._options.light_kinds, self.home)

    def dispatch_after_ends(self) -> set[str]:
        """Start queued jobs if `reconcile_running` has found an attempt that is not alive: its end may have freed a slot."""
        return self.dispatch() if self._found_dead else set()

    def index_texts(self) -> set[str]:
        """Index the texts of new runs for searches, a bounded amount in one pass. No job changes."""
        with self._publishing_troubles(), self._noting_trouble(""):
            self._store.trajectories.index_new_texts()
        return set()

    @contextmanager
    def _publishing_troubles(self) -> Iterator[None]:
        """Let readers see the troubles that are noted meanwhile all at once, so that a lasting one never seems to be over."""
        self._noted = {}
        try:
            yield
        finally:
            found = self._troubles | self._noted
            self._troubles = {key: text for key, text in found.items() if text is not None}

    @contextmanager
    def _noting_trouble(self, *keys: str) -> Iterator[None]:
        """Note an error as the trouble of jobs, or of all jobs for the key "". It is logged once, and ends here.

        One broken directory must not stop the other jobs, and a full disk must not hide behind a running one.
        """
        text, cause = "", None
        try:
            yield
        except (Conflict, Unavailable, OSError) as error:
            if isinstance(error, Unavailable):
                self._retry_at = time.monotonic() + RETRY_S
            text = f"it cannot be looked after now: {error}"
        except Exception as error:
            text, cause = f"it cannot be looked after: {type(error).__name__}: {error}", error
        for key in keys:
            if not text:
                self._noted.setdefault(key, None)
                continue
            self._noted[key] = text
            if self._logged.get(key) != text:
                self._logged[key] = text
                logger.log(
                    logging.ERROR if cause else logging.WARNING, "%s: %s", key or "all jobs", text, exc_info=cause
                )

    def has_folder(self) -> bool:
        """Whether the jobs folder is still that of this home, and writable. Without it, every job would look dead."""
        fault = folder_fault(self._options.jobs_dir, self.home)
        with self._publishing_troubles(), self._noting_trouble(_FOLDER):
            if fault:
                raise Unavailable(fault)
        return not fault

    def _is_here(self, job: RunningJob) -> bool:
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

    def _reconcile_job(self, row: RunningJob, looks: list[_Look]) -> bool:
        """Look at a live attempt; end or restart another. Return whether the job's state has changed."""
        directory = JobDirectory(self._options.jobs_dir / row.id)
        if row.cancel_requested and directory.path.exists():
            directory.request_cancel()  # repeated, because the requester may have died before this
        lock = processes.try_lock(directory.lock)
        if lock is None:
            looks.append(self._look(row, directory, is_alive=True))
            return False
        self._found_dead = True
        try:
            job = self._store.jobs.get(row.id)
            if job.status is not JobStatus.RUNNING:
                return False
            launch = read_launch(directory, job.attempt)
            launcher = self.launcher(launch.launcher if launch else LOCAL)
            attempt = known_attempt(directory, job, launch)
            liveness = self._watch.assess(job, attempt, launcher, self._clock())
            if liveness in {Liveness.ALIVE, Liveness.UNKNOWN}:
                if job.cancel_requested and launcher.is_remote:
                    self._enforce_cancel(directory, attempt, launcher)
                looks.append(self._look(row, directory, is_alive=liveness is Liveness.ALIVE))
                return False
            try:
                ending = self._ending(job, directory, attempt, launcher, liveness)
            except OSError as error:
                if is_without_room(error):
                    raise explained(error) from error
                ending = ExitStatus(JobStatus.INTERRUPTED, error=directory_error(error))
            if ending.status is not None:
                return self._finish(job, ending)
            is_over = liveness is not Liveness.LOST
            known = ends(directory) if is_over else []
            if left_s := pause_left_s(known, self._clock()):
                self._pauses[job.id] = left_s
                self._noted[job.id] = f"{known[-1].message}; the next attempt begins in {left_s:.0f} s"
                return False
            devices = self._devices_for(job)
            if devices is None:  # fewer than before, or given away: it keeps those that it had
                devices = launch.devices if launch else ()
            inherited, lock = lock, None
            note = f"attempt_ended: {known[-1].message}, after step {known[-1].step}" if known else None
            return self._starter.start(job, inherited, job.attempt + is_over, devices, note, further=is_spared(known))
        finally:
            if lock is not None:
                processes.unlock(lock)

    def _ending(
        self, job: Job, directory: JobDirectory, attempt: Attempt, launcher: Launcher, liveness: Liveness
    ) -> ExitStatus:
        """Ingest the last files of an attempt that does not run, and return how it ended; without a status to start again."""
        begun = liveness is Liveness.DEAD
        if begun:
            if directory.exit(job.attempt) is None or self._marked is None:
                self._marked = processes.processes_by_mark()
            processes.kill_orphans(directory.path, self._marked)
            directory.sweep()
        if not directory.spec.exists() and self._store.jobs.offsets(job.id):
            raise FileNotFoundError(errno.ENOENT, "it was deleted", str(directory.path))
        ingest(self._store, job.id, directory, self._clock())
        job = self._store.jobs.get(job.id)
        words = launcher.exit(attempt) if directory.exit(job.attempt) is None and liveness is not Liveness.LOST else ""
        if liveness is Liveness.ENDED_EARLY:
            ending = ended_early(job, words, launcher.log(attempt))
        else:
            begins_whole = launcher.is_remote or widest_training(job.spec).machines == 1
            ending = exit_status(self._store, job, directory, self._clock(), words, begins_whole=begins_whole)
        if ending.status is None and liveness is not Liveness.LOST:
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
        known = record_end(directory, end)
        if is_crash_loop(known):
            return crash_loop(error, job.step)
        retries_left = self._options.auto_resume and (job.attempt < job.max_attempts or is_spared(known))
        return ending if retries_left else ending._replace(status=JobStatus.INTERRUPTED)

    def _finish(self, job: Job, ending: ExitStatus) -> bool:
        assert ending.status is not None
        return self._store.jobs.finish(
            job.id, job.attempt, ending.status, self._clock(), error=ending.error, result=ending.result
        )

    def _look(self, job: RunningJob, directory: JobDirectory, *, is_alive: bool) -> _Look:
        """Store a job's new outputs with its new events. Return what else is to be stored: events alone, a lease that is due."""
        now, length = self._clock(), timedelta(seconds=self._options.lease_s)
        is_due = is_alive and (job.lease_until is None or not now + length / 2 < job.lease_until <= now + length)
        events = new_events(job.id, directory, job.offsets)
        has_outputs = ingest_outputs(self._store, job.id, directory, now, job.offsets, events)
        if events is not None and job.offsets.get(events.file) == events.end:
            events = None
        return _Look(job.id, has_outputs, events, Lease(job.id, job.attempt, now + length) if is_due else None)

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


def _home_of_folders(store: Store, jobs_dir: Path) -> str | None:
    """Return the home of the newest stored job whose folder is here, or None."""
    specs = [(path.stat().st_mtime, path.parent.name) for path in jobs_dir.glob("job-*/spec.json")]
    for _, job_id in sorted(specs, reverse=True):
        with suppress(NotFound):
            if home := store.jobs.get(job_id).home:
                return home
    return None
