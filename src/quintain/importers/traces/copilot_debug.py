"""Requests of GitHub Copilot in VS Code: prompts that the Chat Debug view exports as JSON (`*.chatreplay.json`).

A request has the whole prompt, system prompt and tools included, and the text of the answer. The calls of the answer are
the records of tools after the request, and stand in the prompts of later requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, matching_share, object_rows
from quintain.importers.run_builder import build_session_run
from quintain.importers.traces.conversations import ModelCall, ToolCall, build_conversations, match_results
from quintain.importers.traces.trace_records import recorded_call
from quintain.importers.transcripts.chat_messages import Turn
from quintain.importers.transcripts.message_parts import Result
from quintain.importers.transcripts.transcript import make_call
from quintain.importers.values import as_count, as_dict, as_list, as_text, dicts_in, nonblank, parse_time, parse_usage

_ROLES = {0: "system", 1: "user", 2: "assistant", 3: "tool"}
_IMAGE, _TEXT, _OPAQUE = range(3)
"""Kinds of parts, as `@vscode/prompt-tsx` numbers them."""
_OWN_ID = "__vscode"
"""What VS Code puts after the id of a call, before a number."""


def _detect(probe: Probe) -> float:
    """Match prompts with logs of requests."""
    return (
        0.97 if matching_share(probe, lambda row: any(map(_is_request, _logs(row))), "prompts", "logs") >= 0.5 else 0.0
    )


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    calls: list[ModelCall] = []
    tool_calls: list[ToolCall] = []
    for record in (record for _, row in object_rows(log, report) for record in _logs(row)):
        if _is_request(record):
            calls += _request(record, report)
        elif record.get("kind") == "toolCall":
            tool_calls.append(_run_of_tool(record, calls))
        else:
            report.skip(as_text(record.get("kind")) or "record without a kind")
    found = build_conversations([call for call in calls if any(call.outputs)], is_one=False)
    match_results(found, tool_calls, report)
    for conversation in found:
        about = {"request": conversation.agent}
        turns, tools = conversation.turns_with_results, conversation.tools
        yield from build_session_run(turns, report, agent="github-copilot", about=about, tools=tools)


IMPORTER = Importer("copilot_debug", "GitHub Copilot requests", _detect, _read)


def _logs(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the records of all prompts, or of the only one."""
    return [record for prompt in dicts_in(row.get("prompts")) or [row] for record in dicts_in(prompt.get("logs"))]


def _is_request(record: dict[str, Any]) -> bool:
    return record.get("kind") == "request" and "messages" in as_dict(record.get("requestMessages"))


def _request(record: dict[str, Any], report: Report) -> list[ModelCall]:
    """Return a request with the text of its answer; [] if it has none."""
    about, response = as_dict(record.get("metadata")), as_dict(record.get("response"))
    reply = response.get("message")
    if reply is None:
        report.skip(f"request: {as_text(response.get('type')) or 'without a response'}")
        return []
    messages = dicts_in(as_dict(record["requestMessages"]).get("messages"))
    request = {"messages": [_message(message) for message in messages], "tools": about.get("tools")}
    start, model, usage = about.get("startTime"), nonblank(about.get("model")), parse_usage(about.get("usage"))
    call = recorded_call(request, None, start, report, model=model, usage=usage, settings=[], error=None)
    call.outputs = [Turn("agent", "".join(map(as_text, as_list(reply))) or as_text(reply))]
    call.agent = as_text(record.get("name")) or None
    return [call]


def _message(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message in the form of OpenAI's API."""
    parts = [part for part in map(_part, dicts_in(message.get("content"))) if part]
    calls = {"tool_calls": message["toolCalls"]} if message.get("toolCalls") else {}
    role = as_count(message.get("role"))
    known = {"role": None if role is None else _ROLES.get(role), "content": parts, **calls}
    return known | ({"tool_call_id": message["toolCallId"]} if message.get("toolCallId") else {})


def _part(part: dict[str, Any]) -> dict[str, Any] | None:
    """Return a part with its kind as text; None for marks of the program."""
    kind, value = part.get("type"), as_dict(part.get("value"))
    if kind == _TEXT:
        return {"type": "text", "text": as_text(part.get("text"))}
    if kind == _IMAGE:
        return {"type": "image_url", "image_url": part.get("imageUrl")}
    thought = _thought(value) if kind == _OPAQUE and value.get("type") == "thinking" else ""
    return {"type": "thinking", "thinking": thought} if thought else None


def _thought(held: dict[str, Any]) -> str:
    text = as_dict(held.get("thinking")).get("text")
    return "\n".join(map(as_text, as_list(text))) or as_text(text)


def _run_of_tool(record: dict[str, Any], calls: list[ModelCall]) -> ToolCall:
    """Return the run of a tool, and give its call to the answer of the last request that offered the tool."""
    name, call_id = as_text(record.get("tool")), as_text(record.get("id")).partition(_OWN_ID)[0]
    call = make_call(name, record.get("args"), call_id)
    asked = next((each for each in reversed(calls) if name in _names(each)), None)
    if asked is not None:
        (turn,) = asked.outputs
        turn.calls.append(call)
        turn.thoughts = turn.thoughts or list(filter(None, [_thought(record)]))
    result = Result("\n".join(map(as_text, as_list(record.get("response")))), call_id, tool=name)
    return ToolCall(call, result, parse_time(record.get("time")))


def _names(call: ModelCall) -> set[str]:
    return {as_text(as_dict(tool.get("function")).get("name")) for tool in call.tools}
