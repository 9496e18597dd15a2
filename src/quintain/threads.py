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
# LLVM's and Intel's OpenMP (torch for macOS, conda) yield the processor while they spin and do not need a limit; theirs is
# KMP_BLOCKTIME, in ms, 200 by default: https://openmp.llvm.org/design/Runtimes.html#kmp-blocktime
# Microsoft's OpenMP does not apply: Quintain runs on Linux, on macOS and under WSL.


def limit_spinning() -> None:
    """Let waiting threads of this process and of its children sleep early, unless the user has set how they wait.

    Call it before torch is imported: OpenMP reads the variable once, when it is loaded.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", GOMP_SPINCOUNT)
