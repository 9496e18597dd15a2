"""State of a running server: its services, opened at first use, the reconciler's loop, and the clients to notify."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import anyio
import anyio.to_thread
from mcp.server import Server, ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.types import (
    EmptyResult,
    LoggingLevel,
    SetLevelRequestParams,
    SubscribeRequestParams,
    SubscriptionFilter,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    UnsubscribeRequestParams,
)

from quintain.errors import QuintainError
from quintain.server import resources
from quintain.server.audience import Audience

if TYPE_CHECKING:
    from quintain.jobs.runner import JobState
    from quintain.records.jobs.job import Job
    from quintain.server.transport.telemetry import Spans
    from quintain.tools.services import Services

logger = logging.getLogger(__name__)

_JOB = "job://"

_FIRST_BEAT_S = 0.3
"""Seconds before the first look at the jobs: importing the store would slow the client's handshake down."""

_IDLE_PAUSE_S = 0.9
"""Seconds between two passes while no job is unfinished. A job of another process, dead at once, is noticed within one."""


class Running:
    """The state of one served lifespan.

    The services are opened in a worker thread, once, and again where it failed. The bus carries updates to clients of 2026-07-28.
    """

    def __init__(
        self, open_services: Callable[[], Services], bus: InMemorySubscriptionBus, spans: Spans | None = None
    ) -> None:
        self._spans = spans
        self._open = open_services
        self._opening = anyio.Lock()
        self._services: Services | None = None
        self.home: Path | None = None
        """The home folder, whose path clients over HTTP do not see."""
        self.audience = Audience(bus)
        self._listed: frozenset[str] | None = None
        self._states: Mapping[str, JobState] = {}
        """States of the jobs whose resources are asked for, when they were looked at last."""
        self._jobs: Mapping[str, Job] | None = None
        """The newest jobs when they were looked at last. None: nobody asked for their events."""
        self.health: Literal["starting", "ok", "failing"] = "starting"
        """State of the reconciler: its last pass over the jobs."""

    async def services(self) -> Services:
        """The services, opened by whoever asks first."""
        async with self._opening:
            if self._services is None:
                # An opened home is kept even if its first user goes away meanwhile, so that it gets closed.
                with anyio.CancelScope(shield=True):
                    self._services = await anyio.to_thread.run_sync(self._open)
            assert self._services is not None
            return self._services

    async def close(self) -> None:
        """Close what was opened; running jobs go on."""
        if self._services is not None:
            await anyio.to_thread.run_sync(self._services.close)

    async def reconcile_forever(self) -> None:
        """Reconcile the jobs every `settings.poll_s` seconds and notify subscribers of those that changed in any process.

        While no job is unfinished the pauses are longer, until a call of this server starts one.

        Whatever goes wrong is logged, once for each different error in a row, and tried again at the next beat.
        """
        pause, waited, failure = _FIRST_BEAT_S, 0.0, ""
        while True:
            await anyio.sleep(pause)
            waited += pause
            if self._services is not None and self._services.jobs.is_idle and waited < _IDLE_PAUSE_S:
                continue
            waited = 0.0
            try:
                services = await self.services()
                pause = services.settings.poll_s
                await anyio.to_thread.run_sync(services.jobs.reconcile)
                await self._announce_jobs(services)
                await self._announce(services)
                if self._spans is not None:
                    await anyio.to_thread.run_sync(self._spans.record_ended_jobs, services)
                failure, self.health = "", "ok"
            except Exception as error:
                if repr(error) != failure:
                    logger.exception("looking after the jobs failed; trying again every %s s", pause)
                failure, self.health = repr(error), "failing"

    async def watch(self, uris: Iterable[str]) -> None:
        """Compare the states of the jobs with these resources, which a client has asked for, from now on."""
        job_ids = set(filter(None, map(_job_of, uris))) - self._states.keys()
        with suppress(QuintainError):  # then from the next pass on
            if job_ids:
                services = await self.services()
                self._states = {**await anyio.to_thread.run_sync(services.jobs.states, job_ids), **self._states}

    async def _announce_jobs(self, services: Services) -> None:
        """Announce the resources of jobs that changed, whichever process stored the change."""
        jobs = {uri: job_id for uri in sorted(self.audience.uris) if (job_id := _job_of(uri))}
        if not jobs:
            self._states = {}
            return
        before, now = self._states, await anyio.to_thread.run_sync(services.jobs.states, set(jobs.values()))
        self._states = now
        changed = {job_id for job_id, state in now.items() if before.get(job_id, state) != state}
        await self.audience.resources_updated(uri for uri, job_id in jobs.items() if job_id in changed)

    async def watch_list(self) -> None:
        """Compare the list of resources from now on."""
        if self._listed is None:
            self._listed = frozenset(await anyio.to_thread.run_sync(resources.newest_uris, await self.services()))

    async def watch_jobs(self) -> None:
        """Compare the states of jobs from now on."""
        if self._jobs is None:
            self._jobs = await self._newest_jobs(await self.services())

    async def _newest_jobs(self, services: Services) -> Mapping[str, Job]:
        """Return the newest jobs by id, oldest first."""
        found = await anyio.to_thread.run_sync(resources.newest_jobs, services)
        return {job.id: job for job in reversed(found)}

    async def _announce(self, services: Services) -> None:
        """Announce a changed list of resources and events of jobs, as far as any client wants them."""
        if not self.audience.wants_list:
            self._listed = None
        elif self._listed is not None:
            listed = frozenset(await anyio.to_thread.run_sync(resources.newest_uris, services))
            changed, self._listed = listed != self._listed, listed
            if changed:
                await self.audience.resource_list_changed()
        if not self.audience.wants_logs:
            self._jobs = None
        elif self._jobs is not None:
            before, self._jobs = self._jobs, await self._newest_jobs(services)
            for event in (one for job in self._jobs.values() for one in events_between(before.get(job.id), job)):
                await self.audience.log(event.level, SOURCE, event.text)


