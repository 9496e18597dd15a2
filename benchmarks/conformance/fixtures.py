"""Tools that the official conformance suite calls by name, to be mounted on our own server.

The suite speaks to a server that offers `test_simple_text` and its like. Each is a handler below our own middleware, beside
the handlers of the product, so that transport, dispatch, errors, sealed states and capabilities under test are ours.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.to_thread
from mcp import MCPError
from mcp.server import ServerRequestContext
from mcp.types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    AudioContent,
    CallToolRequestParams,
    CallToolResult,
    ContentBlock,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    EmbeddedResource,
    ImageContent,
    InputRequiredResult,
    ListRootsRequest,
    LoggingMessageNotification,
    LoggingMessageNotificationParams,
    SamplingMessage,
    TextContent,
    TextResourceContents,
)

from quintain.records.jobs.job import UNFINISHED, JobStatus, SelftestSpec
from quintain.server.tasks import is_declared, task_of_start

Context = ServerRequestContext[Any, Any]
ToolAnswer = CallToolResult | InputRequiredResult
ToolFunction = Callable[[Context, CallToolRequestParams], Awaitable[ToolAnswer]]

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="

_STATUS = ["active", "inactive", "pending"]
_OBJECT: dict[str, Any] = {"type": "object", "properties": {}}


@dataclass(frozen=True)
class Fixture:
    """A tool of the suite: its input schema and its handler."""

    function: ToolFunction
    schema: dict[str, Any]


TOOLS: dict[str, Fixture] = {}


def _tool(name: str, schema: dict[str, Any] = _OBJECT) -> Callable[[ToolFunction], ToolFunction]:
    def register(function: ToolFunction) -> ToolFunction:
        TOOLS[name] = Fixture(function, schema)
        return function

    return register


def text(content: str) -> TextContent:
    """Return a text block."""
    return TextContent(type="text", text=content)


def _result(*content: ContentBlock, is_error: bool = False) -> CallToolResult:
    return CallToolResult(content=list(content), is_error=is_error)


def embedded(uri: str, content: str, mime_type: str = "text/plain") -> EmbeddedResource:
    """Return a text as an embedded resource."""
    resource = TextResourceContents(uri=uri, text=content, mime_type=mime_type)
    return EmbeddedResource(type="resource", resource=resource)


def picture() -> ImageContent:
    """Return a picture of one pixel."""
    return ImageContent(type="image", data=PNG, mime_type="image/png")


def strings(*names: str) -> dict[str, Any]:
    """Return the schema of an object with required strings."""
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": list(names)}


def form(message: str, schema: dict[str, Any]) -> ElicitRequest:
    """Return a request for a form."""
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def _sample(question: str) -> CreateMessageRequest:
    messages = [SamplingMessage(role="user", content=text(question))]
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=messages, max_tokens=50))


@_tool("test_simple_text")
async def _simple_text(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    return _result(text("This is a simple text response for testing."))


@_tool("test_image_content")
async def _image_content(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    return _result(picture())


@_tool("test_audio_content")
async def _audio_content(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    return _result(AudioContent(type="audio", data=WAV, mime_type="audio/wav"))


@_tool("test_embedded_resource")
async def _embedded_resource(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    return _result(embedded("test://embedded-resource", "This is an embedded resource content."))


@_tool("test_multiple_content_types")
async def _multiple_content_types(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    data = json.dumps({"test": "data", "value": 123})
    resource = embedded("test://mixed-content-resource", data, "application/json")
    return _result(text("Multiple content types test:"), picture(), resource)


@_tool("test_error_handling")
async def _error_handling(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    return _result(text("This tool intentionally returns an error for testing"), is_error=True)


@_tool("test_tool_with_logging")
async def _tool_with_logging(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        message = LoggingMessageNotificationParams(level="info", data=line)
        await ctx.session.send_notification(LoggingMessageNotification(params=message), ctx.request_id)
    return _result(text("Tool with logging executed successfully"))


@_tool("test_tool_with_progress")
async def _tool_with_progress(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    for step in (0, 50, 100):
        await ctx.session.report_progress(step, 100, f"Completed step {step} of 100")
    return _result(text(str((ctx.meta or {}).get("progress_token", 0))))


@_tool("test_sampling", strings("prompt"))
async def _sampling(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    reply = await ctx.session.create_message(
        messages=[SamplingMessage(role="user", content=text(str((params.arguments or {})["prompt"])))],
        max_tokens=100,
        related_request_id=ctx.request_id,
    )
    return _result(text(f"LLM response: {getattr(reply.content, 'text', '')}"))


async def _elicited(ctx: Context, message: str, schema: dict[str, Any], start: str) -> ToolAnswer:
    reply = await ctx.session.elicit_form(message, schema, related_request_id=ctx.request_id)
    return _result(text(f"{start}: action={reply.action}, content={json.dumps(reply.content or {})}"))


@_tool("test_elicitation", strings("message"))
async def _elicitation(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    return await _elicited(ctx, str((params.arguments or {})["message"]), strings("response"), "User response")


@_tool("test_elicitation_sep1034_defaults")
async def _elicitation_defaults(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    properties = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": _STATUS, "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    schema = {"type": "object", "properties": properties}
    return await _elicited(ctx, "Please provide user information", schema, "Elicitation completed")


def _titled(**titles: str) -> list[dict[str, str]]:
    return [{"const": value, "title": title} for value, title in titles.items()]


@_tool("test_elicitation_sep1330_enums")
async def _elicitation_enums(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    features = _titled(feature="Feature", bug="Bug Fix", docs="Documentation")
    properties = {
        "untitledSingle": {"type": "string", "enum": _STATUS},
        "titledSingle": {"type": "string", "oneOf": _titled(low="Low", medium="Medium", high="High")},
        "legacyEnum": {"type": "string", "enum": ["small", "large"], "enumNames": ["Small Size", "Large Size"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["read", "write", "execute"]}},
        "titledMulti": {"type": "array", "items": {"anyOf": features}},
    }
    schema = {"type": "object", "properties": properties}
    return await _elicited(ctx, "Please select values", schema, "Elicitation completed")


@_tool("test_missing_capability")
async def _missing_capability(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    capabilities = ctx.session.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        data: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "expected a client with sampling", data)
    return _result(text("The client has sampling."))


@_tool("test_input_required_result_elicitation")
async def _input_elicitation(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    reply = (params.input_responses or {}).get("user_name")
    if reply is None:
        return InputRequiredResult(input_requests={"user_name": form("What is your name?", strings("name"))})
    return _result(text(f"Hello, {(getattr(reply, 'content', None) or {}).get('name', 'stranger')}!"))


@_tool("test_input_required_result_sampling")
async def _input_sampling(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    reply = (params.input_responses or {}).get("capital_question")
    if isinstance(reply, CreateMessageResult):
        return _result(text(f"Model said: {getattr(reply.content, 'text', '')}"))
    return InputRequiredResult(input_requests={"capital_question": _sample("What is the capital of France?")})


@_tool("test_input_required_result_list_roots")
async def _input_list_roots(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    reply = (params.input_responses or {}).get("client_roots")
    if reply is None:
        return InputRequiredResult(input_requests={"client_roots": ListRootsRequest()})
    return _result(text(f"The client has {len(getattr(reply, 'roots', ()))} roots."))


_CONFIRM = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}


@_tool("test_input_required_result_request_state")
async def _input_request_state(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    if "confirm" in (params.input_responses or {}) and params.request_state == "round-1":
        return _result(text("state-ok: confirmed"))
    return InputRequiredResult(input_requests={"confirm": form("Please confirm", _CONFIRM)}, request_state="round-1")


@_tool("test_input_required_result_tampered_state")
async def _input_tampered_state(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    return await _input_request_state(ctx, params)


@_tool("test_input_required_result_multiple_inputs")
async def _input_multiple(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    if (params.input_responses or {}).keys() >= {"user_name", "greeting", "client_roots"}:
        return _result(text("All inputs received."))
    requests = {
        "user_name": form("What is your name?", strings("name")),
        "greeting": _sample("Generate a greeting"),
        "client_roots": ListRootsRequest(),
    }
    return InputRequiredResult(input_requests=requests, request_state="all")


@_tool("test_input_required_result_multi_round")
async def _input_multi_round(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    replies = params.input_responses or {}
    if params.request_state == "2" and "step2" in replies:
        return _result(text("Both steps are answered."))
    if params.request_state == "1" and "step1" in replies:
        request = form("Step 2: What is your favorite color?", strings("color"))
        return InputRequiredResult(input_requests={"step2": request}, request_state="2")
    request = form("Step 1: What is your name?", strings("name"))
    return InputRequiredResult(input_requests={"step1": request}, request_state="1")


@_tool("test_input_required_result_capabilities")
async def _input_capabilities(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    capabilities = ctx.session.client_capabilities
    requests: dict[str, Any] = {}
    if capabilities is not None and capabilities.sampling is not None:
        requests["sample"] = _sample("Say hello")
    if capabilities is not None and capabilities.elicitation is not None:
        requests["ask"] = form("What is your name?", strings("name"))
    return InputRequiredResult(input_requests=requests, request_state="asked")


async def _job(ctx: Context, spec: SelftestSpec) -> Any:
    """Start a job of ours as a task; run it to its end for a client without the extension."""
    services = await ctx.lifespan_context.services()
    job = (await anyio.to_thread.run_sync(services.jobs.start, spec)).job
    if is_declared(ctx):
        return task_of_start(job)
    while job.status in UNFINISHED:
        await anyio.sleep(0.1)
        job = await anyio.to_thread.run_sync(services.store.jobs.get, job.id)
    return _result(text(str(job.status)), is_error=job.status is JobStatus.FAILED)


@_tool("greet", strings("name"))
async def _greet(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    return _result(text(f"Hello, {(params.arguments or {})['name']}!"))


_SECONDS = {"type": "object", "properties": {"seconds": {"type": "number"}, "label": {"type": "string"}}}


@_tool("slow_compute", _SECONDS)
async def _slow_compute(ctx: Context, params: CallToolRequestParams) -> Any:
    return await _job(ctx, SelftestSpec(steps=round(float((params.arguments or {})["seconds"]) * 10), step_s=0.1))


@_tool("failing_job")
async def _failing_job(ctx: Context, params: CallToolRequestParams) -> Any:
    return await _job(ctx, SelftestSpec(steps=3, fail_at=2))


_CONTACT: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": {"city": {"type": "string"}}}},
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@_tool("json_schema_2020_12_tool", _CONTACT)
async def _contact(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    return _result(text("Contact stored."))


_REGION = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}


@_tool("test_x_mcp_header", _REGION)
async def _mirrored_header(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    return _result(text(f"region={(params.arguments or {}).get('region')}"))
