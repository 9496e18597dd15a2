"""What else the machine does: its load, processes that keep it busy, and free ports."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def load_average() -> float:
    """Return the mean number of runnable processes of the last minute."""
    return round(os.getloadavg()[0], 1)


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Let so many processes compute without pause."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
