"""Connections that are bounded in number and in time, and a server that stops gracefully."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from quintain.server.http.limits import Limits

if TYPE_CHECKING:
    from types import FrameType


def bounded_protocol(limits: Limits, trusted: tuple[str, ...]) -> type[H11Protocol]:
    """Return a protocol class for one server; connections of trusted proxies are not counted for one client."""

    class BoundedProtocol(_BoundedProtocol):
        limits_of_server = limits
        peers: ClassVar[Counter[str]] = Counter()
        trusted_peers = frozenset(trusted)

    return BoundedProtocol


class _BoundedProtocol(H11Protocol):
    """HTTP/1.1 that disconnects clients that are too many, or too slow to send their headers or to read their answer."""

    limits_of_server: ClassVar[Limits]
    peers: ClassVar[Counter[str]]
    trusted_peers: ClassVar[frozenset[str]]
    _peer: str | None = None
    _header_timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection, and close it where there are too many."""
        super().connection_made(transport)
        self._peer = self.client[0] if self.client else ""
        self.peers[self._peer] += 1
        of_peer = 0 if self._peer in self.trusted_peers else self.peers[self._peer]
        limits = self.limits_of_server
        if of_peer > limits.connections_per_client or len(self.connections) > limits.connections:
            transport.abort()
            return
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        """Read what arrived; headers must be complete a bounded time after their first byte."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_timer()
        elif self._header_timer is None:
            self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection and its timers."""
        super().connection_lost(exc)
        self._stop_timer()
        self._unset_keepalive_if_required()
        self.resume_writing()
        if self._peer is not None:
            self.peers[self._peer] -= 1
            if not self.peers[self._peer]:
                del self.peers[self._peer]
            self._peer = None

    def pause_writing(self) -> None:
        """Disconnect a client that reads nothing for a bounded time."""
        super().pause_writing()
        self._stall_timer = self.loop.call_later(self.limits_of_server.stall_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on with a client that reads again."""
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        super().resume_writing()

    def _await_headers(self) -> None:
        self._header_timer = self.loop.call_later(self.limits_of_server.header_s, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


class GracefulServer(uvicorn.Server):
    """A server that ends its streams at SIGTERM or SIGINT, lets calls finish, and returns normally.

    `on_ready` is called once it listens, `on_stop` before it waits for the calls that run.
    """

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None], on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready, self._on_stop = on_ready, on_stop

    async def startup(self, sockets: Any = None) -> None:
        """Listen, and report it."""
        await super().startup(sockets=sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: Any = None) -> None:
        """End the streams, wait for the calls, and close the connections."""
        self._on_stop()
        await super().shutdown(sockets=sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at a signal, and do not raise it again when the server has stopped."""

        def stop(number: int, frame: FrameType | None) -> None:
            self.force_exit = self.should_exit and number == signal.SIGINT
            self.should_exit = True

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
