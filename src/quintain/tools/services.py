"""Services: the only composition root of the parent process, shared by server, CLI and facade.

The store is imported when services open, not when this module is: a server answers `tools/list` without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from quintain.environments.configuration import configure
from quintain.errors import REFUSED_BY_DISK, NotFound, QuintainError, Unavailable, disk_remedy
from quintain.settings import Settings

if TYPE_CHECKING:
    from quintain.jobs.runner import JobRunner
    from quintain.records.agent import Agent
    from quintain.store.store import Store


T = TypeVar("T")


@dataclass(frozen=True)
class Services:
    """The dependencies of a tool function."""

    settings: Settings
    store: Store
    jobs: JobRunner
    clock: Callable[[], datetime]
    trusted: bool = False
    """True for the facade and the CLI, whose caller is the user: they accept any path."""
    planned: Mapping[str, Agent] = field(default_factory=dict)
    """Name -> agent that earlier stages of a recipe will have made, without an id: the job puts the made one in its place."""

    def redacted(self, text: str) -> str:
        """Return a text without what the operator has redacted."""
        from quintain.redaction.redact import redact_text  # few calls store a text of their own

        return redact_text(text, self.settings.redact)[0]

    def close(self) -> None:
        """Close the database; running jobs continue."""
        self.store.close()


def find(get: Callable[[str], T], reference: str) -> T | None:
    """Return what a `get` of the store returns; None: nothing has this id or name, or it was deleted."""
    try:
        return get(reference)
    except NotFound:
        return None


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def open_services(settings: Settings, *, trusted: bool = False) -> Services:
    """Create the home folder, open the store (with a migration where one is due) and connect the job runner.

    Raises:
        Unavailable: the home folder is not writable, or the database is newer than this program.
    """
    try:
        return _open(settings, trusted=trusted)
    except QuintainError:
        raise
    except OSError as error:
        remedy = "free disk space, or set QUINTAIN_HOME to a folder that this user may write"
        raise Unavailable(
            f"cannot create or write the home folder {str(settings.home)!r} ({error.strerror}); "
            f"{disk_remedy(error) if error.errno in REFUSED_BY_DISK else remedy}"
        ) from error


def _open(settings: Settings, *, trusted: bool) -> Services:
    from quintain.jobs.launch import JobLimits
    from quintain.jobs.launchers.contract import ClusterOptions
    from quintain.jobs.runner import JobOptions, JobRunner
    from quintain.store.store import open_store

    folders = (settings.home, settings.jobs_dir, settings.datasets_dir, settings.agents_dir, settings.inbox_dir)
    for folder in folders:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    configure(settings.environments_file, endpoints=settings.endpoints_file)
    store = open_store(settings.url)
    options = JobOptions(
        jobs_dir=settings.jobs_dir,
        slots=settings.slots,
        max_attempts=settings.max_attempts,
        auto_resume=settings.auto_resume,
        grace_s=settings.grace_s,
        launcher=settings.launcher,
        cluster=ClusterOptions(
            settings.ray_address,
            settings.slurm_options,
            settings.cluster_cpus,
            settings.cluster_gpus,
            settings.cluster_env,
        ),
        devices=settings.devices,
        lease_s=settings.lease_s,
        limits=JobLimits(
            _seconds(settings.stall_minutes),
            _seconds(settings.max_minutes),
            settings.job_memory_mb,
            settings.job_disk_mb,
        ),
    )
    return Services(settings, store, JobRunner(store, options, utc_now), utc_now, trusted)


def _seconds(minutes: float | None) -> float | None:
    return None if minutes is None else 60 * minutes
