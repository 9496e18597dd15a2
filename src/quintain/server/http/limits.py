"""Limits on what HTTP clients may send, ask for and keep open."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

_CLIENTS = 10_000
"""Clients whose buckets are kept; the one that was idle longest is dropped first."""


@dataclass(frozen=True)
class Limits:
    """Bounds of one server. Sizes are in bytes, times in seconds."""

    body_bytes: int = 4 * 2**20
    header_s: float = 10.0
    body_s: float = 60.0
    idle_s: float = 30.0
    stall_s: float = 60.0
    """A client that reads nothing of its answer for this long is disconnected."""
    calls_per_s: float = 300.0
    """Sustained rate of one client; twice as many may come at once."""
    calls_at_once: int = 64
    connections: int = 512
    connections_per_client: int = 64
    grace_s: float = 8.0
    """Time that running calls get to finish after SIGTERM."""


class TokenBuckets:
    """A bucket for each client: `burst` calls at once, refilled by `rate` calls a second of a monotonic clock."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> float:
        """Take one call from a client's bucket; return 0, or the seconds until the next call is free."""
        now = self._clock()
        left, since = self._buckets.get(client, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._rate)
        wait = max(0.0, (1 - left) / self._rate)
        self._buckets[client] = (left if wait else left - 1, now)
        self._buckets.move_to_end(client)
        if len(self._buckets) > _CLIENTS:
            self._buckets.popitem(last=False)
        return wait
