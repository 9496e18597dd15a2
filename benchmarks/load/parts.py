"""The parts of `python -m benchmarks.load`."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figures import say
from benchmarks.load.job_queue import jobs
from benchmarks.load.pages import many_runs, pages
from benchmarks.load.server import idle, servers

PARTS = {"jobs": jobs, "idle": idle, "servers": servers, "pages": pages, "many_runs": many_runs}


def measure(names: Sequence[str], *, quick: bool) -> None:
    """Measure parts, each in its own home."""
    for name in names:
        say(f"{name}: {(PARTS[name].__doc__ or '').splitlines()[0]}")
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            PARTS[name](Path(folder), quick=quick)


def load_goals(count: int) -> None:
    """Measure all parts so many times."""
    for _ in range(count):
        measure(list(PARTS), quick=False)
