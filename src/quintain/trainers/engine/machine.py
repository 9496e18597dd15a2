"""Tuning for the machine: the allocator, the fast exact matrix product, and the measured matmul rate."""

from __future__ import annotations

import ctypes
import json
import math
import platform
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import torch

from quintain.jobs.directory import write_atomically

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -2, -3, -4
"""Parameters of mallopt(3) in glibc's malloc.h."""

_EXACT = 1e-6
"""Relative error below which a product counts as float32: rounding gives about 4e-7, bfloat16 3e-3."""

_WORTH = 1.05
"""Minimum speed-up for which the back end of products is changed."""

_COMPILED_SHAPES = b"128"
"""Number of shapes for which oneDNN keeps a compiled product; the default is 1,024, and packed rows have many lengths."""

_ROWS, _INNER, _OUTER = 2048, 512, 1408
"""Rows, inner and outer width of the measured product: a small model's feed-forward layer."""

_ROWS_OF_THREAD = 512
"""Rows of the product for each thread of a CPU, which is at its full rate with fewer than `_ROWS`."""

_ROUNDS = 5

_PROBE_ROWS, _WIDEST = 256, 1024
"""Rows, and bound of the widths, of the product that compares bfloat16 with float32."""


class Machine(NamedTuple):
    """Result of `prepare`."""

    matmul_flops: float | None
    """Measured matmul rate in FLOP/s; None if it cannot be measured."""
    fast_matmul: bool
    """Whether the faster back end is on. PyTorch leaves it off by default because it may round; here it does not."""
    notes: tuple[str, ...]
    """Warnings for the user."""


def tune_allocator(*, keep: bool = True) -> None:
    """Make glibc keep freed memory in the process, and oneDNN keep fewer compiled shapes; without glibc, do nothing.

    By default each tensor above 32 MiB returns to the kernel when freed, and each new one costs its page faults again. Call it
    before the first large allocation; further calls are harmless.

    Args:
        keep: Keep freed memory. Otherwise blocks above 1 MiB return to the kernel: a sharded model allocates and frees whole
            blocks in several threads, which would fragment kept memory (57M parameters over two ranks: 1.3 GB a rank
            instead of 0.8).
    """
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        return
    try:
        libc = ctypes.CDLL("libc.so.6")
        mallopt = libc.mallopt
        # Read at the first product; an operator's setting is kept.
        libc.setenv(b"ONEDNN_PRIMITIVE_CACHE_CAPACITY", _COMPILED_SHAPES, 0)
    except (AttributeError, OSError):
        return
    settings = {_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: 2**31 - 1, _M_TOP_PAD: 256 * 2**20}
    if not keep:
        settings = {_M_MMAP_THRESHOLD: 2**20}
    for parameter, value in settings.items():
        mallopt(parameter, value)


def return_freed_memory() -> None:
    """Return freed memory to the kernel once, also where `tune_allocator` keeps it; without glibc, do nothing."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def prepare(
    device: torch.device | str,
    dtype: torch.dtype = torch.float32,
    *,
    remembered: Path | None = None,
    keep: bool = True,
    choices: Mapping[str, str] = MappingProxyType({}),
) -> Machine:
    """Tune the process for training and measure its matmul rate, in a few tenths of a second.

    Call it after the number of threads is set (`models.load_model` does so).

    Args:
        device: Device of the model.
        dtype: Type of the measured matrix products.
        remembered: File that keeps the choice of back end. Back ends round differently and the choice depends on timing, so
            a resumed run must not choose again. None: choose.
        keep: See `tune_allocator`.
        choices: Further choices to keep in that file.
    """
    device = torch.device(device)
    tune_allocator(keep=keep)
    if remembered is not None and remembered.exists():
        fast = bool(json.loads(remembered.read_bytes())["fast_matmul"]) and allow_exact_medium(device)
    else:
        fast = enable_fast_matmul(device)
        if remembered is not None:
            remembered.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(remembered, json.dumps({"fast_matmul": fast, **choices}).encode())
    if not fast:  # an earlier stage of the job may have turned it on in this process
        torch.set_float32_matmul_precision("highest")
    rate = _known_rate(device, dtype, torch.get_num_threads(), torch.get_float32_matmul_precision())
    unmeasured = f"the rate of {dtype} matrix products could not be measured on {device}"
    return Machine(rate, fast, (unmeasured,) if rate is None else ())


def enable_fast_matmul(device: torch.device) -> bool:
    """Turn on float32 products of "medium" precision if they are exact and faster; return whether they are.

    "medium" permits PyTorch to use bfloat16 or TF32 inside. A CPU without matrix units does not, but runs oneDNN's kernels, which
    are twice as fast on some CPUs and no faster on others, where they only cost memory. So both are tried: a product of two
    256 x 256 matrices against float64, and the best of several rounds with either.
    """
    return medium_is_faster(device.type) and allow_exact_medium(device)


def allow_exact_medium(device: torch.device) -> bool:
    """Turn "medium" on if its products are float32; return whether they are."""
    if is_exact := medium_is_exact(device.type):
        torch.set_float32_matmul_precision("medium")
    return is_exact


@cache
def medium_is_exact(device_type: str) -> bool:
    """Whether products of "medium" precision are float32."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(256, 256, generator=generator) for _ in range(2))
    with products_of("medium"):
        product = (a.to(device_type) @ b.to(device_type)).cpu().double()
    exact = a.double() @ b.double()
    return float((product - exact).norm() / exact.norm()) < _EXACT


