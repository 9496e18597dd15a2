"""Tools, prompts and resources that the official conformance suite calls by name, mounted on our own server.

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
    INTERNAL_ERROR,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    AudioContent,
    BlobResourceContents,
    CallToolRequestParams,
    CallToolResult,
    ContentBlock,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    EmbeddedResource,
    GetPromptRequestParams,
    GetPromptResult,
    ImageContent,
    InputRequiredResult,
    ListRootsRequest,
    LoggingMessageNotification,
    LoggingMessageNotificationParams,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    SamplingMessage,
    TextContent,
    TextResourceContents,
    Tool,
)

from quintain.records.job import UNFINISHED, JobStatus, SelftestSpec
from quintain.server.app import QuintainServer
from quintain.server.tasks import created, is_declared

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


def _text(text: str) -> TextContent:
    return TextContent(type="text", text=text)


def _result(*content: ContentBlock, is_error: bool = False) -> CallToolResult:
    return CallToolResult(content=list(content), is_error=is_error)


def _embedded(uri: str, text: str, mime_type: str = "text/plain") -> EmbeddedResource:
    return EmbeddedResource(type="resource", resource=TextResourceContents(uri=uri, text=text, mime_type=mime_type))


def _picture() -> ImageContent:
    return ImageContent(type="image", data=PNG, mime_type="image/png")


def _strings(*names: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": list(names)}


def _form(message: str, schema: dict[str, Any]) -> ElicitRequest:
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def _sample(text: str) -> CreateMessageRequest:
    messages = [SamplingMessage(role="user", content=_text(text))]
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=messages, max_tokens=50))


@_tool("test_simple_text")
async def _simple_text(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    return _result(_text("This is a simple text response for testing."))


@_tool("test_image_content")
async def _image_content(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    return _result(_picture())


@_tool("test_audio_content")
async def _audio_content(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    return _result(AudioContent(type="audio", data=WAV, mime_type="audio/wav"))


@_tool("test_embedded_resource")
async def _embedded_resource(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    return _result(_embedded("test://embedded-resource", "This is an embedded resource content."))


@_tool("test_multiple_content_types")
async def _multiple_content_types(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    data = json.dumps({"test": "data", "value": 123})
    resource = _embedded("test://mixed-content-resource", data, "application/json")
    return _result(_text("Multiple content types test:"), _picture(), resource)


@_tool("test_error_handling")
async def _error_handling(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    return _result(_text("This tool intentionally returns an error for testing"), is_error=True)


@_tool("test_tool_with_logging")
async def _tool_with_logging(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        message = LoggingMessageNotificationParams(level="info", data=line)
        await ctx.session.send_notification(LoggingMessageNotification(params=message), ctx.request_id)
    return _result(_text("Tool with logging executed successfully"))


@_tool("test_tool_with_progress")
async def _tool_with_progress(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    for step in (0, 50, 100):
        await ctx.session.report_progress(step, 100, f"Completed step {step} of 100")
    return _result(_text(str((ctx.meta or {}).get("progress_token", 0))))


@_tool("test_sampling", _strings("prompt"))
async def _sampling(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    reply = await ctx.session.create_message(
        messages=[SamplingMessage(role="user", content=_text(str((params.arguments or {})["prompt"])))],
        max_tokens=100,
        related_request_id=ctx.request_id,
    )
    return _result(_text(f"LLM response: {getattr(reply.content, 'text', '')}"))


async def _elicited(ctx: Context, message: str, schema: dict[str, Any], start: str) -> ToolAnswer:
    reply = await ctx.session.elicit_form(message, schema, related_request_id=ctx.request_id)
    return _result(_text(f"{start}: action={reply.action}, content={json.dumps(reply.content or {})}"))


@_tool("test_elicitation", _strings("message"))
async def _elicitation(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    return await _elicited(ctx, str((params.arguments or {})["message"]), _strings("response"), "User response")


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
    return _result(_text("The client has sampling."))


@_tool("test_input_required_result_elicitation")
async def _input_elicitation(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    reply = (params.input_responses or {}).get("user_name")
    if reply is None:
        return InputRequiredResult(input_requests={"user_name": _form("What is your name?", _strings("name"))})
    return _result(_text(f"Hello, {(getattr(reply, 'content', None) or {}).get('name', 'stranger')}!"))


@_tool("test_input_required_result_sampling")
async def _input_sampling(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    reply = (params.input_responses or {}).get("capital_question")
    if isinstance(reply, CreateMessageResult):
        return _result(_text(f"Model said: {getattr(reply.content, 'text', '')}"))
    return InputRequiredResult(input_requests={"capital_question": _sample("What is the capital of France?")})


@_tool("test_input_required_result_list_roots")
async def _input_list_roots(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    reply = (params.input_responses or {}).get("client_roots")
    if reply is None:
        return InputRequiredResult(input_requests={"client_roots": ListRootsRequest()})
    return _result(_text(f"The client has {len(getattr(reply, 'roots', ()))} roots."))


_CONFIRM = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}


@_tool("test_input_required_result_request_state")
async def _input_request_state(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    if "confirm" in (params.input_responses or {}) and params.request_state == "round-1":
        return _result(_text("state-ok: confirmed"))
    return InputRequiredResult(input_requests={"confirm": _form("Please confirm", _CONFIRM)}, request_state="round-1")


@_tool("test_input_required_result_tampered_state")
async def _input_tampered_state(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    return await _input_request_state(ctx, params)


@_tool("test_input_required_result_multiple_inputs")
async def _input_multiple(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    if (params.input_responses or {}).keys() >= {"user_name", "greeting", "client_roots"}:
        return _result(_text("All inputs received."))
    requests = {
        "user_name": _form("What is your name?", _strings("name")),
        "greeting": _sample("Generate a greeting"),
        "client_roots": ListRootsRequest(),
    }
    return InputRequiredResult(input_requests=requests, request_state="all")


@_tool("test_input_required_result_multi_round")
async def _input_multi_round(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    replies = params.input_responses or {}
    if params.request_state == "2" and "step2" in replies:
        return _result(_text("Both steps are answered."))
    if params.request_state == "1" and "step1" in replies:
        request = _form("Step 2: What is your favorite color?", _strings("color"))
        return InputRequiredResult(input_requests={"step2": request}, request_state="2")
    request = _form("Step 1: What is your name?", _strings("name"))
    return InputRequiredResult(input_requests={"step1": request}, request_state="1")


@_tool("test_input_required_result_capabilities")
async def _input_capabilities(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    capabilities = ctx.session.client_capabilities
    requests: dict[str, Any] = {}
    if capabilities is not None and capabilities.sampling is not None:
        requests["sample"] = _sample("Say hello")
    if capabilities is not None and capabilities.elicitation is not None:
        requests["ask"] = _form("What is your name?", _strings("name"))
    return InputRequiredResult(input_requests=requests, request_state="asked")


async def _job(ctx: Context, spec: SelftestSpec) -> Any:
    """Start a job of ours as a task; run it to its end for a client without the extension."""
    services = await ctx.lifespan_context.services()
    job = (await anyio.to_thread.run_sync(services.jobs.start, spec)).job
    if is_declared(ctx):
        return created(job)
    while job.status in UNFINISHED:
        await anyio.sleep(0.1)
        job = await anyio.to_thread.run_sync(services.store.jobs.get, job.id)
    return _result(_text(str(job.status)), is_error=job.status is JobStatus.FAILED)


@_tool("greet", _strings("name"))
async def _greet(ctx: Context, params: CallToolRequestParams) -> ToolAnswer:
    return _result(_text(f"Hello, {(params.arguments or {})['name']}!"))


_SECONDS = {"type": "object", "properties": {"seconds": {"type": "number"}, "label": {"type": "string"}}}


@_tool("slow_compute", _SECONDS)
async def _slow_compute(ctx: Context, params: CallToolRequestParams) -> Any:
    return await _job(ctx, SelftestSpec(steps=round(float((params.arguments or {})["seconds"]) * 10), step_s=0.1))


@_tool("failing_job")
async def _failing_job(ctx: Context, params: CallToolRequestParams) -> Any:
    return await _job(ctx, SelftestSpec(steps=3, fail_at=2))


RESOURCES: dict[str, TextResourceContents | BlobResourceContents] = {
    "test://static-text": TextResourceContents(
        uri="test://static-text", text="This is the content of the static text resource.", mime_type="text/plain"
    ),
    "test://static-binary": BlobResourceContents(uri="test://static-binary", blob=PNG, mime_type="image/png"),
    "test://watched-resource": TextResourceContents(uri="test://watched-resource", text="Watched resource content"),
}

_TEMPLATE = ("test://template/", "/data")


def _resource(uri: str) -> TextResourceContents | BlobResourceContents | None:
    if uri.startswith(_TEMPLATE[0]) and uri.endswith(_TEMPLATE[1]):
        name = uri.removeprefix(_TEMPLATE[0]).removesuffix(_TEMPLATE[1])
        text = json.dumps({"id": name, "templateTest": True, "data": f"Data for ID: {name}"})
        return TextResourceContents(uri=uri, text=text, mime_type="application/json")
    return RESOURCES.get(uri)


def _prompt(name: str, *arguments: str) -> Prompt:
    listed = [PromptArgument(name=argument, description=argument, required=True) for argument in arguments]
    return Prompt(name=name, description=f"The suite's {name}.", arguments=listed or None)


PROMPTS = {
    prompt.name: prompt
    for prompt in (
        _prompt("test_simple_prompt"),
        _prompt("test_prompt_with_arguments", "arg1", "arg2"),
        _prompt("test_prompt_with_embedded_resource", "resourceUri"),
        _prompt("test_prompt_with_image"),
        _prompt("test_input_required_result_prompt"),
    )
}


def _messages(params: GetPromptRequestParams) -> list[ContentBlock]:
    arguments = params.arguments or {}
    if params.name == "test_simple_prompt":
        return [_text("This is a simple prompt for testing.")]
    if params.name == "test_prompt_with_arguments":
        return [_text(f"Prompt with arguments: arg1='{arguments['arg1']}', arg2='{arguments['arg2']}'")]
    if params.name == "test_prompt_with_image":
        return [_picture(), _text("Please analyze the image above.")]
    embedded = _embedded(arguments["resourceUri"], "Embedded resource content for testing.")
    return [embedded, _text("Please process the embedded resource above.")]


def mount(server: QuintainServer) -> QuintainServer:
    """Return the server with the suite's fixtures beside what it offers itself."""

    def own(method: str) -> Callable[[Context, Any], Awaitable[Any]]:
        entry = server.get_request_handler(method)
        assert entry is not None, method
        return entry.handler

    call, read, prompt = own("tools/call"), own("resources/read"), own("prompts/get")

    async def call_tool(ctx: Context, params: CallToolRequestParams) -> Any:
        if params.name not in TOOLS:
            return await call(ctx, params)
        return await TOOLS[params.name].function(ctx, params)

    async def read_resource(ctx: Context, params: ReadResourceRequestParams) -> Any:
        found = _resource(str(params.uri))
        return await read(ctx, params) if found is None else ReadResourceResult(contents=[found])

    async def get_prompt(ctx: Context, params: GetPromptRequestParams) -> Any:
        if params.name not in PROMPTS:
            return await prompt(ctx, params)
        if params.name == "test_input_required_result_prompt":
            reply = (params.input_responses or {}).get("user_context")
            if reply is None:
                request = _form("What context should the prompt use?", _strings("context"))
                return InputRequiredResult(input_requests={"user_context": request})
            context = (getattr(reply, "content", None) or {}).get("context", "")
            return GetPromptResult(messages=[PromptMessage(role="user", content=_text(f"Use the context: {context}"))])
        return GetPromptResult(messages=[PromptMessage(role="user", content=part) for part in _messages(params)])

    server.add_request_handler("tools/call", CallToolRequestParams, call_tool)
    server.add_request_handler("resources/read", ReadResourceRequestParams, read_resource)
    server.add_request_handler("prompts/get", GetPromptRequestParams, get_prompt)
    tools = [
        Tool(name=name, description=f"The suite's {name}.", input_schema=one.schema) for name, one in TOOLS.items()
    ]
    resources = [Resource(uri=uri, name=uri, mime_type=one.mime_type) for uri, one in RESOURCES.items()]
    template = ResourceTemplate(uri_template="{id}".join(_TEMPLATE), name="template", mime_type="application/json")
    _extend(server, "tools/list", "tools", tools)
    _extend(server, "resources/list", "resources", resources)
    _extend(server, "resources/templates/list", "resource_templates", [template])
    _extend(server, "prompts/list", "prompts", list(PROMPTS.values()))
    return server


def _extend(server: QuintainServer, method: str, field: str, fixtures: list[Any]) -> None:
    entry = server.get_request_handler(method)
    if entry is None:
        raise MCPError(INTERNAL_ERROR, f"expected a handler of {method}, got none")

    async def listed(ctx: Context, params: PaginatedRequestParams) -> Any:
        found: Any = await entry.handler(ctx, params)
        return found.model_copy(update={field: [*getattr(found, field), *fixtures]})

    server.add_request_handler(method, PaginatedRequestParams, listed)
