"""State of a running server: its services, opened at first use, the reconciler's loop, and the subscribers."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Literal

import anyio
import anyio.to_thread
from mcp.server import Server, ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ResourceUpdated
from mcp.types import EmptyResult, SubscribeRequestParams, UnsubscribeRequestParams

if TYPE_CHECKING:
    from quintain.tools.services import Services

logger = logging.getLogger(__name__)

_SEND_S = 1.0
"""Seconds that a subscriber may take for one notification; one that no longer reads must not hold up the others."""

_FIRST_BEAT_S = 0.3
"""Seconds before the first look at the jobs: importing the store would slow the client's handshake down."""


class Running:
    """The state of one served lifespan.

    Args:
        open_services: Opens the services; runs in a worker thread, once, and again where it failed.
        bus: Carries updates to clients of the protocol of 2026-07-28.
    """

    def __init__(self, open_services: Callable[[], Services], bus: InMemorySubscriptionBus) -> None:
        self._open = open_services
        self._bus = bus
        self._opening = anyio.Lock()
        self._services: Services | None = None
        self._subscribers: dict[str, dict[int, ServerSession]] = {}
        self.health: Literal["starting", "ok", "failing"] = "starting"
        """State of the reconciler: its last pass over the jobs."""

    async def services(self) -> Services:
        """The services, opened by whoever asks first.

        Raises:
            Unavailable: the home folder or the database cannot be used now.
        """
        async with self._opening:
            if self._services is None:
                # What was opened is kept even if its first user goes away meanwhile, so that it gets closed.
                with anyio.CancelScope(shield=True):
                    self._services = await anyio.to_thread.run_sync(self._open)
            assert self._services is not None
            return self._services

    async def close(self) -> None:
        """Close what was opened; running jobs go on."""
        if self._services is not None:
            await anyio.to_thread.run_sync(self._services.close)

    async def reconcile_forever(self) -> None:
        """Reconcile the jobs every `settings.poll_s` seconds and notify subscribers of those that changed.

        Whatever goes wrong is logged, once for each different error in a row, and tried again at the next beat.
        """
        pause, failure = _FIRST_BEAT_S, ""
        while True:
            await anyio.sleep(pause)
            try:
                services = await self.services()
                pause = services.settings.poll_s
                changed = await anyio.to_thread.run_sync(services.jobs.reconcile)
                await self.publish(f"job://{job_id}{part}" for job_id in sorted(changed) for part in ("", "/metrics"))
                failure, self.health = "", "ok"
            except Exception as error:
                if repr(error) != failure:
                    logger.exception("looking after the jobs failed; trying again every %s s", pause)
                failure, self.health = repr(error), "failing"

    async def publish(self, uris: Iterable[str]) -> None:
        """Tell the subscribers of both protocol eras that these resources changed."""
        for uri in uris:
            await self._bus.publish(ResourceUpdated(uri=uri))
            for key, session in list(self._subscribers.get(uri, {}).items()):
                with anyio.move_on_after(_SEND_S) as scope:
                    try:
                        await session.send_resource_updated(uri)
                    except Exception:
                        scope.cancel()
                        logger.info("a subscriber of %r is gone", uri)
                if scope.cancel_called:
                    self._subscribers[uri].pop(key, None)

    def subscribe(self, uri: str, session: ServerSession) -> None:
        """Remember a session of the handshake era; one that subscribes twice hears once."""
        self._subscribers.setdefault(uri, {})[id(session.client_params)] = session

    def unsubscribe(self, uri: str, session: ServerSession) -> None:
        """Forget a session; one that never subscribed is no error."""
        self._subscribers.get(uri, {}).pop(id(session.client_params), None)


def lifespan_of(
    open_services: Callable[[], Services], bus: InMemorySubscriptionBus
) -> Callable[[Server[Running]], AbstractAsyncContextManager[Running]]:
    """The lifespan of a server: reconciles in the background while it serves, closes the services at its end."""

    @asynccontextmanager
    async def lifespan(_: Server[Running]) -> AsyncIterator[Running]:
        running = Running(open_services, bus)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(running.reconcile_forever)
                yield running
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await running.close()

    return lifespan


async def subscribe_resource(ctx: ServerRequestContext[Running], params: SubscribeRequestParams) -> EmptyResult:
    """Serve `resources/subscribe` of the handshake era."""
    ctx.lifespan_context.subscribe(str(params.uri), ctx.session)
    return EmptyResult()


async def unsubscribe_resource(ctx: ServerRequestContext[Running], params: UnsubscribeRequestParams) -> EmptyResult:
    """Serve `resources/unsubscribe` of the handshake era."""
    ctx.lifespan_context.unsubscribe(str(params.uri), ctx.session)
    return EmptyResult()
