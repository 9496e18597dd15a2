"""Limit how long the threads of torch spin while they wait for each other.

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


def limit_spinning() -> None:
    """Let waiting threads of this process and of its children sleep early, unless the user has set how they wait.

    Call it before torch is imported: OpenMP reads the variable once, when it is loaded.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", GOMP_SPINCOUNT)
        os.environ.setdefault("KMP_BLOCKTIME", KMP_BLOCKTIME)
