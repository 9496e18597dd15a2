"""Settings of the threads of a process: how long those of torch spin, and how all of them allocate memory.

On a shared machine, spinning threads take the processor from the thread that they wait for: beside one busy process a training
step of small matrix products then takes up to a hundred times as long. `python -m benchmarks.threads` measures it.
"""

from __future__ import annotations

import os

GOMP_SPINCOUNT = "1000"
"""Spins before a waiting thread sleeps, for GNU OpenMP, which torch's wheels for Linux bring. The default is 300,000:
https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html. At 10,000 a step beside a busy process is still many times
slower; at 0 every wait of a quiet machine costs a system call."""
KMP_BLOCKTIME = "0"
"""Milliseconds before a waiting thread sleeps, for LLVM's and Intel's OpenMP (torch for macOS and of conda). The default is 200,
or 0 on hybrid processors: https://openmp.llvm.org/design/Runtimes.html#kmp-blocktime, https://reviews.llvm.org/D113012. Tried
with Intel's runtime preloaded on Linux, where it loses less than GNU's by spinning; not tried on macOS."""
# Microsoft's OpenMP does not apply: Quintain runs on Linux, on macOS and under WSL.

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
"""Parameters of `mallopt`: https://man7.org/linux/man-pages/man3/mallopt.3.html."""

_MAPPED_BYTES = 2**20
"""Size from which a block of memory is mapped alone, so that it goes back to the system when it is freed.

Without a fixed size glibc raises it to that of the blocks that were freed, up to 32 MB: a server kept 40 MB more after it had
recorded a run of 8 MB."""


def configure_malloc() -> None:
    """Let glibc return what this process frees, unless the user has set MALLOC_ARENA_MAX or MALLOC_MMAP_THRESHOLD_.

    All threads share one arena: memory that one has freed would not be there for the others, and an import of 47 MB took 15 MB
    more in a server. Python's threads take turns, so they do not wait for it. Call it before threads start.
    """
    import ctypes

    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        if "MALLOC_ARENA_MAX" not in os.environ:
            mallopt(_M_ARENA_MAX, 1)
        if "MALLOC_MMAP_THRESHOLD_" not in os.environ:
            mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)


def limit_spinning() -> None:
    """Let waiting threads of this process and of its children sleep early, unless the user has set how they wait.

    Call it before torch is imported: OpenMP reads the variable once, when it is loaded.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", GOMP_SPINCOUNT)
        os.environ.setdefault("KMP_BLOCKTIME", KMP_BLOCKTIME)
