"""The contract of launchers, which packages implement for other schedulers (entry-point group `quintain.launchers`).

A launcher starts a command on a machine that sees the job's folder, and answers for it. Everything else is the same for
all: the command is the job's shim (jobs/shim.py), which starts the worker, bounds its log, obeys `cancel` in the folder,
and records heartbeats and exit there.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

GROUP = "quintain.launchers"
"""Entry-point group; each entry names a `LauncherFactory`."""


@dataclass(frozen=True)
class ClusterOptions:
    """Operator settings for launchers other than this machine."""

    ray_address: str | None = None
    """Address of the Ray cluster."""
    slurm_options: str = ""
    """Further options of sbatch, quoted as in a shell."""
    cpus: int | None = None
    """CPU cores of a job. Null: the cluster's default."""
    gpus: int = 0
    """GPUs for each process of a training and each local actor; at least one process."""
    environment: tuple[str, ...] = ()
    """Names of environment variables that workers get from the server."""

    @property
    def slurm_arguments(self) -> list[str]:
        """Options of sbatch as arguments."""
        return shlex.split(self.slurm_options)


@dataclass(frozen=True)
class Attempt:
    """One attempt of a job as launchers know it."""

    job_id: str
    number: int
    token: str
    """Random text of this start. Another start of the same attempt has another one."""
    folder: Path
    """The job's folder, under the same path on every machine that may run it."""
    machine: str = ""
    """The machine that started it."""
    command: tuple[str, ...] = ()
    """Supervises the worker until both have ended. Only for `start`, like the fields below."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the command beside those of its machine. They may be secret."""
    devices: int = 0
    """Devices that the attempt can use on each machine."""
    machines: int = 1
    """Machines that the attempt needs at once; the command runs on the first."""
    port: int | None = None
    """Port of the first machine where the others connect. The command takes `HOST:PORT` as a further argument."""
    rank_launcher: tuple[str, ...] = ()
    """Torch's launcher for each of the other machines; it needs `--master-addr` and `--node-rank`, from 1, and the program."""
    rank_program: tuple[str, ...] = ()
    """Program of the launcher."""
    lock: int | None = None
    """Descriptor of the job's lock, for launchers on this machine."""

    @property
    def name(self) -> str:
        """Name of this start, unique among all."""
        return f"quintain-{self.job_id}-{self.number}-{self.token}"


class Launcher(Protocol):
    """Starts attempts and answers for them. Methods are called by one thread at a time."""

    is_remote: bool
    """Whether attempts may run on other machines, without the job's lock."""
    spans_machines: bool
    """Whether it can start an attempt on several machines."""
    poll_s: float
    """Least seconds between two calls of `alive` for one attempt."""
    settle_s: float
    """Seconds until files written by an ended attempt are visible here."""

    def start(self, attempt: Attempt) -> None:
        """Start or enqueue the attempt's command.

        Raises:
            Unavailable: The back end does not answer; a later start may succeed.
            OSError: The back end refuses this start.
        """

    def alive(self, attempt: Attempt) -> bool | None:
        """Whether the attempt waits or runs. None: the back end does not know it.

        Raises:
            Unavailable: The back end does not answer.
        """

    def cancel(self, attempt: Attempt) -> None:
        """Remove the attempt from the back end's queue, or end its processes. An ended or unknown attempt is ignored.

        Raises:
            Unavailable: The back end does not answer.
        """

    def log(self, attempt: Attempt) -> str:
        """Return what the back end recorded of the command's output, for attempts whose own log is empty."""

    def exit(self, attempt: Attempt) -> str:
        """Return how the attempt ended in the words of the back end, such as `OUT_OF_MEMORY`; empty if unknown."""


LauncherFactory = Callable[[ClusterOptions], Launcher]
