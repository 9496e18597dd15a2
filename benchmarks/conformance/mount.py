"""Resources and prompts that the official conformance suite asks for by name, and all its fixtures on our own server."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from mcp import MCPError
from mcp.types import (
    INTERNAL_ERROR,
    BlobResourceContents,
    CallToolRequestParams,
    ContentBlock,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequiredResult,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
    Tool,
)

from benchmarks.conformance.fixtures import PNG, TOOLS, Context, embedded, form, picture, strings, text
from quintain.server.app import QuintainServer

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
        return [text("This is a simple prompt for testing.")]
    if params.name == "test_prompt_with_arguments":
        return [text(f"Prompt with arguments: arg1='{arguments['arg1']}', arg2='{arguments['arg2']}'")]
    if params.name == "test_prompt_with_image":
        return [picture(), text("Please analyze the image above.")]
    content = embedded(arguments["resourceUri"], "Embedded resource content for testing.")
    return [content, text("Please process the embedded resource above.")]


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
                request = form("What context should the prompt use?", strings("context"))
                return InputRequiredResult(input_requests={"user_context": request})
            context = (getattr(reply, "content", None) or {}).get("context", "")
            return GetPromptResult(messages=[PromptMessage(role="user", content=text(f"Use the context: {context}"))])
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
