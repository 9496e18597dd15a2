"""Jobs as tasks: the extension `io.modelcontextprotocol/tasks` (SEP-2663) of 2026-07-28.

A client that declares the extension gets a task from a call that starts a job. The task's id is the job's, so that it
outlives the server, and `get_job` shows the same job to everybody else. A job that failed is a completed task whose result
is an error, as the extension asks for. An interrupted job may be resumed under its id, so that its task is still working.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from mcp import MCPError
from mcp.server import Server, ServerRequestContext
from mcp.server.context import HandlerResult
from mcp.types import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolRequestParams,
    CallToolResult,
    RequestParams,
    TextContent,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import Field

from quintain.errors import NotFound
from quintain.server.calls import failures
from quintain.server.calls.bindings import Binding, call
from quintain.server.lifespan import Running

if TYPE_CHECKING:
    from quintain.records.jobs.job import Job

EXTENSION = "io.modelcontextprotocol/tasks"

_Context = ServerRequestContext[Running]

_STARTER = "start_training"
"""The tool whose answer all tools that start a job share."""

_POLL_MS = 1000

TASK_STATUS: Mapping[str, str] = {
    "queued": "working",
    "running": "working",
    "interrupted": "working",
    "succeeded": "completed",
    "failed": "completed",
    "cancelled": "cancelled",
}
"""Status of a job -> status of its task. The enumeration is not imported, which would slow the start of the server."""


class TaskReference(RequestParams):
    """Parameters of `tasks/get` and `tasks/cancel`."""

    task_id: str


class TaskUpdate(TaskReference):
    """Parameters of `tasks/update`."""

    input_responses: dict[str, Any] = Field(default_factory=dict)


class Tasks:
    """The handlers of the extension."""

    def __init__(self, bindings: Mapping[str, Binding]) -> None:
        self._bindings = bindings

    def mount(self, server: Server[Running]) -> None:
        """Add the extension to a server that serves `tools/call`."""
        entry = server.get_request_handler("tools/call")
        assert entry is not None

        async def call_tool(ctx: _Context, params: CallToolRequestParams) -> HandlerResult:
            result = await entry.handler(ctx, params)
            return await self.of_call(ctx, params.name, result)

        server.extensions[EXTENSION] = {}
        server.add_request_handler("tools/call", CallToolRequestParams, call_tool)
        server.add_request_handler("tasks/get", TaskReference, self.get)
        server.add_request_handler("tasks/update", TaskUpdate, self.update)
        server.add_request_handler("tasks/cancel", TaskReference, self.cancel)

    async def of_call(self, ctx: _Context, tool: str, result: HandlerResult) -> HandlerResult:
        """Return the task of a call that started a job, else the result as it is."""
        binding = self._bindings.get(tool)
        starts = binding is not None and _STARTER in (binding.spec.name, binding.spec.answers_as)
        if not starts or not is_declared(ctx) or not isinstance(result, CallToolResult) or result.is_error:
            return result
        return task_of_start(await self._job(ctx, str((result.structured_content or {})["job_id"])))

    async def get(self, ctx: _Context, params: TaskReference) -> HandlerResult:
        """Serve `tasks/get`: the state of a job, and once it succeeded or failed the answer of `get_job`."""
        _require(ctx)
        job = await self._job(ctx, params.task_id)
        found = _task(job)
        if found["status"] == "completed":
            view = await call(self._bindings["get_job"], {"job_id": job.id}, await _services(ctx))
            result = _final(view, is_error=job.status == "failed")
            found["result"] = result.model_dump(by_alias=True, mode="json", exclude_none=True)
        return {"resultType": "complete", **found}

    async def update(self, ctx: _Context, params: TaskUpdate) -> HandlerResult:
        """Serve `tasks/update`: no job waits for input, so that answers are received and not used."""
        _require(ctx)
        await self._job(ctx, params.task_id)
        return {"resultType": "complete"}

    async def cancel(self, ctx: _Context, params: TaskReference) -> HandlerResult:
        """Serve `tasks/cancel`: ask the job to stop at its next step; a job that has ended stays as it is."""
        _require(ctx)
        job = await self._job(ctx, params.task_id)
        if "cancel_job" not in self._bindings:
            raise MCPError(INVALID_PARAMS, f"[read_only] expected a server that changes jobs, to cancel {job.id}")
        await anyio.to_thread.run_sync((await _services(ctx)).jobs.cancel, job.id)
        return {"resultType": "complete"}

    async def _job(self, ctx: _Context, job_id: str) -> Job:
        services = await _services(ctx)
        try:
            return await anyio.to_thread.run_sync(services.store.jobs.get, job_id)
        except NotFound as error:
            raise failures.protocol_failure(job_id, error) from error


def is_declared(ctx: _Context) -> bool:
    """Whether the client of a request declares the extension; one of the handshake era cannot."""
    capabilities = ctx.session.client_capabilities
    extensions = (capabilities.extensions if capabilities else None) or {}
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS and EXTENSION in extensions


def task_of_start(job: Job) -> dict[str, Any]:
    """Return the result of a call that started a job, as a task."""
    return {"resultType": "task", **_task(job)}


def _require(ctx: _Context) -> None:
    """Refuse a request without the extension, and any of the handshake era."""
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        raise MCPError(METHOD_NOT_FOUND, "Method not found", ctx.method)
    if not is_declared(ctx):
        raise MCPError(
            MISSING_REQUIRED_CLIENT_CAPABILITY,
            f"[missing_capability] expected a client with the extension {EXTENSION}; follow the job with get_job",
            {"requiredCapabilities": {"extensions": {EXTENSION: {}}}},
        )


def _task(job: Job) -> dict[str, Any]:
    total = f" of {job.total_steps}" if job.total_steps else ""
    parts = [str(job.status), job.phase or "", f"step {job.step}{total}" if job.step else ""]
    return {
        "taskId": job.id,
        "status": TASK_STATUS[job.status],
        "statusMessage": ", ".join(part for part in parts if part),
        "createdAt": job.created_at.isoformat(),
        "lastUpdatedAt": job.updated_at.isoformat(),
        "ttlMs": None,
        "pollIntervalMs": _POLL_MS,
    }


def _final(view: CallToolResult, *, is_error: bool) -> CallToolResult:
    """Return the view of an ended job as the answer of the call that started it, which its output schema describes."""
    values = {**(view.structured_content or {}), "deduplicated": False}
    text = TextContent(type="text", text=json.dumps(values, ensure_ascii=False, separators=(",", ":")))
    return CallToolResult(content=[text], structured_content=values, is_error=is_error)


async def _services(ctx: _Context) -> Any:
    return await ctx.lifespan_context.services()
