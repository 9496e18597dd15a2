"""The server: what `quintain.tools` offers, registered with the protocol. Transports are in `stdio` and `http`."""

from __future__ import annotations

import base64
import gc
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from mcp.server import CacheHint, Server, ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.types import (
    BlobResourceContents,
    CallToolRequestParams,
    CallToolResult,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    PromptMessage,
    ReadResourceRequestParams,
    ReadResourceResult,
    ServerCapabilities,
    SetLevelRequestParams,
    TextContent,
    TextResourceContents,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

import quintain
from quintain.errors import InvalidInput, NotFound, QuintainError, Unavailable
from quintain.next_step import ToolCall
from quintain.server import apps, resources
from quintain.server.calls import failures
from quintain.server.calls.bindings import Binding, bind_all, call
from quintain.server.completions import MAX_COMPLETIONS, complete
from quintain.server.elicitation import ask, can_ask, key_of_home, seal
from quintain.server.guide import INSTRUCTIONS
from quintain.server.lifespan import (
    Running,
    lifespan_of,
    listen,
    set_log_level,
    subscribe_resource,
    unsubscribe_resource,
)
from quintain.server.prompts import PROMPTS
from quintain.server.tasks import Tasks
from quintain.server.transport.logs import RequestLog, log_to_stderr
from quintain.server.transport.telemetry import Spans, otlp_provider
from quintain.settings import Settings
from quintain.tools.catalog import ToolSpec

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from quintain.tools.services import Services

logger = logging.getLogger(__name__)

_Context = ServerRequestContext[Running]


class QuintainServer(Server[Running]):
    """A server that advertises only the notifications that it sends: updates of resources and of their list.

    The SDK advertises changes of all lists to clients of 2026-07-28 as soon as they can subscribe to anything. Tools and
    prompts are fixed while a server runs.
    """

    bindings: Mapping[str, Binding] = {}
    """The tools that it offers, by name."""
    specs: Sequence[resources.ResourceSpec] = ()
    running: Running | None = None
    """The state of the newest lifespan; None before it."""
    home: Path | None = None
    """Home folder, which errors for others do not name; None where services are given."""

    async def services(self) -> Services:
        """Return the services of the running server, opened by whoever asks first.

        Raises:
            Unavailable: the server does not run, or the home folder or the database cannot be used now.
        """
        if self.running is None:
            raise Unavailable("expected a running server, got one that has not begun; try again")
        return await self.running.services()

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], written: Callable[[ToolCall], str]
    ) -> CallToolResult:
        """Run a tool for the user themself, without an MCP session: as `tools/call`, without forms and reports of progress.

        `written` is how hints in the result and in errors name calls.
        """
        try:
            if name not in self.bindings:
                raise failures.unknown_tool(name, self.bindings)
            spec = self.bindings[name].spec.for_operator
            binding = replace(self.bindings[name], spec=spec, written=written)
            return await call(binding, arguments, await self.services())
        except Exception as error:
            return failures.tool_failure(name, error, written=written)

    async def read_resource(self, uri: str) -> tuple[str | bytes, str]:
        """Return the content of a resource and its media type, as `resources/read`.

        Raises:
            QuintainError: an unknown resource, or whatever its tool refuses.
        """
        services = await self.services()
        return await anyio.to_thread.run_sync(resources.read, self.specs, services, uri)

    def get_capabilities(self, *args: Any, **options: Any) -> ServerCapabilities:
        """Return the capabilities of the SDK with changes of the list of resources alone."""
        found = super().get_capabilities(*args, **options)
        fixed = {
            name: offer.model_copy(update={"list_changed": name == "resources"})
            for name in ("tools", "prompts", "resources")
            if (offer := getattr(found, name)) is not None
        }
        return found.model_copy(update=fixed)


def create_server(
    settings: Settings, *, toolsets: Sequence[str] | None = None, read_only: bool = False
) -> QuintainServer:
    """The server of this installation.

    Args:
        settings: Settings of the operator.
        toolsets: Offer the tools of these sets only; None: all.
        read_only: Offer no tool that changes runs, labels, datasets, agents or trainings.

    Raises:
        InvalidInput: an unknown toolset.
    """
    from quintain.tools.catalog import CATALOG

    def opened() -> Services:
        from quintain.tools.services import open_services

        services = open_services(settings)
        gc.freeze()  # else a call waits 0.1 s while the collector goes through what was imported
        return services

    server = build_server(
        CATALOG,
        opened,
        toolsets=toolsets,
        read_only=read_only,
        state_key=partial(key_of_home, settings.home),
        provider=otlp_provider(settings.telemetry_endpoint) if settings.telemetry_endpoint else None,
    )
    server.home = settings.home
    return server


