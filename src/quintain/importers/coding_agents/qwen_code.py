"""Qwen Code sessions: `~/.qwen/projects/<folder>/chats/<session>.jsonl`, and `qwen -p --output-format json` or `stream-json`.

The lines form a graph as those of Claude Code do, and their messages have the parts of Gemini's API. What `qwen -p` writes has
Anthropic's messages, the text and the calls of one reply apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from quintain.importers.coding_agents.claude_code import read_sessions
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, if_most, object_rows
from quintain.importers.run_builder import COMPACTED
from quintain.importers.values import as_dict, as_list, as_text

_VERSION = "qwen_code_version"
"""Field of the first line that `qwen -p` writes."""
_OPENING = "session_start"
"""Subtype of that line in versions that do not write it; Claude Code's is `init`."""
_ASKED = (None, "mid_turn_user_message")
"""Subtypes of a line of the user that a person typed."""


def _detect(probe: Probe) -> float:
    """Match lines of a session, each with its id, whose messages have parts."""
    if any(_VERSION in row or row.get("subtype") == _OPENING for row in map(as_dict, probe.rows)):
        return if_most(0.97, probe, lambda row: "session_id" in row)
    lines = [row for row in map(as_dict, probe.rows) if _is_line(row)]
    has_parts = any(isinstance(as_dict(row.get("message")).get("parts"), list) for row in lines)
    return if_most(0.96, probe, _is_line) if has_parts else 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    yield from read_sessions(_lines(object_rows(log, report), report), log, report, agent="qwen-code")


IMPORTER = Importer("qwen_code", "Qwen Code session", _detect, _read)


def _is_line(row: dict[str, Any]) -> bool:
    return isinstance(row.get("sessionId"), str) and "uuid" in row


def _lines(rows: Iterable[tuple[int, dict[str, Any]]], report: Report) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield numbered lines as Claude Code writes them; pieces of a reply with nothing between them get one id."""
    version: Any = None
    replies: dict[str, Any] = {}
    for number, row in rows:
        if "session_id" not in row:
            yield number, _line(row, report)
            continue
        version, kind, agent = row.get(_VERSION, version), row.get("type"), as_text(row.get("parent_tool_use_id"))
        if kind == "assistant":
            message = as_dict(row.get("message"))
            row = {**row, "message": {**message, "id": replies.setdefault(agent, message.get("id"))}}
        else:
            replies.pop(agent, None)
        yield number, {**row, "version": version}


def _line(row: dict[str, Any], report: Report) -> dict[str, Any]:
    """Return a line with its message in content blocks."""
    kind, subtype = row.get("type"), row.get("subtype")
    if kind == "system":
        if subtype == "chat_compression":
            report.note(COMPACTED)
        return row
    message = as_dict(row.get("message"))
    failed = as_text(as_dict(row.get("toolCallResult")).get("status")) in ("error", "cancelled")
    held = {
        "id": row.get("uuid"),  # parts of one reply that are written apart keep their line's id
        "role": "assistant" if kind == "assistant" else "user",
        "content": [_block(part, failed=failed) for part in as_list(message.get("parts"))],
        "model": row.get("model"),
        "usage": row.get("usageMetadata"),
    }
    marks = {"isMeta": True} if kind == "user" and subtype not in _ASKED else {}
    return {**row, **marks, "type": "user" if kind == "tool_result" else kind, "message": held}


def _block(part: Any, *, failed: bool) -> Any:
    """Return a part of Gemini's API as a content block."""
    call, answer = as_dict(as_dict(part).get("functionCall")), as_dict(as_dict(part).get("functionResponse"))
    if call:
        return {"type": "tool_use", "id": call.get("id"), "name": call.get("name"), "input": call.get("args")}
    if answer:
        response = as_dict(answer.get("response"))
        content = next((response[key] for key in ("output", "error") if key in response), answer.get("response"))
        is_error = failed or "error" in response
        return {"type": "tool_result", "tool_use_id": answer.get("id"), "content": content, "is_error": is_error}
    spoken = as_dict(part).get("text")
    if not isinstance(spoken, str):
        return part
    if as_dict(part).get("thought") is True:
        return {"type": "thinking", "thinking": spoken}
    return {"type": "text", "text": spoken}
