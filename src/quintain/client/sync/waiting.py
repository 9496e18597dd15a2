"""How blocking calls run functions and sleep. Written by hand, as its twin in `aio`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

BLOCKING = True
"""Whether properties may read the store."""


def run(function: Callable[[], T]) -> T:
    """Run a function."""
    return function()


def pause(seconds: float) -> None:
    """Sleep."""
    time.sleep(seconds)
