"""Supervisor of one job: starts the worker, bounds its log, enforces limits and a cancel, records the exit.

Run by file path (`python -I -S shim.py JOB_DIR [TOKEN [ARGUMENT...]]`) and limited to the standard library, so that it starts within
milliseconds, stays small, and is not affected by an upgrade of the package under a running job.

On the machine of its starter, the shim inherits the job's lock and passes it on to the worker. The job is alive while the
lock is held, independent of clocks, process ids and heartbeats. On another machine it gets the token of its start instead:
it ends its worker when `launch.json` has another token, or when it could not write a heartbeat for the time of a lease. So
a start that is taken for dead by then is dead. All other parameters are in `launch.json` (quintain.jobs.launch).
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

POLL_S = 0.05
LIMITS_S = 1.0
"""Seconds between two looks at the limits of a job."""
MEMORY_SHARE = 0.9
"""Share of all memory that is the default limit: a machine without any hardly goes on, and its kernel may kill nothing."""
CHUNK = 65_536
PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4


class LogRing:
    """The first and the last `bound` bytes of a stream, in files that can be read at any time.

    The head is `log`. The tail is stored in segments of half the bound, named by their offset in the stream
    (`log.4194304`), of which the newest two are kept. The offsets show how much was dropped, even after a kill -9.
    """

    def __init__(self, folder: str, bound: int) -> None:
        self.folder, self.bound = folder, bound
        start = max(self._segments(), default=0)  # a later attempt continues the stream
        self.file = self._open(start)
        size = os.fstat(self.file).st_size
        self.offset = start + size
        self.room = (bound if start == 0 else bound // 2) - size

    def write(self, data: bytes) -> None:
        """Append to the stream. A full disk loses log lines only."""
        while data:
            if self.room <= 0:
                self._next_segment()
            part, data = data[: self.room], data[self.room :]
            with suppress(OSError):
                os.write(self.file, part)
            self.offset += len(part)
            self.room -= len(part)

    def _next_segment(self) -> None:
        os.close(self.file)
        for old in self._segments()[:-1]:
            os.unlink(self._path(old))
        self.file = self._open(self.offset)
        self.room = self.bound // 2

    def _open(self, start: int) -> int:
        return os.open(self._path(start), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def _path(self, start: int) -> str:
        return os.path.join(self.folder, f"log.{start}" if start else "log")

    def _segments(self) -> list[int]:
        names = (name.removeprefix("log.") for name in os.listdir(self.folder) if name.startswith("log."))
        return sorted(int(name) for name in names if name.isdigit())


class Limits:
    """Limits of one attempt from `launch.json`, all optional. Times are monotonic."""

    def __init__(self, folder: str, launch: dict[str, Any]) -> None:
        self.folder = folder
        self.begin = self.next_look = self.last_report = time.monotonic()
        self.reported = -1
        self.oom_kills, self.memory_mb = group_memory()
        self.limits = {"memory_mb": MEMORY_SHARE * self.memory_mb} | {k: v for k, v in launch.items() if v is not None}

    def exceeded(self, worker: int) -> dict[str, str] | None:
        """Return the first limit that is exceeded, with its figures, or None."""
        now = time.monotonic()
        if now < self.next_look:
            return None
        self.next_look = now + LIMITS_S
        if (size := file_size(os.path.join(self.folder, "events.jsonl"))) != self.reported:
            self.reported, self.last_report = size, now
        looks: dict[str, tuple[str, Callable[[], float], str]] = {
            "stalled": ("stall_s", lambda: now - self.last_report, "no report for {:.0f} s"),
            "time_limit": ("max_s", lambda: now - self.begin, "it ran for {:.0f} s"),
            "memory_limit": ("memory_mb", lambda: memory_mb(worker), "it used {:.0f} MiB of memory"),
            "disk_limit": ("disk_mb", lambda: folder_mb(self.folder), "its folder has {:.0f} MiB"),
        }
        for reason, (name, measure, words) in looks.items():
            limit = self.limits.get(name)
            if limit is not None and (value := measure()) > limit:
                return {"reason": reason, "detail": f"{words.format(value)}, the limit is {limit:g}"}
        return None

    def killed_for_memory(self) -> dict[str, str]:
        """Return why the worker ended, if the kernel counted a kill for lack of memory meanwhile."""
        return {"reason": "out_of_memory"} if group_memory()[0] > self.oom_kills else {}


class Shim:
    """One attempt of a job, from the start of its worker to its exit record."""

    def __init__(self, folder: str, token: str | None = None, arguments: Sequence[str] = ()) -> None:
        self.folder = folder
        self.launch = self.read_launch()
        self.token = token
        self.arguments = arguments
        if self.is_superseded():
            raise SystemExit(f"another start of {folder} has replaced this one")
        self.lock: int | None = self.launch["lock_fd"]
        self.log = LogRing(folder, self.launch["log_bytes"])
        self.limits = Limits(folder, self.launch)
        self.terminated, self.beats = False, 0
        self.last_beat = self.next_beat = time.monotonic()

    def path(self, name: str) -> str:
        """Return the path of a file in the job directory."""
        return os.path.join(self.folder, name)

    def read_launch(self) -> dict[str, Any]:
        """Read `launch.json`."""
        with open(self.path("launch.json"), encoding="utf-8") as file:
            launch: dict[str, Any] = json.load(file)
        return launch

    def is_superseded(self) -> bool:
        """Whether this start, on another machine than its starter's, has been replaced."""
        return self.token is not None and self.read_launch().get("token") != self.token

    def beat(self) -> bool:
        """Write a heartbeat if one is due. Return False if this start has to end."""
        now = time.monotonic()
        if now < self.next_beat:
            # Both are gone where the job's folder was deleted.
            return self.lock is None or os.fstat(self.lock).st_nlink > 0 or os.path.exists(self.path("launch.json"))
        self.beats += 1
        self.next_beat = now + self.launch["beat_s"]
        with suppress(OSError):
            if self.is_superseded():
                self.log.write(b"supervisor: another start has replaced this one\n")
                return False
            # In place, because a full disk must not look like death.
            file = os.open(self.path("heartbeat"), os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.pwrite(file, f"{self.launch['token']} {self.beats:012d}\n".encode(), 0)
            finally:
                os.close(file)
            self.last_beat = now
        if self.token is None or now - self.last_beat < self.launch["lease_s"]:
            return True
        self.log.write(b"supervisor: the job's folder could not be written for the time of a lease\n")
        return False

    def supervise(self, ready: Callable[[], None]) -> int | None:
        """Run the worker to its end. `ready` is called once it runs.

        Returns:
            The worker's exit code, negative for a signal. None if this start had to end, without a record.
        """
        signal.signal(signal.SIGTERM, self._on_sigterm)
        attempt = self.launch["attempt"]
        # Written before the worker exists: a job without this record never began the attempt.
        self.record("shim.json", {"attempt": attempt, "shim": os.getpid(), "worker": None})
        worker = self.start_worker()
        self.record("shim.json", {"attempt": attempt, "shim": os.getpid(), "worker": worker.pid})
        ready()
        cancelled = forced = False
        limit: dict[str, str] | None = None
        deadline: float | None = None
        while worker.poll() is None:
            self.pump(worker, POLL_S)
            if not self.beat():
                kill_group(worker.pid)
                return None
            if deadline is None:
                cancelled = os.path.exists(self.path("cancel"))
                limit = None if cancelled else self.limits.exceeded(worker.pid)
                if cancelled or limit or self.terminated:
                    # Only the worker: its child processes end with it, or with the group below. A suspended one goes on first.
                    worker.send_signal(signal.SIGTERM)
                    worker.send_signal(signal.SIGCONT)
                    deadline = time.monotonic() + self.launch["grace_s"]
            elif time.monotonic() >= deadline and not forced:
                forced = True
                kill_group(worker.pid)
        kill_group(worker.pid)
        self.drain(worker)
        code = worker.returncode
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)
        self.record(
            "exit.json",
            {
                "attempt": attempt,
                "returncode": code if code >= 0 else None,
                "signal": -code if code < 0 else None,
                "cancelled": cancelled,
                "forced": forced,
                "peak_rss_mb": round(peak, 1),
                "memory_mb": round(self.limits.memory_mb),
                "ended_at": datetime.now(UTC).isoformat(),
                **(limit or self.limits.killed_for_memory()),
            },
            durable=True,
        )
        return code

    def start_worker(self) -> subprocess.Popen[bytes]:
        """Start the worker in a new session, with the job's lock, and tied to this process through its stdin."""
        env = {name: value for name, value in {**os.environ, **self.launch["env"]}.items() if value is not None}
        return subprocess.Popen(
            [*self.launch["worker"], *self.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            start_new_session=True,
            pass_fds=() if self.lock is None else (self.lock,),
            preexec_fn=die_with_parent(os.getpid()),
            env=env,
            cwd=self.folder,
        )

    def pump(self, worker: subprocess.Popen[bytes], wait_s: float) -> bool:
        """Copy worker output to the log. Return False if there was none for `wait_s` seconds."""
        pipe = worker.stdout
        if pipe is None or pipe.closed:
            time.sleep(wait_s)
            return False
        if not select.select([pipe], [], [], wait_s)[0]:
            return False
        data = os.read(pipe.fileno(), CHUNK)
        if not data:
            pipe.close()
            return False
        self.log.write(data)
        return True

    def drain(self, worker: subprocess.Popen[bytes]) -> None:
        """Read the rest of the pipe, with a time limit because a process that left the group may keep it open."""
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline and self.pump(worker, 0.0):
            pass

    def record(self, name: str, content: dict[str, Any], *, durable: bool = False) -> None:
        """Write a file of the job directory atomically."""
        aside = self.path(f".{name}.{os.getpid()}")
        with open(aside, "w", encoding="utf-8") as file:
            try:
                json.dump(content, file)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            except OSError:
                os.unlink(aside)  # a partial file must not fill the disk
                raise
        os.replace(aside, self.path(name))

    def reconcile(self) -> None:
        """Replace this process by the reconciler, which ingests this job and starts the next one without a server."""
        # An explicit unlock frees the job even if a copy of the descriptor escaped.
        assert self.lock is not None
        fcntl.flock(self.lock, fcntl.LOCK_UN)
        if not self.terminated:
            errors = os.open(self.path("reconcile.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(errors, 2)
            os.execv(self.launch["reconcile"][0], self.launch["reconcile"])

    def _on_sigterm(self, *_: object) -> None:
        self.terminated = True  # shutdown of the machine: stop the worker and start nothing new


def kill_group(leader: int) -> None:
    """Send SIGKILL to every process of the worker's group."""
    with suppress(ProcessLookupError, PermissionError):  # macOS returns EPERM for a group of zombies
        os.killpg(leader, signal.SIGKILL)


def file_size(path: str, *, shared: bool = True) -> int:
    """Return the bytes of a file; 0 if it does not exist, or has links elsewhere and `shared` is False."""
    with suppress(OSError):
        found = os.lstat(path)
        return found.st_size if shared or found.st_nlink == 1 else 0
    return 0


def group_memory(groups: str = "/proc/self/cgroup", mount: str = "/sys/fs/cgroup") -> tuple[int, float]:
    """Return how often the kernel killed a process of this control group for lack of memory, and the group's limit in MiB.

    Both versions of cgroups(7) are read. Without a count it is 0, without a limit the memory of the machine. A container may
    see the group's path on its host, and the group as the root of the mount: so its parents are read too.
    """
    folders: list[str] = []
    with suppress(OSError, ValueError), open(groups, encoding="utf-8") as file:
        for _, controllers, path in (line.rstrip("\n").split(":", 2) for line in file):
            if not controllers or "memory" in controllers.split(","):
                top, names = os.path.join(mount, "memory" if controllers else ""), path.strip("/").split("/")
                folders += [os.path.join(top, *names[:n]) for n in range(len(names), -1, -1)]
    kills, limits = [], [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in ("memory.events", "memory.max", "memory.oom_control", "memory.limit_in_bytes"):
        for folder in folders:
            with suppress(OSError, ValueError), open(os.path.join(folder, name), encoding="ascii") as file:
                words = file.read().split()
                if len(words) == 1:
                    limits.append(int(words[0]))
                else:
                    kills.append(int(words[words.index("oom_kill") + 1]))
    return next(iter(kills), 0), min(limits) / 1024**2


def memory_mb(leader: int) -> float:
    """Return the memory in MiB that a process and its descendants have for themselves; 0 where the system does not tell."""
    total, waiting = 0, [leader]
    while waiting:
        process = waiting.pop()
        try:
            with open(f"/proc/{process}/statm", encoding="ascii") as file:
                resident, shared = (int(pages) for pages in file.read().split()[1:3])
                total += (resident - shared) * os.sysconf("SC_PAGE_SIZE")
            for task in os.listdir(f"/proc/{process}/task"):
                with open(f"/proc/{process}/task/{task}/children", encoding="ascii") as file:
                    waiting += [int(child) for child in file.read().split()]
        except OSError:  # ended in the meantime
            continue
    return total / 1024**2


def folder_mb(folder: str) -> float:
    """Return the size in MiB of the files below a folder, without those that another folder shares."""
    files = (os.path.join(path, name) for path, _, names in os.walk(folder) for name in names)
    return sum(file_size(path, shared=False) for path in files) / 1024**2


def die_with_parent(parent: int) -> Callable[[], None] | None:
    """Make the Linux kernel kill the worker when the shim dies. Elsewhere the worker watches its stdin."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)

    def bind() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before prctl
            os._exit(1)

    return bind


def main(folder: str) -> None:
    """Fork: the parent exits once the worker runs, so that the starter can reap it; the child supervises."""
    if sys.platform == "linux":  # so that /proc does not show the environment, which has the URL of the database
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0)
    wait, ready = os.pipe()
    if os.fork():
        os.close(ready)
        os._exit(0 if os.read(wait, 1) else 1)
    os.close(wait)
    shim = Shim(folder)

    def notify() -> None:
        os.write(ready, b"!")
        os.close(ready)

    try:
        if shim.supervise(notify) is None:
            return
    except Exception as error:
        shim.log.write(f"supervisor of this job failed: {type(error).__name__}: {error}\n".encode())
        raise
    shim.reconcile()


def main_of_other_machine(folder: str, token: str, *arguments: str) -> int:
    """Supervise in the foreground, for a launcher that follows this process. Return the exit code."""
    shim = Shim(folder, token, arguments)
    os.write(1, f"quintain: the log of this job is in {folder}\n".encode())
    code = shim.supervise(lambda: None)
    return code if code is not None and code >= 0 else 1


if __name__ == "__main__":
    if sys.argv[2:]:
        sys.exit(main_of_other_machine(*sys.argv[1:]))
    main(sys.argv[1])
