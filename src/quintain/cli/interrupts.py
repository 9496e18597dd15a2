"""Ctrl-C while a command waits for a job: noticed between two looks at the store, never inside of one."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def collected_interrupts() -> Iterator[list[int]]:
    """Give a list that Ctrl-C fills; who waits looks at it. The second Ctrl-C is a `KeyboardInterrupt`, as ever.

    An exception at any line may fall into a finaliser or into the reset of a database connection: there it is printed and
    lost, and the command waits on. A process that was started to ignore Ctrl-C goes on ignoring it, as a script's `&` and
    `nohup` ask for. Only the main thread may wait so.
    """
    seen: list[int] = []

    def collect(number: int, frame: FrameType | None) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(number)

    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        yield seen
        return
    signal.signal(signal.SIGINT, collect)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)
