"""Objects around the result of a tool call: those of tracing tools and protocols, and the call itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quintain.importers.values import as_dict, dicts_in, parse_json_text

RESULT_KEYS = ("functionResponse", "function_response", "toolResult", "tool_call_result")
_OF_MCP = {"content", "structuredContent", "isError", "_meta"}
_OF_GEMINI = {"output", "error"}


def result_of_part(part: Mapping[str, Any]) -> tuple[Mapping[str, Any], Any]:
    """Return the fields of a part that is a result of any vendor, and what the tool answered."""
    held = next((part[key] for key in RESULT_KEYS if as_dict(part.get(key))), part)
    held = {**as_dict(held.get("origin")), **held}  # Haystack's results name their call there
    answer = as_dict(held.get("response"))
    if answer and answer.keys() <= _OF_GEMINI:
        held |= {"response": None, **answer}
    body = next((held[key] for key in ("content", "response", "result", "output") if held.get(key) is not None), None)
    beside = dicts_in(held.get("parts"))  # pictures of Gemini's results
    return held, [body, *beside] if beside else body


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
