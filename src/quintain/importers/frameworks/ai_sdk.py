"""Messages of chat interfaces made with the Vercel AI SDK (`UIMessage`): arrays, a message or a chat a line.

A message of the assistant contains several turns of the model, which `step-start` separates. Each tool part is a call with
its result. Before version 4.2 a message has its text in `content` and its calls in `toolInvocations`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, runs_or_parts
from quintain.importers.run_builder import build_session_run, transcript_of
from quintain.importers.transcripts.chat_messages import Turn
from quintain.importers.transcripts.message_parts import Result, join_messages, visible_content
from quintain.importers.transcripts.transcript import make_call
from quintain.importers.values import (
    as_dict,
    as_name,
    as_text,
    dicts_in,
    nonblank,
    parse_json_text,
    parse_time,
    parse_usage,
    to_text,
)

_ROLES = {"user": "user", "system": "system", "assistant": "agent"}
_LISTS = ("messages", "uiMessages", "ui_messages", "initialMessages")
_STATES = {"input-streaming", "input-available", "output-available", "output-error", "output-denied"}
_STATES |= {"approval-requested", "approval-responded", "partial-call", "call", "result"}
_FAILED = {"output-error", "output-denied"}
_DENIED = "Tool call execution denied."
"""Text that the SDK gives to the model for a denied call without a reason."""


def _detect(probe: Probe) -> float:
    """Match messages with parts of the SDK's own kinds, alone or in records; plain text parts are less sure."""
    rows = [row for row in (*probe.rows, probe.document) if row is not None]
    if not rows or probe.shape not in {"array", "lines", "object"}:
        return 0.0
    if all(map(_is_message, rows)) and probe.shape != "object":
        return _confidence(0.96, rows)
    held = [messages for row in rows if (messages := _held(row))]
    return (
        _confidence(0.95, [message for messages in held for message in messages]) if 2 * len(held) > len(rows) else 0.0
    )


def _confidence(best: float, messages: list[Any]) -> float:
    if any(map(_has_mark, messages)):
        return best
    return 0.75 if all("parts" in message for message in messages) else 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    for line, row in runs_or_parts(log, report, _is_message):
        if messages := _held(row):
            yield from _run(messages, as_dict(row), report, line)
        else:
            report.reject(line, "expected a message with `role` and `parts`, or a record with such messages")


IMPORTER = Importer("ai_sdk", "AI SDK UI messages", _detect, _read)


def _is_message(value: Any) -> bool:
    known = as_dict(value)
    parts = known.get("parts")
    typed = isinstance(parts, list) and all(isinstance(as_dict(part).get("type"), str) for part in parts)
    return as_text(known.get("role")) in _ROLES and (typed or (parts is None and isinstance(known.get("content"), str)))


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of a message; one of an older version has its calls before its text."""
    if isinstance(message.get("parts"), list):
        return dicts_in(message["parts"])
    calls = dicts_in(message.get("toolInvocations"))
    text = [{"type": "text", "text": message.get("content")}]
    return [*({"type": "tool-invocation", "toolInvocation": call} for call in calls), *text]


def _held(row: Any) -> list[Any]:
    """Return the messages of a record or of a list; [] if it has none."""
    places = [row, *(as_dict(row).get(key) for key in _LISTS)]
    found = (parse_json_text(place, '"role"') for place in places)
    return next((v for v in found if isinstance(v, list) and v and all(map(_is_message, v[:20]))), [])


def _has_mark(message: Any) -> bool:
    """Whether a message has a part of a kind that only the SDK writes."""
    return any(_is_tool(part) or part.get("type") == "step-start" for part in _parts(as_dict(message)))


def _is_tool(part: dict[str, Any]) -> bool:
    kind, inner = as_text(part.get("type")), as_dict(part.get("toolInvocation"))
    named = (kind.startswith("tool-") or kind == "dynamic-tool") and "toolCallId" in part
    return (named and as_text(part.get("state")) in _STATES) or (
        kind == "tool-invocation" and as_text(inner.get("state")) in _STATES
    )


def _run(messages: list[Any], row: dict[str, Any], report: Report, line: int | None) -> Iterator[Run]:
    script = transcript_of((turn for message in dicts_in(messages) for turn in _turns(message, report)), report)
    yield from build_session_run(
        script,
        report,
        line,
        session_id=next(filter(None, map(as_name, (row.get("id"), row.get("chatId")))), None),
        agent="ai-sdk",
        model=nonblank(script.model, row.get("model"), row.get("modelId")),
    )


def _turns(message: dict[str, Any], report: Report) -> list[Turn]:
    """Return the turns of a message: one for each step of the assistant."""
    actor = _ROLES.get(as_text(message.get("role")), "user")
    metadata = as_dict(message.get("metadata"))
    fields: dict[str, Any] = {"timestamp": parse_time(message.get("createdAt", metadata.get("createdAt")))}
    if actor == "agent":
        fields["model"] = nonblank(metadata.get("model"), metadata.get("modelId"), message.get("model"))
    turns, parts, step = [Turn(actor, fields=dict(fields))], _parts(message), None
    has_steps = any(part.get("type") == "step-start" for part in parts)
    for part in parts:
        kind, before = as_text(part.get("type")), step
        step = as_dict(part.get("toolInvocation")).get("step", step)
        if not has_steps and turns[-1].results and (nonblank(part.get("text")) or step != before):
            turns.append(Turn(actor, fields=dict(fields)))  # what follows a result is of the next step
        turn = turns[-1]
        if kind == "step-start":
            turns += [Turn(actor, fields=dict(fields))] if turn else []
        elif kind == "reasoning":
            turn.thoughts += filter(None, [nonblank(part.get("text"), part.get("reasoning"))])
        elif _is_tool(part) and actor == "agent":
            _add_call(turn, part)
        elif kind in ("text", "file"):
            turn.content = join_messages(turn.content, visible_content([part]))
        else:
            report.skip(f"part:{kind.split('-')[0]}")
    if len(turns) == 1 and actor == "agent":  # the counts are those of the whole message
        turns[0].fields["usage"] = parse_usage(metadata.get("usage"), metadata.get("totalUsage"))
    return [turn for turn in turns if turn or (actor == "agent" and len(turns) == 1)]


def _add_call(turn: Turn, part: dict[str, Any]) -> None:
    """Add the call of a tool part, and its result if the tool has run."""
    kind, held = as_text(part.get("type")), as_dict(part.get("toolInvocation")) or part
    tool = nonblank(held.get("toolName")) or kind.removeprefix("tool-")
    call_id, state = nonblank(held.get("toolCallId")), as_text(held.get("state"))
    arguments = next((held[key] for key in ("input", "rawInput", "args") if held.get(key) is not None), None)
    turn.calls.append(make_call(tool, arguments, call_id))
    if state in _FAILED:
        text = nonblank(held.get("errorText"), as_dict(held.get("approval")).get("reason")) or _DENIED
        turn.results.append(Result(text, call_id, True, tool))
    elif state in ("output-available", "result") and not held.get("preliminary"):
        output = held.get("output", held.get("result"))
        turn.results.append(Result(to_text(output), call_id, False, tool))
