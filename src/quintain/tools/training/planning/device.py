"""The device that a job would get: its kind, free memory, processors, their rate and load, and free disk space."""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import time
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from quintain.jobs.devices import query_gpus

_MB = 2**20

_SHAPE = (2048, 512, 1408)
"""Rows, inner and outer width of the measured product, as a job measures it (trainers/engine/machine.py)."""

_ROUNDS = 5
_BF16_FLAGS = ("amx_bf16", "avx512_bf16", "bf16", "svebf16")


class Device(NamedTuple):
    """The device of a job."""

    kind: Literal["cpu", "cuda", "mps"]
    memory_mb: float | None
    """Free memory now; None where unknown."""
    threads: int
    """Processors that a job may use."""
    is_stated: bool = False


def look_at_device(memory_gb: float | None = None) -> Device:
    """Return the device that a job would pick: CUDA where the driver and torch have it, else Apple's, else the CPU.

    A GPU that is hidden from jobs (CUDA_VISIBLE_DEVICES) is seen all the same.

    `memory_gb`, in GB of 1024 MiB, takes the place of what is free here.
    """
    found = _device()
    return found if memory_gb is None else found._replace(memory_mb=memory_gb * 1024, is_stated=True)


def _device() -> Device:
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if (free := _cuda_free_mb()) is not None:
        return Device("cuda", free, threads)
    if platform.system() == "Darwin" and platform.machine() == "arm64":
        return Device("mps", _physical_mb(), threads)
    return Device("cpu", _free_mb(), threads)


def has_bf16(processor: Path = Path("/proc/cpuinfo")) -> bool | None:
    """Return whether the processor multiplies bf16 itself, by the flags that Linux lists; None where unknown.

    The flags are amx_bf16 and avx512_bf16 (x86), and bf16 and svebf16 (ARM).
    """
    try:
        lines = processor.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    listed = (line.partition(":") for line in lines)
    flags = next((value.split() for name, _, value in listed if name.strip() in ("flags", "Features")), None)
    return None if flags is None else any(flag in _BF16_FLAGS for flag in flags)


def slowdown(device: Device) -> float:
    """Return the slowdown of a new process by the current load; 1 where unknown."""
    if not hasattr(os, "getloadavg"):
        return 1.0
    return max(1.0, (os.getloadavg()[0] + 1.0) / device.threads)


def free_disk_mb(folder: Path) -> float | None:
    """Return the free space of the file system of a folder; None where unknown."""
    try:
        return shutil.disk_usage(folder).free / _MB
    except OSError:
        return None


@cache
def matmul_flops() -> float:
    """Median rate of a few float32 matrix products of a model's shape on all threads, in FLOP/s; measured once."""
    import numpy as np  # the server does without it until it plans

    m, k, n = _SHAPE
    a, b = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
    times = []
    for _ in range(1 + _ROUNDS):
        start = time.perf_counter()
        a @ b
        times.append(time.perf_counter() - start)
    return 2.0 * m * k * n / statistics.median(times[1:])


def _cuda_free_mb() -> float | None:
    """Free memory of the emptiest NVIDIA GPU; None where there is none, or torch is built without CUDA."""
    try:
        return max((float(free) for free in query_gpus("memory.free")), default=None)
    except ValueError:  # the driver does not know
        return None


def _free_mb() -> float | None:
    """Memory that the kernel can give without swapping, within the limit of the control group where there is one."""
    found = [mb for mb in (_available_mb(), _group_left_mb()) if mb is not None]
    return min(found) if found else _physical_mb()


def _available_mb() -> float | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii", errors="replace").splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, LookupError, StopIteration):
        return None


def _group_left_mb() -> float | None:
    """Limit of the control group (v2) less what is in use; files that are only cached do not count."""
    group = Path("/sys/fs/cgroup")
    try:
        limit, used = (int((group / f"memory.{name}").read_text(encoding="ascii")) for name in ("max", "current"))
        statistic = dict(line.split() for line in (group / "memory.stat").read_text(encoding="ascii").splitlines())
        return max(0.0, (limit - used + int(statistic["inactive_file"])) / _MB)
    except (OSError, ValueError, LookupError):  # `max`: no limit
        return None


def _physical_mb() -> float | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / _MB
    except (AttributeError, OSError, ValueError):
        return None
