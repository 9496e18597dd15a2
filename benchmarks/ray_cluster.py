"""A real Ray cluster of one machine, for benchmarks and tests."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.machine import free_port

_TRIES = 3
"""Starts of a cluster on a busy machine."""


@dataclass
class RayHead:
    """The head of a cluster, with its dashboard on this machine."""

    known: set[psutil.Process]
    address: str

    def parts(self) -> list[psutil.Process]:
        """Every live process of the cluster, jobs included, even where its parent was killed."""
        for process in list(self.known):
            with suppress(psutil.NoSuchProcess):
                self.known.update(process.children(recursive=True))
        return [process for process in self.known if process.is_running()]

    def send(self, number: signal.Signals, *names: str) -> None:
        """Send a signal to the processes whose name or command line contains one of these words; without words to all."""
        for part in self.parts():
            with suppress(psutil.NoSuchProcess):
                if not names or any(name in " ".join((part.name(), *part.cmdline())) for name in names):
                    part.send_signal(number)


@contextmanager
def ray_head() -> Iterator[RayHead]:
    """Start a cluster of two CPUs, and end every process of it."""
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:  # sockets need a short path
        head = RayHead(set(), "")
        try:
            head.address = _start(folder)
            head.known.update(_processes_of(folder))
            yield head
        finally:
            head.known.update(_processes_of(folder))
            parts = head.parts()
            head.send(signal.SIGKILL)
            psutil.wait_procs(parts, timeout=10)


def _start(folder: str) -> str:
    """Start a head and return its address; again where the machine is too busy for Ray's time limits.

    Raises:
        RuntimeError: It has failed three times.
    """
    output = ""
    for _ in range(_TRIES):
        dashboard, agent = free_port(), free_port()
        # Not --block: its parts would end with the first that is killed.
        argv = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--port=0", "--num-cpus=2"]
        argv += [f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={agent}", f"--temp-dir={folder}"]
        argv += ["--disable-usage-stats", "--object-store-memory=80000000"]
        argv += ["--no-monitor", "--include-log-monitor=false"]  # nothing here scales, and a job's log is its driver's
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode == 0:
            address = f"http://127.0.0.1:{dashboard}"
            _wait_for(f"{address}/api/version")
            return address
        output = done.stdout[-2000:] + done.stderr[-2000:]
        RayHead(_processes_of(folder), "").send(signal.SIGKILL)
    raise RuntimeError(f"ray start has failed {_TRIES} times: {output}")


def _processes_of(folder: str) -> set[psutil.Process]:
    """The processes whose command line names the cluster's folder: all that are not jobs."""
    found = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if folder in " ".join(process.cmdline()):
                found.add(process)
    return found


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + 120
    while True:
        assert time.monotonic() < deadline, "Ray does not answer"
        with suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(0.1)
