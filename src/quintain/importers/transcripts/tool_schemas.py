"""Tool schemas of an agent: given or declared by the log, else inferred from the calls."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from quintain.importers.transcripts.transcript import Transcript, function_tool
from quintain.importers.values import as_dict, as_list, dicts_in, nonblank, parse_json_text

INFERRED = "the log has no tool schemas: they are inferred from the calls (names and argument names only)"
TEXT_ARGUMENTS = {"type": "string", "properties": {}}
"""Parameters of a tool that takes free text; chat templates iterate over the properties."""
_COLUMNS = ("tools", "functions", "tool_definitions", "available_tools")
_PARAMETERS = ("parameters", "input_schema", "inputSchema", "parameters_json_schema", "params", "arguments")
_DECLARED = re.compile(r"<tools>(.*?)</tools>|tool_declare<\|im_middle\|>(.*?)<\|im_end\|>", re.DOTALL)
"""Tools declared as JSON in a system prompt: Hermes and Qwen, Kimi (Toucan)."""


def parse_tool_schemas(value: Any) -> list[dict[str, Any]]:
    """Convert tool schemas of any vendor, objects or JSON text, to OpenAI functions."""
    value = parse_json_text(value)
    tools = dicts_in([parse_json_text(tool) for tool in (value if isinstance(value, list) else [value])])
    declared = ("functionDeclarations", "function_declarations")
    tools += [inner for tool in tools for key in declared for inner in dicts_in(tool.get(key))]
    # Codex keeps tools in namespaces, and calls them `namespace.tool`.
    spaces = [tool for tool in tools if dicts_in(tool.get("tools"))]
    inner = [
        {**tool, "name": f"{space.get('name')}.{tool.get('name')}"}
        for space in spaces
        for tool in dicts_in(space["tools"])
    ]
    tools = [tool for tool in tools if tool not in spaces] + inner
    schemas = []
    for tool in tools:
        tool = as_dict(parse_json_text(tool.get("json_schema"))) or tool
        function = as_dict(tool.get("function")) or as_dict(tool.get("toolSpec")) or as_dict(tool.get("custom")) or tool
        if name := nonblank(function.get("name")):
            candidates = (parse_json_text(function.get(key)) for key in _PARAMETERS)
            schema = next((known for known in candidates if isinstance(known, dict)), None)
            if schema is None and tool.get("type") == "custom":  # OpenAI's tools of free text
                schema = TEXT_ARGUMENTS
            schemas.append(function_tool(name, nonblank(function.get("description"), function.get("doc")), schema))
    return schemas


def is_tool_schema(value: Any) -> bool:
    """Whether a value is the schema of a function rather than a call of it."""
    function = as_dict(as_dict(value).get("function"))
    return as_dict(value).get("type") == "function" and "name" in function and "arguments" not in function


def offered_tools(*holders: Any) -> list[dict[str, Any]]:
    """Return the schemas of the first tool column that has some, in the first object or list of messages that has one."""
    for known in map(parse_json_text, holders):
        listed = [message.get("content") for message in dicts_in(known)] if isinstance(known, list) else []
        holder = as_dict(known) or {"tools": [content for content in listed if is_tool_schema(content)]}
        for column in _COLUMNS:
            if schemas := parse_tool_schemas(holder.get(column)):
                return schemas
    return []


def declared_tools(transcript: Transcript) -> list[dict[str, Any]]:
    """Return the tools in the system prompt if the log separates calls from text; else both stay text."""
    if not transcript.called:
        return []
    opening: Mapping[str, Any] = transcript.steps[0]
    found = _DECLARED.search(opening["message"]) if isinstance(opening["message"], str) else None
    if opening["actor"] != "system" or found is None:
        return []
    written = (found[1] or found[2] or "").strip()
    whole = parse_json_text(written)
    return parse_tool_schemas(whole if isinstance(whole, list) else as_list(written.splitlines()))


def inferred_tools(transcript: Transcript) -> list[dict[str, Any]]:
    """Infer schemas from the calls: tool names, and argument names or free text."""
    text = transcript.text_tools
    return [
        function_tool(name, None, TEXT_ARGUMENTS if name in text else {"type": "object", "properties": dict(arguments)})
        for name, arguments in transcript.called.items()
    ]
