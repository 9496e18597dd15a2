"""Objects around the result of a tool call: those of tracing tools and protocols, and the call itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quintain.importers.values import as_dict, dicts_in, parse_json_text

_OF_MCP = {"content", "structuredContent", "isError", "_meta"}


def unwrap_result(message: Mapping[str, Any], body: Any) -> Any:
    """Return the result within an object that repeats the call's id (Microsoft's Agent Framework); else the body."""
    inner = as_dict(parse_json_text(body, '"call_id"'))
    own = inner.get("call_id")
    return inner["result"] if own is not None and "result" in inner and own in message.values() else body


def mcp_result(value: Any) -> dict[str, Any]:
    """Return the object that an MCP server answers a call with; {} for another value."""
    known = as_dict(parse_json_text(value))
    return known if dicts_in(known.get("content")) and known.keys() <= _OF_MCP else {}


def result_in_call(value: Any) -> tuple[Mapping[str, Any], Any] | None:
    """Return the object that states a call and its result, with the result; None where it states no result or error."""
    held = as_dict(as_dict(value).get("tool_call")) or as_dict(value)
    body = held.get("output") if held.get("result") is None else held["result"]
    return None if body is None and not held.get("error") else (held, body)
