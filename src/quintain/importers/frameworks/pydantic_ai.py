"""Message histories of Pydantic AI: `result.all_messages_json()`, a history a line, or lists within records.

A request contains the model's input (prompts and results of tools), a response its output. Results that ask the
model to try again are failed results.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, matching_share, runs_or_parts
from quintain.importers.run_builder import build_run, transcript_of
from quintain.importers.transcripts.chat_messages import SEALED, Turn
from quintain.importers.transcripts.message_parts import Message, Result, simplify_content, visible_content
from quintain.importers.transcripts.transcript import make_call
from quintain.importers.values import (
    as_dict,
    as_list,
    as_text,
    dicts_in,
    nonblank,
    parse_json_text,
    parse_time,
    parse_usage,
    to_text,
)
from quintain.records.trajectory import AgentInfo

_RESULTS = {"tool-return", "builtin-tool-return", "retry-prompt"}
_SUCCEEDED = (None, "success")
_FILES = {"image-url", "video-url", "audio-url", "document-url", "binary"}


def _detect(probe: Probe) -> float:
    """Match messages, lists of messages, or records with such a list."""
    rows = [row for row in (*probe.rows, probe.document) if row is not None]
    if probe.shape in {"array", "lines"} and rows and all(map(_is_message, rows)):
        return 0.97
    if probe.shape in {"array", "lines"} and rows and all(map(_is_history, rows)):
        return 0.97
    return 0.93 if matching_share(probe, lambda row: _held(row) is not None, *probe.fields) > 0.5 else 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    for line, row in runs_or_parts(log, report, _is_message):
        if (history := row if _is_history(row) else _held(row)) is not None:
            yield from _run(history, report, line)
        else:
            report.reject(line, "expected a message with `kind` and `parts`, or a list of such messages")


IMPORTER = Importer("pydantic_ai", "Pydantic AI messages", _detect, _read)


def _is_message(value: Any) -> bool:
    parts = as_list(as_dict(value).get("parts"))
    of_kinds = all(isinstance(as_dict(part).get("part_kind"), str) for part in parts)
    return as_dict(value).get("kind") in ("request", "response") and isinstance(value.get("parts"), list) and of_kinds


def _is_history(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_message, value[:20]))


def _held(row: Any) -> list[Any] | None:
    """Return the history among the fields of a record, as a list or JSON text."""
    fields = (parse_json_text(value, '"part_kind"') for value in as_dict(row).values())
    return next((value for value in fields if _is_history(value)), None)


def _run(messages: list[Any], report: Report, line: int | None) -> Iterator[Run]:
    turns: list[Turn] = []
    instructions = None
    for message in dicts_in(messages):
        if message.get("kind") == "response":
            turns.append(_response(message, report))
            continue
        stated = nonblank(message.get("instructions"))
        asked = [turn for part in dicts_in(message.get("parts")) if (turn := _request_part(part, report))]
        if stated and stated != instructions:  # the model gets them after the system prompts
            instructions = stated
            n = sum(turn.actor == "system" for turn in asked)
            asked.insert(n, Turn("system", stated, fields={"timestamp": parse_time(message.get("timestamp"))}))
        turns += asked
    names = [nonblank(message.get("conversation_id")) for message in dicts_in(messages)]
    transcript = transcript_of(turns, report)
    yield from build_run(
        transcript,
        report,
        line,
        session_id=next(filter(None, names), None),
        agent=AgentInfo(name="pydantic-ai", model=transcript.model),
    )


def _request_part(part: dict[str, Any], report: Report) -> Turn | None:
    """Return the turn of a part of a request; None if it is skipped."""
    kind, content = as_text(part.get("part_kind")), part.get("content")
    when = {"timestamp": parse_time(part.get("timestamp"))}
    if kind == "system-prompt":
        return Turn("system", to_text(content), fields=when)
    if kind == "user-prompt" or (kind == "retry-prompt" and not part.get("tool_name")):
        return Turn("user", _content(content), fields=when)
    if kind in _RESULTS:
        return Turn("tool", results=[_result(part)])
    report.skip(f"part:{kind}")
    return None


def _response(message: dict[str, Any], report: Report) -> Turn:
    """Return the agent's turn of a response."""
    turn, texts = Turn("agent"), []
    for part in dicts_in(message.get("parts")):
        kind, content = as_text(part.get("part_kind")), part.get("content")
        if kind == "text":
            texts.append(as_text(content))
        elif kind == "thinking" and nonblank(content):
            turn.thoughts.append(as_text(content))
        elif kind == "thinking":
            report.note(SEALED)
        elif kind in ("tool-call", "builtin-tool-call"):
            turn.calls.append(make_call(as_text(part.get("tool_name")), part.get("args"), part.get("tool_call_id")))
        elif kind == "builtin-tool-return":
            turn.results.append(_result(part))
        else:
            report.skip(f"part:{kind}")
    turn.content = "\n\n".join(filter(None, texts))
    ended = nonblank(message.get("finish_reason"))
    turn.fields = {
        "model": nonblank(message.get("model_name")),
        "usage": _usage(as_dict(message.get("usage"))),
        "timestamp": parse_time(message.get("timestamp")),
        "extra": {"finish_reason": ended[:80]} if ended else None,
    }
    return turn


def _result(part: dict[str, Any]) -> Result:
    failed = part.get("part_kind") == "retry-prompt" or part.get("outcome") not in _SUCCEEDED
    return Result(
        _content(part.get("content")), nonblank(part.get("tool_call_id")), failed, nonblank(part.get("tool_name"))
    )


def _content(value: Any) -> Message:
    """Return text and files as parts, and any other value as JSON."""
    members = value if isinstance(value, list) else [value]
    if not any(_is_file(member) for member in members):
        is_text = isinstance(value, list) and all(isinstance(member, str) for member in value)
        return simplify_content([{"type": "text", "text": text} for text in value]) if is_text else to_text(value)
    return visible_content([_file(member) if _is_file(member) else to_text(member) for member in members])


def _is_file(value: Any) -> bool:
    return as_text(as_dict(value).get("kind")) in _FILES


def _file(value: dict[str, Any]) -> dict[str, Any]:
    """Return a file as a part with a URL or base64 data, which Pydantic writes with the alphabet for URLs."""
    media_type, data = nonblank(value.get("media_type")), as_text(value.get("data"))
    if value.get("kind") == "binary":
        return {"type": "image", "data": data.replace("-", "+").replace("_", "/"), "mimeType": media_type}
    return {"type": "image", "url": value.get("url"), "mimeType": media_type or as_text(value.get("kind"))}


def _usage(usage: dict[str, Any]) -> dict[str, int | None] | None:
    """Return the tokens of a response; zeros are what the program writes for unknown counts."""
    counts = {
        "prompt_tokens": usage.get("input_tokens", usage.get("request_tokens")),
        "completion_tokens": usage.get("output_tokens", usage.get("response_tokens")),
    }
    return parse_usage(counts) if any(counts.values()) else None
