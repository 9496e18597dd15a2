"""What the operating system gives to jobs: file locks that die with their holder, detached processes, and their end.

All that is special to POSIX is here and in the shim. On Windows, quintain runs under WSL.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

JOB_VARIABLE = "QUINTAIN_JOB"
"""Environment variable that every process of a worker carries: the id of its job."""


def try_lock(path: Path) -> int | None:
    """Take the exclusive lock on a file; returns its descriptor, or None where another process holds it (or alone may).

    The lock belongs to the open file: it is held until `unlock`, or until every process that inherited the descriptor
    has closed it or died.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
            return None  # someone else's home: it may be read, its jobs are for others to tend
        raise
    return _locked(descriptor)


def try_lock_folder(path: Path) -> int | None:
    """The same lock on a folder that is there: the descriptor, or None where another process holds it."""
    return _locked(os.open(path, os.O_RDONLY))


def _locked(descriptor: int) -> int | None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def unlock(descriptor: int) -> None:
    """Give the lock back, also where a process that is just being forked has a copy of the descriptor."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


@contextmanager
def elected(path: Path, wait_s: float) -> Iterator[bool]:
    """Hold the lock on `path`; yields False where another process held it for the whole of `wait_s`."""
    deadline = time.monotonic() + wait_s
    while (descriptor := try_lock(path)) is None and time.monotonic() < deadline:
        time.sleep(0.02)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            unlock(descriptor)


def start_detached(argv: Sequence[str], descriptor: int) -> None:
    """Start a process that outlives this one and inherits `descriptor`; returns when its first half has ended.

    The process forks itself once it works and its first half exits with 0 (jobs/shim): so nothing is left to reap here.

    Raises:
        OSError: it could not be started, or did not come to work.
    """
    nowhere = subprocess.DEVNULL
    process = subprocess.Popen(
        argv, stdin=nowhere, stdout=nowhere, stderr=nowhere, pass_fds=(descriptor,), start_new_session=True, cwd="/"
    )
    if (code := process.wait()) != 0:
        raise ChildProcessError(f"its supervisor ended with {code} before the worker ran")


def kill_leftovers(job_id: str) -> None:
    """SIGKILL to what a worker left behind when it and its shim died together.

    Only Linux needs it: elsewhere the worker itself takes its group along (worker/lifeline).
    """
    if sys.platform != "linux":
        return
    marker = f"{JOB_VARIABLE}={job_id}".encode()
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                if marker in Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry), signal.SIGKILL)
            except OSError:  # it has ended, or belongs to someone else
                continue
