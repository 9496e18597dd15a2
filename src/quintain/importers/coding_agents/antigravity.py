"""Transcripts of Google's Antigravity: `brain/<id>/.system_generated/logs/transcript.jsonl`, one step a line.

The steps after an answer of the model are what its tools did, in the order of their calls, without the ids of them.
Each argument of a call is JSON text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, if_most, object_rows
from quintain.importers.run_builder import build_session_run
from quintain.importers.values import as_dict, as_text, dicts_in, nonblank, parse_json_text

_FIELDS = {"step_index", "source", "type", "status"}
_CUT = "the transcript has long texts cut short: answers with such a text are not trained on"


def _detect(probe: Probe) -> float:
    """Match numbered steps with a source, a type and a status."""
    if not any(isinstance(row, dict) and row.keys() >= _FIELDS for row in probe.rows):
        return 0.0
    return if_most(0.96, probe, lambda row: row.keys() >= _FIELDS)


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    messages = (message for _, row in object_rows(log, report) if (message := _message(row, report)))
    parts = log.path.parts
    session = parts[-4] if parts[-3:-1] == (".system_generated", "logs") else None
    yield from build_session_run(messages, report, agent="antigravity", session=session)


IMPORTER = Importer("antigravity", "Antigravity transcript", _detect, _read)


def _message(row: dict[str, Any], report: Report) -> dict[str, Any] | None:
    """Return a step as a message of a chat API; None if it has no content."""
    kind, content = as_text(row.get("type")), nonblank(row.get("content"), row.get("error")) or ""
    known = {"content": content, "timestamp": row.get("created_at")}
    is_cut = bool(row.get("truncated_fields"))
    if is_cut:
        report.note(_CUT)
    if kind == "PLANNER_RESPONSE":
        calls = [{**call, "args": _arguments(as_dict(call.get("args")))} for call in dicts_in(row.get("tool_calls"))]
        known |= {"role": "assistant", "thinking": as_text(row.get("thinking")), "tool_calls": calls}
        return known | ({"train": False} if is_cut else {})
    if not content:
        report.skip(kind or "without a type")
        return None
    if row.get("source") == "MODEL":
        return {"role": "tool", "content": content, "name": kind.lower(), "is_error": row.get("status") == "ERROR"}
    return {**known, "role": "user"} | ({} if kind == "USER_INPUT" else {"context": True})


def _arguments(written: dict[str, Any]) -> dict[str, Any]:
    """Return arguments that are each JSON text as values; others unchanged."""
    known = {name: parse_json_text(f"[{value}]") for name, value in written.items()}
    are_values = all(isinstance(value, list) and len(value) == 1 for value in known.values())
    return {name: value[0] for name, value in known.items()} if are_values else written