@cache
def medium_is_faster(device_type: str) -> bool:
    """Whether "medium" products are faster. Measured once a process on one thread, where other load matters little."""
    factors = _factors(torch.device(device_type), threads=1)
    highest, medium = _best_seconds([("highest", factors), ("medium", factors)])
    return highest > _WORTH * medium


@cache
def bf16_speedup(inner: int, outer: int) -> float:
    """Return how many times as fast a product x W^T is in bfloat16 as in float32 of the faster back end, on one thread.

    x has 256 rows. Widths above 1,024 are cut, so that a round takes milliseconds. The best of several rounds counts, taken in
    turn: float32 "highest", float32 "medium" where it is exact, bfloat16. It is measured once a process.
    """
    inner, outer = min(inner, _WIDEST), min(outer, _WIDEST)
    wide = torch.ones(_PROBE_ROWS, inner), torch.ones(inner, outer)
    narrow = wide[0].bfloat16(), wide[1].bfloat16()
    exact = [("highest", wide), *([("medium", wide)] if medium_is_exact("cpu") else [])]
    *of_float32, of_bf16 = _best_seconds([*exact, ("highest", narrow)])
    return min(of_float32) / of_bf16


def _best_seconds(products: Sequence[tuple[str, tuple[torch.Tensor, torch.Tensor]]]) -> list[float]:
    """Return the best time of several rounds of each product with its precision, taken in turn on one thread."""
    threads, best = torch.get_num_threads(), [math.inf] * len(products)
    torch.set_num_threads(1)
    try:
        for _ in range(1 + _ROUNDS):
            for i, (precision, (a, b)) in enumerate(products):
                with products_of(precision):
                    best[i] = min(best[i], _seconds(a, b))
    finally:
        torch.set_num_threads(threads)
    return best


@contextmanager
def products_of(precision: str) -> Iterator[None]:
    """Use float32 products of this precision, and restore the setting afterwards; "highest" is PyTorch's default."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def matmul_flops(device: torch.device, dtype: torch.dtype = torch.float32) -> float | None:
    """Return the median rate of a few matrix products in FLOP/s; None if the device does not support the type."""
    try:
        a, b = _factors(device, dtype, torch.get_num_threads())
        times = [_seconds(a, b) for _ in range(1 + _ROUNDS)][1:]
    except RuntimeError:  # no kernel for the type, or no memory
        return None
    return 2.0 * len(a) * _INNER * _OUTER / statistics.median(times)


def _factors(
    device: torch.device, dtype: torch.dtype = torch.float32, threads: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the two matrices of the measured product."""
    rows = min(_ROWS, _ROWS_OF_THREAD * threads) if device.type == "cpu" else _ROWS
    return torch.ones(rows, _INNER, dtype=dtype, device=device), torch.ones(_INNER, _OUTER, dtype=dtype, device=device)


@cache
def _known_rate(device: torch.device, dtype: torch.dtype, threads: int, precision: str) -> float | None:
    """Measure the rate once in a process: the stages of a recipe and the rounds of an evolution share it."""
    return matmul_flops(device, dtype)


def peak_memory_mb(device: torch.device | str) -> float:
    """Return the peak of memory in use in MiB: the process's resident memory on the CPU, allocations on CUDA.

    MPS has no peak; its driver's current allocation is returned. NaN if the system does not report it.
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
