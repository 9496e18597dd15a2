"""Python's garbage collector, told to look less often while many values are made that hold no cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

CONTAINERS = 20_000
"""Containers that come to be before the collector looks for cycles among them; Python's own number is some hundreds."""

_lock = Lock()
_before: list[tuple[int, int, int]] = []
"""The thresholds to go back to, once for each part of the program that is at work."""


@contextmanager
def gc_relaxed() -> Iterator[None]:
    """Let the collector look less often; what is parsed, checked and stored has no cycles, and looking costs a tenth of it.

    Memory is freed as ever, by counts of references. The setting is the process's, so parts that overlap in time share it: the
    last one to end puts it back. A collector that is off stays off.
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
