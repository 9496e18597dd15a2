"""What the machine gives: memory that stays with the process, the fast exact matrix product, its measured rate."""

from __future__ import annotations

import ctypes
import json
import math
import platform
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

from quintain.jobs.directory import write_atomically

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -2, -3, -4
"""Parameters of mallopt(3) in glibc's malloc.h."""

_EXACT = 1e-6
"""Relative error below which a float32 product is one: rounding alone gives about 4e-7, bfloat16 3e-3."""

_WORTH = 1.05
"""How much faster products must be before their back end is changed."""

_COMPILED_SHAPES = b"16"
"""oneDNN keeps a compiled product for each of so many shapes; by default 1,024, and packed rows are of many lengths."""

_SHAPE = (2048, 512, 1408)
"""Rows, inner and outer width of the measured product: a small model's feed-forward layer."""

_ROUNDS = 5


class Machine(NamedTuple):
    """What `prepare` has found."""

    matmul_flops: float | None
    """Measured rate of matrix products in FLOP/s; None where it could not be measured."""
    fast_matmul: bool
    """Is the back end on that PyTorch leaves off by default, because it may round, though here it does not and is faster?"""
    notes: tuple[str, ...]
    """What the user should know; usually nothing."""


def tune_allocator(*, keep: bool = True) -> bool:
    """Let glibc keep freed memory in the process, and oneDNN fewer compiled shapes; True where there is a glibc to tell.

    By default every tensor above 32 MiB goes back to the kernel when freed, and each new one costs its page faults again.
    Works best before the first large allocation; calling it again does no harm.

    Args:
        keep: Keep it. Else what is above 1 MiB goes back: over a sharded model whole blocks come and go in several threads,
            and kept memory would be full of holes (57M parameters over two ranks: 1.3 GB a rank instead of 0.8).
    """
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        return False
    try:
        libc = ctypes.CDLL("libc.so.6")
        mallopt = libc.mallopt
        # Read when the first product is made; what the operator has set stays.
        libc.setenv(b"ONEDNN_PRIMITIVE_CACHE_CAPACITY", _COMPILED_SHAPES, 0)
    except (AttributeError, OSError):
        return False
    settings = {_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: 2**31 - 1, _M_TOP_PAD: 256 * 2**20}
    if not keep:
        settings = {_M_MMAP_THRESHOLD: 2**20}
    return all(mallopt(parameter, value) == 1 for parameter, value in settings.items())


def prepare(
    device: torch.device | str,
    dtype: torch.dtype = torch.float32,
    *,
    remembered: Path | None = None,
    keep: bool = True,
) -> Machine:
    """Tune the process for training and measure what it can do; takes a few tenths of a second.

    Call it when the number of threads is set (`models.load_model` does that).

    Args:
        device: Where the model is.
        dtype: Type of the matrix products whose rate is measured.
        remembered: File that keeps the choice of back end: their results differ in rounding and the choice is made by
            timing, so a run that goes on must not choose again. None: choose.
        keep: See `tune_allocator`.
    """
    device = torch.device(device)
    tune_allocator(keep=keep)
    if remembered is not None and remembered.exists():
        fast = bool(json.loads(remembered.read_bytes())["fast_matmul"]) and allow_exact_medium(device)
    else:
        fast = enable_fast_matmul(device)
        if remembered is not None:
            remembered.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(remembered, json.dumps({"fast_matmul": fast}).encode())
    rate = _known_rate(device, dtype, torch.get_num_threads(), torch.get_float32_matmul_precision())
    unmeasured = f"the rate of {dtype} matrix products could not be measured on {device}"
    return Machine(rate, fast, (unmeasured,) if rate is None else ())


def enable_fast_matmul(device: torch.device) -> bool:
    """Turn on float32 products of "medium" precision where they are exact and faster; True where they are.

    "medium" permits PyTorch to use bfloat16 or TF32 inside. A CPU without matrix units makes no use of that, but then runs
    oneDNN's kernels, which are twice as fast on some CPUs and no faster on others, where they would only cost memory. So
    we try: the product of two 256 x 256 matrices against float64, and the best of some rounds in either.
    """
    return _pays(device.type) and allow_exact_medium(device)


def allow_exact_medium(device: torch.device) -> bool:
    """Turn "medium" on if its products are still float32; True where they are."""
    before = torch.get_float32_matmul_precision()
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(256, 256, generator=generator) for _ in range(2))
    torch.set_float32_matmul_precision("medium")
    product = (a.to(device) @ b.to(device)).cpu().double()
    exact = a.double() @ b.double()
    if float((product - exact).norm() / exact.norm()) < _EXACT:
        return True
    torch.set_float32_matmul_precision(before)
    return False


@cache
def _pays(device_type: str) -> bool:
    """Are "medium" products much faster? Asked once a process, and on one thread: other load hardly changes the answer."""
    m, k, n = _SHAPE
    a, b = (torch.ones(shape, device=device_type) for shape in ((m, k), (k, n)))
    best = {"highest": math.inf, "medium": math.inf}
    before, threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in range(_ROUNDS):
            for precision in best:
                torch.set_float32_matmul_precision(precision)
                best[precision] = min(best[precision], _seconds(a, b))
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(before)
    return best["highest"] > _WORTH * best["medium"]


@contextmanager
def default_products() -> Iterator[None]:
    """float32 products as PyTorch makes them by default; what was turned on comes back.

    For many small products of changing shape: oneDNN compiles a kernel for each new shape.
    """
    before = torch.get_float32_matmul_precision()
    if before == "highest":
        yield
        return
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def matmul_flops(device: torch.device, dtype: torch.dtype = torch.float32) -> float | None:
    """Median rate of a few matrix products of a model's shape, in FLOP/s; None where the device has none of the type."""
    m, k, n = _SHAPE
    try:
        a, b = torch.ones(m, k, dtype=dtype, device=device), torch.ones(k, n, dtype=dtype, device=device)
        times = [_seconds(a, b) for _ in range(1 + _ROUNDS)][1:]
    except RuntimeError:  # no kernel for the type, or no memory
        return None
    return 2.0 * m * k * n / statistics.median(times)


@cache
def _known_rate(device: torch.device, dtype: torch.dtype, threads: int, precision: str) -> float | None:
    """Measure the rate once in a process: the stages of a recipe and the rounds of an evolution share it."""
    return matmul_flops(device, dtype)


def peak_memory_mb(device: torch.device | str) -> float:
    """Most memory that was in use so far, in MiB: the process's resident memory on the CPU, allocations on CUDA.

    MPS keeps no peak: what its driver holds now is given. NaN where the system does not tell.
    """
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    if device.type == "mps":
        return torch.mps.driver_allocated_memory() / 2**20
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    if sys.platform == "darwin":
        import resource  # not on Windows

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return math.nan


def _seconds(a: torch.Tensor, b: torch.Tensor) -> float:
    synchronize = {"cuda": torch.cuda.synchronize, "mps": torch.mps.synchronize}.get(a.device.type, lambda: None)
    synchronize()
    start = time.perf_counter()
    a @ b
    synchronize()
    return time.perf_counter() - start
