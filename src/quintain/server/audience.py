"""Notifications that connected clients asked for: changed resources, a changed list of resources, log messages.

A client of the handshake era has one session with subscriptions and a level of log messages. A client of 2026-07-28
listens on a stream that names what it wants, and asks for log messages per request.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from typing import get_args

import anyio
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ResourcesListChanged, ResourceUpdated
from mcp.types import LoggingLevel, LoggingMessageNotification, LoggingMessageNotificationParams

from quintain.server.calls.record_json import scrub

logger = logging.getLogger(__name__)

_SEND_S = 1.0
"""Seconds that a client may take for one notification; one that no longer reads must not hold up the others."""

_MAX_CLIENTS = 1000
"""Sessions of the handshake era to remember; the oldest is forgotten first."""

LEVELS: tuple[LoggingLevel, ...] = get_args(LoggingLevel)
"""Levels of log messages, by rising severity."""


@dataclass
class _Client:
    """A session of the handshake era."""

    session: ServerSession
    uris: set[str] = field(default_factory=set)
    lists: bool = False
    """Whether it has listed the resources, so that a change of the list concerns it."""
    level: LoggingLevel | None = None


class Audience:
    """The clients of one served lifespan, and the ways to reach them; the bus carries events to the streams of 2026-07-28."""

    def __init__(self, bus: InMemorySubscriptionBus) -> None:
        self._bus = bus
        self._clients: dict[int, _Client] = {}
        self.list_streams = 0
        """Streams of 2026-07-28 that asked for changes of the list of resources."""
        self.stream_uris = Counter[str]()
        """Resource -> number of streams of 2026-07-28 that asked for its changes."""

    def client(self, session: ServerSession) -> _Client:
        """Return the entry of a session of the handshake era."""
        key = id(session.client_params)
        if key not in self._clients and len(self._clients) >= _MAX_CLIENTS:
            self._clients.pop(next(iter(self._clients)))
        return self._clients.setdefault(key, _Client(session))

    @property
    def uris(self) -> set[str]:
        """The resources whose changes any client asked for."""
        return set(+self.stream_uris).union(*(client.uris for client in self._clients.values()))

    @property
    def wants_list(self) -> bool:
        """Whether any client is to hear of a changed list of resources."""
        return self.list_streams > 0 or any(client.lists for client in self._clients.values())

    @property
    def wants_logs(self) -> bool:
        """Whether any session of the handshake era set a level of log messages."""
        return any(client.level for client in self._clients.values())

    async def resources_updated(self, uris: Iterable[str]) -> None:
        """Notify the subscribers of both protocol eras that these resources changed."""
        for uri in uris:
            await self._bus.publish(ResourceUpdated(uri=uri))
            for client in [client for client in self._clients.values() if uri in client.uris]:
                await self._send(client, client.session.send_resource_updated(uri))

    async def resource_list_changed(self) -> None:
        """Notify clients of both protocol eras that resources appeared in the list or left it."""
        await self._bus.publish(ResourcesListChanged())
        for client in [client for client in self._clients.values() if client.lists]:
            await self._send(client, client.session.send_resource_list_changed())

    async def log(self, level: LoggingLevel, source: str, text: str) -> None:
        """Send a log message to the sessions of the handshake era that set this level or a lower one."""
        notification = log_message(level, source, text)
        for client in [client for client in self._clients.values() if is_at_least(level, client.level)]:
            await self._send(client, client.session.send_notification(notification))

    async def _send(self, client: _Client, sending: Awaitable[None]) -> None:
        with anyio.move_on_after(_SEND_S) as scope:
            try:
                await sending
            except Exception:
                scope.cancel()
                logger.info("a client of the handshake era is gone")
        if scope.cancel_called:
            self._clients.pop(id(client.session.client_params), None)


def is_at_least(level: LoggingLevel, minimum: str | None) -> bool:
    """Whether a level reaches the minimum; False without one."""
    return minimum in LEVELS and LEVELS.index(level) >= LEVELS.index(minimum)


def log_message(level: LoggingLevel, source: str, text: str) -> LoggingMessageNotification:
    """Return the notification of a log message; `source` names the logger."""
    params = LoggingMessageNotificationParams(level=level, logger=source, data=scrub(text))
    return LoggingMessageNotification(params=params)
