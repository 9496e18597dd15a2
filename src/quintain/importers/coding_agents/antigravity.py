"""Transcripts of Google's Antigravity: `brain/<id>/.system_generated/logs/transcript.jsonl`, one step a line.

The steps after an answer of the model are what its tools did, in the order of their calls, without the ids of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, if_most, object_rows
from quintain.importers.run_builder import build_session_run
from quintain.importers.values import as_text, dicts_in

_FIELDS = {"step_index", "source", "type", "status"}


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
    kind, content = as_text(row.get("type")), as_text(row.get("content"))
    known = {"content": content, "timestamp": row.get("created_at")}
    if kind == "PLANNER_RESPONSE":
        calls = dicts_in(row.get("tool_calls"))
        return {**known, "role": "assistant", "thinking": as_text(row.get("thinking")), "tool_calls": calls}
    if not content:
        report.skip(kind or "without a type")
        return None
    if row.get("source") == "MODEL":
        return {"role": "tool", "content": content, "name": kind.lower(), "is_error": row.get("status") == "ERROR"}
    return {**known, "role": "user"} | ({} if kind == "USER_INPUT" else {"context": True})