def build_server(
    catalog: Sequence[ToolSpec],
    open_services: Callable[[], Services],
    *,
    toolsets: Sequence[str] | None = None,
    read_only: bool = False,
    state_key: Callable[[], bytes] | None = None,
    provider: TracerProvider | None = None,
) -> QuintainServer:
    """A server for a catalog of tools, on services that are opened once it runs; its switches are those of `create_server`.

    The state key is that of `elicitation.seal`; without a provider spans go nowhere.
    """
    log_to_stderr()
    bindings = bind_all(catalog, toolsets=toolsets, read_only=read_only)
    specs = resources.resource_specs(catalog)
    bus = InMemorySubscriptionBus()
    spans = Spans(provider, bindings) if provider else None

    @asynccontextmanager
    async def lifespan(server: Server[Running]) -> AsyncIterator[Running]:
        async with lifespan_of(open_services, bus, spans)(server) as running:
            if isinstance(server, QuintainServer):
                server.running, running.home = running, server.home
            yield running

    server = QuintainServer(
        "quintain",
        title="Quintain",
        version=quintain.__version__,
        description="Trains agents: record, score, export, train, evaluate, compare.",
        instructions=INSTRUCTIONS,
        lifespan=lifespan,
        cache_hints={"tools/list": CacheHint(ttl_ms=60_000, scope="public")},
        on_list_tools=partial(
            _list_tools, ListToolsResult(tools=[one.listing for one in bindings.values() if one.spec.is_listed])
        ),
        on_call_tool=partial(_call_tool, bindings),
        on_list_resources=partial(_list_resources, specs),
        on_list_resource_templates=partial(_list_templates, specs),
        on_read_resource=partial(_read_resource, specs),
        on_subscribe_resource=subscribe_resource,
        on_unsubscribe_resource=unsubscribe_resource,
        on_subscriptions_listen=partial(listen, ListenHandler(bus)),
        on_list_prompts=_list_prompts,
        on_get_prompt=_get_prompt,
        on_completion=_complete,
    )
    # The constructor's argument warns that 2026-07-28 drops the method, which clients of the handshake era still call.
    server.add_request_handler("logging/setLevel", SetLevelRequestParams, set_log_level)
    Tasks(bindings).mount(server)
    server.middleware = [*([spans] if spans else []), seal(state_key)]
    server.bindings, server.specs, server.extensions[apps.EXTENSION] = bindings, specs, {}
    return server


async def _list_tools(tools: ListToolsResult, ctx: _Context, params: PaginatedRequestParams | None) -> ListToolsResult:
    return tools


async def _call_tool(
    bindings: Mapping[str, Binding], ctx: _Context, params: CallToolRequestParams
) -> CallToolResult | InputRequiredResult:
    written: Callable[[ToolCall], str] = str
    try:
        if params.name not in bindings:
            raise failures.unknown_tool(params.name, bindings)
        binding = bindings[params.name]
        written = binding.written
        services = await ctx.lifespan_context.services()
        if binding.spec.asks is not None and can_ask(ctx):
            answered = await ask(binding, services, ctx, params)
            if answered is not None:
                return answered
        log = RequestLog(ctx, params.name)
        result = await call(binding, params.arguments or {}, services, log.report_progress)
        await log.result(result)
        return apps.for_client(result, ctx)
    except Exception as error:
        return failures.tool_failure(params.name, error, _hidden(ctx), written)


def _hidden(ctx: _Context) -> Path | None:
    """Return the home folder if the client is one over HTTP, who may be on another machine and does not see it."""
    return ctx.lifespan_context.home if ctx.request is not None else None


async def _list_resources(
    specs: Sequence[resources.ResourceSpec], ctx: _Context, params: PaginatedRequestParams | None
) -> ListResourcesResult:
    try:
        services = await ctx.lifespan_context.services()
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            await ctx.lifespan_context.watch_list()
            ctx.lifespan_context.audience.client(ctx.session).lists = True
        newest = await anyio.to_thread.run_sync(resources.newest, services)
    except QuintainError as error:
        # Tools that do not need the database stay listed while it cannot be opened.
        logger.warning("jobs, datasets and agents are left out of the list of resources: %s", error)
        newest = []
    return ListResourcesResult(resources=[*resources.fixed_resources(specs), *newest])


async def _list_templates(
    specs: Sequence[resources.ResourceSpec], ctx: _Context, params: PaginatedRequestParams | None
) -> ListResourceTemplatesResult:
    return ListResourceTemplatesResult(resource_templates=resources.templates(specs))


async def _read_resource(
    specs: Sequence[resources.ResourceSpec], ctx: _Context, params: ReadResourceRequestParams
) -> ReadResourceResult:
    uri = str(params.uri)
    try:
        services = await ctx.lifespan_context.services()
        content, mime_type = await anyio.to_thread.run_sync(resources.read, specs, services, uri)
    except Exception as error:
        raise failures.protocol_failure(uri, error, _hidden(ctx)) from error
    if isinstance(content, bytes):
        blob = base64.b64encode(content).decode("ascii")
        return ReadResourceResult(contents=[BlobResourceContents(uri=uri, blob=blob, mime_type=mime_type)])
    meta = apps.PAGE_META if mime_type == apps.MIME_TYPE else None
    return ReadResourceResult(contents=[TextResourceContents(uri=uri, text=content, mime_type=mime_type, meta=meta)])


async def _list_prompts(ctx: _Context, params: PaginatedRequestParams | None) -> ListPromptsResult:
    return ListPromptsResult(prompts=[spec.listing for spec in PROMPTS.values()])


async def _get_prompt(ctx: _Context, params: GetPromptRequestParams) -> GetPromptResult:
    spec, arguments = PROMPTS.get(params.name), params.arguments or {}
    if spec is None:
        error = NotFound(f"expected a prompt, got {params.name!r}; valid: {', '.join(PROMPTS)}")
        raise failures.protocol_failure(params.name, error)
    for argument in spec.listing.arguments or ():
        if argument.required and not arguments.get(argument.name):
            fault = InvalidInput(
                f"expected `{argument.name}` of the prompt {params.name}, got none; give it: {argument.description}"
            )
            raise failures.protocol_failure(params.name, fault)
    text = TextContent(type="text", text=spec.render(arguments))
    return GetPromptResult(description=spec.listing.description, messages=[PromptMessage(role="user", content=text)])


async def _complete(ctx: _Context, params: CompleteRequestParams) -> CompleteResult:
    name, start = params.argument.name, params.argument.value
    try:
        services = await ctx.lifespan_context.services()
        values = await anyio.to_thread.run_sync(complete, services, name, start)
    except Exception as error:
        raise failures.protocol_failure(name, error, _hidden(ctx)) from error
    return CompleteResult(completion=Completion(values=values, has_more=len(values) == MAX_COMPLETIONS))
