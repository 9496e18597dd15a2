"""One conversation as tracing tools record it: two model calls, the second with the whole history before it."""

from __future__ import annotations

import json
from typing import Any

from agent_logs import function_call, message
from small_logs import small_log

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}


OAI_CALL = [function_call("get_order", '{"id": 7}', "c1")]


OAI_TOOL = {"type": "function", "function": {"name": "get_order", "description": "An order", "parameters": SCHEMA}}


BEGIN = [message("system", "You are a clerk."), message("user", "Where is order 7?")]


RESULT = message("tool", "shipped", tool_call_id="c1")


LATER = [*BEGIN, message("assistant", None, tool_calls=OAI_CALL), RESULT]


def covered(value: Any) -> dict[str, Any]:
    """A value as OTLP writes it."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [covered(item) for item in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": [{"key": k, "value": covered(v)} for k, v in value.items()]}}
    return {"stringValue": value}


def attributes(**fields: Any) -> list[dict[str, Any]]:
    return [{"key": key, "value": covered(value)} for key, value in fields.items()]


def span(
    n: int, name: str, fields: dict[str, Any], *, trace: str = "t1", parent: str = "s0", **more: Any
) -> dict[str, Any]:
    """A span that began `n` seconds after a fixed moment."""
    start = str(1_760_000_000_000_000_000 + n * 10**9)
    return {
        "traceId": trace,
        "spanId": f"s{n}",
        "parentSpanId": parent if n else "",
        "name": name,
        "startTimeUnixNano": start,
        "attributes": attributes(**fields),
        **more,
    }


def otlp(*spans: dict[str, Any]) -> dict[str, Any]:
    resource = {"attributes": attributes(**{"service.name": "shop", "service.version": "1.2"})}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "x"}, "spans": list(spans)}]}]}


def spoken(role: str, text: str, **more: Any) -> dict[str, Any]:
    """A message of one text in the form of the GenAI conventions."""
    return {"role": role, "parts": [{"type": "text", "content": text}], **more}


USER = spoken("user", "Where is order 7?")


ASKED = {
    "role": "assistant",
    "parts": [
        {"type": "reasoning", "content": "look it up"},
        {"type": "tool_call", "id": "c1", "name": "get_order", "arguments": {"id": 7}},
    ],
    "finish_reason": "tool_call",
}


TOLD = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "shipped"}]}


SAID = spoken("assistant", "It has shipped.", finish_reason="stop")


SYSTEM = [{"type": "text", "content": "You are a clerk."}]


TOOLS = [{"type": "function", "name": "get_order", "description": "An order", "parameters": SCHEMA}]


def chat(inputs: Any, outputs: Any, tokens: int, *, as_text: bool = True, **more: Any) -> dict[str, Any]:
    def shown(value: Any) -> Any:
        return json.dumps(value) if as_text else value

    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.response.model": "m-2026",
        "gen_ai.system_instructions": shown(SYSTEM),
        "gen_ai.tool.definitions": shown(TOOLS),
        "gen_ai.input.messages": shown(inputs),
        "gen_ai.output.messages": shown(outputs),
        "gen_ai.usage.input_tokens": tokens,
        "gen_ai.usage.output_tokens": 5,
        **more,
    }


def tool_span(n: int, tool: str, **about: Any) -> dict[str, Any]:
    fields = {f"gen_ai.tool.{key}": value for key, value in {"name": tool, **about}.items()}
    return span(n, f"execute_tool {tool}", {"gen_ai.operation.name": "execute_tool", **fields})


def genai(*, as_text: bool, told: dict[str, Any] = TOLD) -> list[dict[str, Any]]:
    """An agent's span, two model calls, and the tool between them."""
    bare = {**ASKED, "parts": ASKED["parts"][1:]}
    return [
        span(0, "invoke_agent shop", {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk"}),
        span(1, "chat m", chat([USER], [ASKED], 10, as_text=as_text)),
        tool_span(2, "get_order", **{"call.id": "c1", "call.result": "shipped"}),
        span(3, "chat m", chat([USER, bare, told], [SAID], 20, as_text=as_text)),
    ]


LC_CALL = {"name": "get_order", "args": {"id": 7}, "id": "c1", "type": "tool_call"}


def lc(kind: str, **fields: Any) -> dict[str, Any]:
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", kind], "kwargs": fields}


def smith(n: int, run_type: str, inputs: Any, outputs: Any, **more: Any) -> dict[str, Any]:
    order = f"20260101T00000{n}000000Zr{n}"
    return {
        "id": f"r{n}",
        "trace_id": "r0",
        "parent_run_id": "r0" if n else None,
        "dotted_order": f"20260101T000000000000Zr0.{order}" if n else order,
        "run_type": run_type,
        "name": run_type,
        "start_time": f"2026-01-01T00:00:0{n}.000000",
        "inputs": inputs,
        "outputs": outputs,
        **more,
    }


def fuse(n: int, kind: str, given: Any, gave: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": f"o{n}",
        "traceId": "t1",
        "parentObservationId": "o0" if n else None,
        "type": kind,
        "name": "get_order" if kind == "TOOL" else "clerk",
        "startTime": f"2026-01-01T00:00:0{n}.000Z",
        "input": given,
        "output": gave,
        **more,
    }


def observations(*, as_text: bool) -> list[dict[str, Any]]:
    """The conversation in Langfuse, with inputs and outputs as JSON or as its text."""
    known = small_log("langfuse")["observations"]
    for one in known if as_text else ():
        one |= {key: json.dumps(one[key]) for key in ("input", "output") if isinstance(one[key], dict | list)}
    return known
