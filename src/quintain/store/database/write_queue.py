"""The order in which processes and threads write to one SQLite database: first come, first served.

SQLite lets a writer that finds the database locked try again after growing pauses, so under load some wait for seconds
while others write again and again. Here they wait for a lock on a file beside the database, which the kernel grants in the
order of the requests. It excludes nobody: `BEGIN IMMEDIATE` does, and a writer that cannot use the queue writes without it.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LONGEST_WAIT_S = 10.0
"""Seconds in the queue after which a writer relies on `BEGIN IMMEDIATE` alone: the one whose turn it is may be suspended."""


@contextmanager
def writers_turn(database: Path, longest_s: float = LONGEST_WAIT_S) -> Iterator[None]:
    """Wait for this writer's turn and keep it, for a transaction that writes; the file that is locked is NAME.queue."""
    descriptor = _locked(database.with_name(f"{database.name}.queue"), longest_s)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _locked(path: Path, longest_s: float) -> int | None:
    """Return a descriptor that has the lock, or None where it cannot be had in time or at all, as on a read-only disk."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        wait = _Wait(descriptor)
        wait.start()
        wait.join(longest_s)
        return None if wait.abandon() else descriptor
    except OSError:  # the file system has no locks
        os.close(descriptor)
        return None
    return descriptor


class _Wait(threading.Thread):
    """A wait for a lock in its own thread, because `flock` has no timeout."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(name="write queue", daemon=True)
        self._descriptor = descriptor
        self._deciding = threading.Lock()
        self._is_over = self._is_abandoned = False

    def run(self) -> None:
        """Wait. If nobody waits for this thread any more, give the turn away."""
        with suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        with self._deciding:
            self._is_over = True
            if self._is_abandoned:
                os.close(self._descriptor)

    def abandon(self) -> bool:
        """Leave the wait to itself. Return False if it is over, so that the lock is the caller's."""
        with self._deciding:
            self._is_abandoned = not self._is_over
            return self._is_abandoned
