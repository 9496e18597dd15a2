"""Many requests at a time, never more than allowed, and none that delays the end of the process."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

_LOOK_S = 0.2
_DRAIN_S = 10.0
"""How long requests under way may take after a stop: they may have been paid for."""


def map_in_parallel(
    items: Iterable[T],
    work: Callable[[T], R],
    n: int,
    should_stop: Callable[[], bool] = lambda: False,
    on_stop: Callable[[], None] = lambda: None,
) -> Iterator[tuple[T, R]]:
    """Do the work for each item in `n` threads, and yield item and result as they come.

    Items are taken as threads become free, at most `n` ahead of what was yielded last. The first exception of `work` is
    raised here, and ends the rest. The threads are daemons: one that hangs in a connection keeps no process alive.

    Args:
        items: Taken in the caller's thread.
        work: Called in the threads.
        n: How many at a time, at least 1.
        should_stop: Asked every 0.2 s. Once it returns True, no further item is taken.
        on_stop: Called then, once, such as to end open requests.
    """
    waiting: queue.SimpleQueue[T | None] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[T, R | None, BaseException | None]] = queue.SimpleQueue()

    def serve() -> None:
        while (item := waiting.get()) is not None:
            try:
                done.put((item, work(item), None))
            except BaseException as error:
                done.put((item, None, error))

    stream, under_way, threads = iter(items), 0, 0
    end: float | None = None
    try:
        while True:
            if end is None and should_stop():
                end = time.monotonic() + _DRAIN_S
                on_stop()
            while end is None and under_way < n and (item := next(stream, None)) is not None:
                waiting.put(item)
                under_way += 1
                if threads < under_way:
                    threading.Thread(target=serve, daemon=True).start()
                    threads += 1
            if not under_way or (end is not None and time.monotonic() > end):
                return
            try:
                item, result, error = done.get(timeout=_LOOK_S)
            except queue.Empty:
                continue
            under_way -= 1
            if error is not None:
                raise error
            yield item, result  # type: ignore[misc]
    finally:
        for _ in range(threads):
            waiting.put(None)
