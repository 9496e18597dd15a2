"""How coroutines run blocking functions and sleep. Its twin in `sync` is written by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

T = TypeVar("T")

BLOCKING = False
"""Whether properties may read the store."""


async def run(function: Callable[[], T]) -> T:
    """Run a function in a thread."""
    return await anyio.to_thread.run_sync(function)


async def pause(seconds: float) -> None:
    """Sleep."""
    await anyio.sleep(seconds)
