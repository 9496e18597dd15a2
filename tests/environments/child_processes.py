"""Process groups of environments: whether they have ended."""

from __future__ import annotations

import os
import time

import psutil


def _is_alive(pid: int, group: int) -> bool:
    try:
        return os.getpgid(pid) == group and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False


def group_is_gone(group: int) -> bool:
    """Whether every process of a group ends within 60 s. A process that nobody has waited for yet has ended."""
    deadline = time.monotonic() + 60
    while any(_is_alive(pid, group) for pid in psutil.pids()):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