def _job_of(uri: str) -> str | None:
    """Return the id in the URI of a job's resource; None for another resource."""
    return uri.removeprefix(_JOB).partition("/")[0] if uri.startswith(_JOB) else None


def lifespan_of(
    open_services: Callable[[], Services], bus: InMemorySubscriptionBus, spans: Spans | None = None
) -> Callable[[Server[Running]], AbstractAsyncContextManager[Running]]:
    """The lifespan of a server: reconciles in the background while it serves, closes the services at its end."""

    @asynccontextmanager
    async def lifespan(_: Server[Running]) -> AsyncIterator[Running]:
        running = Running(open_services, bus, spans)
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
    ctx.lifespan_context.audience.client(ctx.session).uris.add(str(params.uri))
    await ctx.lifespan_context.watch([str(params.uri)])
    return EmptyResult()


async def unsubscribe_resource(ctx: ServerRequestContext[Running], params: UnsubscribeRequestParams) -> EmptyResult:
    """Serve `resources/unsubscribe` of the handshake era; a URI that was not subscribed is not an error."""
    ctx.lifespan_context.audience.client(ctx.session).uris.discard(str(params.uri))
    return EmptyResult()


async def set_log_level(ctx: ServerRequestContext[Running], params: SetLevelRequestParams) -> EmptyResult:
    """Serve `logging/setLevel` of the handshake era."""
    await ctx.lifespan_context.watch_jobs()
    ctx.lifespan_context.audience.client(ctx.session).level = params.level
    return EmptyResult()


async def listen(
    handler: ListenHandler, ctx: ServerRequestContext[Running], params: SubscriptionsListenRequestParams
) -> SubscriptionsListenResult:
    """Serve a stream of 2026-07-28: updates of resources and of their list. Tools and prompts never change."""
    asked, audience = params.notifications, ctx.lifespan_context.audience
    served = SubscriptionFilter(
        resource_subscriptions=asked.resource_subscriptions, resources_list_changed=asked.resources_list_changed
    )
    if served.resources_list_changed:
        await ctx.lifespan_context.watch_list()
    uris = [str(uri) for uri in served.resource_subscriptions or ()]
    audience.list_streams += bool(served.resources_list_changed)
    audience.stream_uris.update(uris)
    try:
        await ctx.lifespan_context.watch(uris)
        return await handler(ctx, params.model_copy(update={"notifications": served}))
    finally:
        audience.list_streams -= bool(served.resources_list_changed)
        audience.stream_uris.subtract(uris)


SOURCE = "quintain.jobs"
"""Name of the logger in log messages about jobs."""

_LEVELS: Mapping[str, LoggingLevel] = {"failed": "error", "interrupted": "warning"}
"""Status -> level; others are informative. The enumeration is not imported, which would slow the start of the server."""


class JobEvent(NamedTuple):
    """One event of a job."""

    level: LoggingLevel
    text: str


def events_between(before: Job | None, job: Job) -> Iterator[JobEvent]:
    """Yield the events between two states of a job; without an earlier one it is new."""
    name = f"{job.id} ({job.kind})"
    if before is None or before.status is not job.status:
        reason = f": [{job.error.code}] {job.error.message}" if job.error else ""
        yield JobEvent(_LEVELS.get(job.status, "info"), f"{name}: {job.status}{reason}")
    if job.phase and (before is None or before.phase != job.phase):
        yield JobEvent("info", f"{name}: phase {job.phase}")
    elif before is not None and job.step > before.step:
        total = f" of {job.total_steps}" if job.total_steps else ""
        yield JobEvent("debug", f"{name}: step {job.step}{total}")
    for warning in [one for one in job.warnings if before is None or one not in before.warnings]:
        yield JobEvent("warning", f"{name}: {warning}")
