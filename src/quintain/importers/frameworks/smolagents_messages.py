"""Messages that smolagents builds of its memory (`write_memory_to_messages`), as its benchmark and GAIA runs store them.

The calls of a step are a message of their own, `Calling tools:` with the list as Python prints it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from itertools import chain
from typing import Any

from quintain.importers.protocol import Report
from quintain.importers.transcripts.chat_messages import append_turn, parse_message
from quintain.importers.transcripts.field_values import as_dict, as_text, dicts_in
from quintain.importers.transcripts.message_parts import Result, plain_text, visible_content
from quintain.importers.transcripts.transcript import Transcript

_CALLS, _OBSERVED, _FAILED = "Calling tools:\n", "Observation:\n", "Error:\n"
"""Beginnings of messages, as `ActionStep.to_messages` writes them."""
_ROLES = frozenset({"tool-call", "tool-response"})
_SHARED = "several calls share one observation in the log: it is attached to the first of them"
_MAX_CHARS = 100_000
"""Characters of a list of calls that is read: Python's parser takes about a hundred bytes for each. Longer ones stay text."""


def is_memory(value: Any) -> bool:
    """Whether a value is a list of messages with roles of smolagents."""
    messages = dicts_in(value)
    return len(messages) > 1 and any(as_text(message.get("role")) in _ROLES for message in messages)


def write_memory(messages: Iterable[dict[str, Any]], script: Transcript, report: Report) -> None:
    """Add the turns of such messages to a transcript."""
    answer: dict[str, Any] | None = None
    waiting: list[str | None] = []
    for message in chain(messages, [{}]):
        role, text = as_text(message.get("role")), plain_text(visible_content(message.get("content")))
        if role == "tool-call":
            answer = _with_calls(answer or {"role": "assistant", "content": ""}, text)
            continue
        if answer is not None:
            waiting = _append(answer, script, report)
            answer = None
        if role == "assistant":
            answer = {"role": "assistant", "content": text}
        elif role == "tool-response":
            _observe(text, waiting, script, report)
            waiting = []
        elif message:
            _append(message, script, report)


def _with_calls(answer: dict[str, Any], text: str) -> dict[str, Any]:
    """Return an answer with the calls of a message; code in the answer's text is no call, and broken calls stay text."""
    calls, written = _parsed(text), answer["content"]
    if not calls:
        return {**answer, "content": "\n".join(filter(None, (written, text)))}
    if any(_code(call) and _code(call) in written for call in calls):
        return answer
    announced = "\n".join(map(_announcement, calls))
    return {**answer, "content": "" if written == announced else written, "tool_calls": calls}


def _parsed(text: str) -> list[dict[str, Any]]:
    if not text.startswith(_CALLS) or len(text) > _MAX_CHARS:
        return []
    try:
        return dicts_in(ast.literal_eval(text.removeprefix(_CALLS)))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return []


def _code(call: dict[str, Any]) -> str:
    return as_text(as_dict(call.get("function")).get("arguments")).strip()


def _announcement(call: dict[str, Any]) -> str:
    """Return the text that the program writes for a call of a model that wrote none."""
    function = as_dict(call.get("function"))
    arguments = function.get("arguments")
    return f"Tool call {call.get('id')}: calling '{function.get('name')}' with arguments: {arguments}"


def _observe(text: str, waiting: list[str | None], script: Transcript, report: Report) -> None:
    """Add an observation or an error as the result of the calls of its step, or else as the text that the model gets."""
    if not waiting:
        script.add_message("user", text)
        return
    content = text.removeprefix(f"Call id: {waiting[0]}\n")
    is_error = content.startswith(_FAILED)
    content = content.removeprefix(_FAILED).removeprefix(_OBSERVED)
    for result in shared_results(content, waiting, report):
        script.add_result(result.content, call_id=result.call_id, is_error=is_error)


def shared_results(observed: str, call_ids: list[str | None], report: Report) -> list[Result]:
    """Return the results of calls; the log joins those of several calls by line feeds."""
    pieces = observed.split("\n") if len(call_ids) > 1 else [observed]
    if len(pieces) == len(call_ids):
        return [Result(piece, call_id) for piece, call_id in zip(pieces, call_ids, strict=True)]
    report.note(_SHARED)
    return [Result(observed, call_ids[0])]


def _append(message: dict[str, Any], script: Transcript, report: Report) -> list[str | None]:
    """Append a message and return the ids of its calls."""
    turn = parse_message(message, "message", report.refuse)
    if turn is None:
        return []
    append_turn(turn, script)
    return [call["call_id"] for call in turn.calls]
