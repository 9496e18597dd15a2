"""Seconds of the processor, and the memory of a separate process."""

from __future__ import annotations

import gc
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def cpu_seconds(work: Callable[[], object]) -> float:
    """Seconds of this process's processor time, which others on the machine disturb less than the clock."""
    gc.collect()
    began = time.process_time()
    work()
    return time.process_time() - began


def peak_growth_mb(work: Callable[..., object], *arguments: Any) -> float:
    """MB by which the memory of a fresh process grows at most while it does the work; imports count as part of it."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return float(pool.apply(_grow, (work, arguments)))


_RUN_AND_PRINT_PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def peak_of_command_mb(command: Sequence[str]) -> float:
    """Greatest resident memory of a program that is run to its end, in MB.

    A small process starts it: the kernel counts the memory of the starting process as a program's own.
    """
    starter = [sys.executable, "-S", "-c", _RUN_AND_PRINT_PEAK, *command]
    return int(subprocess.check_output(starter)) * 1024 / 1e6


def peak_of_process_mb(pid: int) -> float:
    """Greatest resident memory of a running process since its start, in MB."""
    return _memory("VmHWM", str(pid)) * 1024 / 1e6


def memory_of_process_mb(pid: int) -> float:
    """Resident memory of a running process, in MB."""
    return _memory("VmRSS", str(pid)) * 1024 / 1e6


def _grow(work: Callable[..., object], arguments: tuple[Any, ...]) -> float:
    before = _memory("VmRSS")
    work(*arguments)
    return (_memory("VmHWM") - before) / 1024


def _memory(field: str, process: str = "self") -> int:
    """KiB; the peak is that of the program since its start (proc(5)), not of the process that started it."""
    for line in Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise LookupError(f"/proc/{process}/status has no {field}")
