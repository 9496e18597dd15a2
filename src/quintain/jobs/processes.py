"""Operating system services for jobs: file locks that die with their holder, and detached processes.

All POSIX-specific code is here and in the shim. On Windows, quintain runs under WSL.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from quintain.files import write_file

JOB_VARIABLE = "QUINTAIN_JOB"
"""Environment variable with the mark of a job's folder, set for every process of a worker."""


def mark(folder: Path) -> str:
    """Return what tells the processes of a job's folder from those of a copy, which has the same id."""
    return f"{folder.name}/{folder.stat().st_ino}"


def try_lock(path: Path) -> int | None:
    """Take the exclusive lock on a file. Return its descriptor, or None if it is locked or not writable.

    The lock belongs to the open file. It is held until `unlock`, or until every process that inherited the descriptor
    has closed it or died.
    """
    flags = os.O_RDWR | os.O_CREAT
    try:
        try:
            descriptor = os.open(path, flags, 0o600)
        except FileNotFoundError:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
            return None  # a read-only home: its jobs are reconciled by its owner
        raise
    return _flock(descriptor)


def try_lock_folder(path: Path) -> int | None:
    """Take the lock on an existing folder. Return its descriptor, or None if another process holds it."""
    return _flock(os.open(path, os.O_RDONLY))


def _flock(descriptor: int) -> int | None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def read_locked(path: Path, most: int) -> bytes | None:
    """Return the first `most` bytes of a file that is locked by `try_lock`; None where it is missing or nobody locks it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(descriptor, most)
    except OSError:
        return None
    else:
        return None
    finally:
        os.close(descriptor)


def unlock(descriptor: int) -> None:
    """Release the lock, even if a process that is being forked has a copy of the descriptor."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


@contextmanager
def leader_lock(path: Path, wait_s: float) -> Iterator[bool]:
    """Hold the lock on `path`. Yield False if another process held it for all of `wait_s`."""
    deadline = time.monotonic() + wait_s
    while (descriptor := try_lock(path)) is None and time.monotonic() < deadline:
        time.sleep(0.02)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            unlock(descriptor)


def home_id(jobs_dir: Path, lost: Callable[[], str | None] = lambda: None) -> str | None:
    """Return the id of a jobs folder, created at first use; None if the folder is read-only.

    Servers that see the same folder, on one machine or several, have the same id. `lost` returns the id that the folder had if
    its file was lost or damaged.
    """
    path = jobs_dir / "home_id"
    while (found := read_home_id(jobs_dir)) is None:
        with leader_lock(path, 10.0) as is_leader:
            if not is_leader and not os.access(jobs_dir, os.W_OK):
                return None
            if is_leader and read_home_id(jobs_dir) is None:
                name = "".join(sign for sign in socket.gethostname() if sign.isalnum() or sign in ".-")[:60]
                found = lost() or f"{name}-{uuid.uuid4().hex[:12]}"
                write_file(path, f"{found}\n".encode("ascii"))
    return found


def read_home_id(jobs_dir: Path) -> str | None:
    """Return the id of a jobs folder, or None: it is new, its file is damaged, or its file system is not mounted."""
    try:
        text = (jobs_dir / "home_id").read_text(encoding="ascii")
    except (FileNotFoundError, UnicodeDecodeError):
        return None
    return text.strip() or None if text.endswith("\n") else None


def start_detached(argv: Sequence[str], descriptor: int, env: Mapping[str, str]) -> None:
    """Start a process that outlives this one and inherits `descriptor` and the environment, with the variables `env`.

    The process forks once it works, and its parent half exits with 0 (jobs/shim.py), so nothing is left to reap.

    Raises:
        OSError: The process could not start, or failed before the fork.
    """
    nowhere = subprocess.DEVNULL
    process = subprocess.Popen(
        argv,
        stdin=nowhere,
        stdout=nowhere,
        stderr=nowhere,
        pass_fds=(descriptor,),
        start_new_session=True,
        cwd="/",
        env={**os.environ, **env},
    )
    if (code := process.wait()) != 0:
        raise ChildProcessError(f"the job's supervisor exited with {code} before the worker started")


@cache
def this_machine() -> str:
    """Return the identity of this machine for `is_this_machine`: its name, and the id of the kernel's last start."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        boot = "-"
    return f"{socket.gethostname()}/{boot}"


def is_this_machine(machine: str) -> bool:
    """Whether an identity is that of this machine: the same kernel (containers included), or the same name (restarts).

    Locks of files are certain to exclude processes of the same machine only.
    """
    name, _, boot = machine.partition("/")
    own_name, _, own_boot = this_machine().partition("/")
    return not machine or name == own_name or (boot == own_boot and boot != "-")


def is_suspended(pid: int) -> bool:
    """Whether a process, or one below it, is stopped by a signal, such as SIGSTOP. False where this is unknown: without /proc, or ended."""
    waiting = [pid]
    while waiting:
        process = Path("/proc", str(waiting.pop()))
        try:
            if (process / "stat").read_bytes().rpartition(b") ")[2][:1] in b"Tt":
                return True
            for task in (process / "task").iterdir():
                waiting += map(int, (task / "children").read_bytes().split())
        except OSError:
            continue
    return False


def processes_by_mark() -> dict[str, list[int]]:
    """Return the marks of jobs' folders with the processes that bear them; none where there is no /proc."""
    found: dict[str, list[int]] = {}
    for entry in os.listdir("/proc") if sys.platform == "linux" else ():
        if entry.isdigit() and int(entry) != os.getpid() and (borne := _mark_of(int(entry))) is not None:
            found.setdefault(borne, []).append(int(entry))
    return found


def _mark_of(pid: int) -> str | None:
    try:
        variables = Path("/proc", str(pid), "environ").read_bytes().split(b"\0")
    except OSError:  # ended, or owned by another user
        return None
    values = (value for name, _, value in (one.partition(b"=") for one in variables) if name == JOB_VARIABLE.encode())
    return next((os.fsdecode(value) for value in values), None)


def kill_orphans(folder: Path, found: Mapping[str, Sequence[int]]) -> None:
    """Kill processes that a worker of a job's folder left behind: in sessions of their own, or when it died with its shim.

    Only needed on Linux. Elsewhere the worker kills its own group (worker/processes/parent_watch.py).

    Args:
        folder: The job's folder.
        found: What `processes_by_mark` returned; those that have ended since then are passed over.
    """
    own = mark(folder)
    for pid in found.get(own, ()):
        with suppress(OSError):
            if _mark_of(pid) == own:
                os.kill(pid, signal.SIGKILL)
