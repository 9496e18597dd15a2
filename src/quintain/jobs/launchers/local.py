"""The launcher of this machine: a detached shim, which holds the job's lock as long as it or its worker lives."""

from __future__ import annotations

from quintain.errors import Unavailable
from quintain.jobs import processes
from quintain.jobs.directory import JobDirectory
from quintain.jobs.launchers.contract import Attempt, ClusterOptions


class LocalLauncher:
    """Starts processes on this machine. An attempt with a free lock is dead."""

    is_remote = False
    spans_machines = True  # the operator starts the processes of the others
    poll_s = 0.0
    settle_s = 0.0

    def __init__(self, options: ClusterOptions) -> None:
        pass

    def start(self, attempt: Attempt) -> None:
        """Start the shim, which inherits the lock."""
        assert attempt.lock is not None
        processes.start_detached(attempt.command, attempt.lock, attempt.environment)

    def alive(self, attempt: Attempt) -> bool | None:
        """Return False for an attempt that began, and None for another: the caller has the lock.

        Raises:
            Unavailable: It was started on another machine, whose locks are not certain to be visible here.
        """
        if not processes.is_this_machine(attempt.machine):
            raise Unavailable(f"expected an attempt of this machine, got one of {attempt.machine}; run a server there")
        return False if JobDirectory(attempt.folder).has_begun(attempt.number) else None

    def cancel(self, attempt: Attempt) -> None:
        """Do nothing: the shim obeys `cancel` in the job's folder."""

    def log(self, attempt: Attempt) -> str:
        """Return nothing: the whole output is in the job's log."""
        return ""

    def exit(self, attempt: Attempt) -> str:
        """Return nothing: the shim records the exit."""
        return ""
