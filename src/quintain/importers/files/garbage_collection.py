"""Run Python's garbage collector less often while many acyclic values are created."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

CONTAINERS = 20_000
"""Container allocations between collections; Python's default is several hundred."""

_lock = Lock()
_before: list[tuple[int, int, int]] = []
"""Saved thresholds, one entry for each active context."""


@contextmanager
def gc_relaxed() -> Iterator[None]:
    """Raise the collector's threshold: parsed and stored values have no cycles.

    Reference counts still free memory. Overlapping contexts share the process-wide threshold, and the last one to end
    restores it. A disabled collector stays disabled.
    """
    with _lock:
        young, middle, old = gc.get_threshold()
        _before.append(_before[0] if _before else (young, middle, old))
        gc.set_threshold(young and max(young, CONTAINERS), middle, old)
    try:
        yield
    finally:
        with _lock:
            thresholds = _before.pop()
            if not _before:
                gc.set_threshold(*thresholds)
