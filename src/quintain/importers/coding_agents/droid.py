"""Output of Factory Droid: `droid exec --output-format stream-json`, one event a line.

The events are those of the Gemini CLI by other names, with thoughts of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from quintain.importers.coding_agents.gemini_cli import event_runs
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, if_most, object_rows
from quintain.importers.values import as_text, nonblank, to_text

_KINDS = {"system", "message", "reasoning", "tool_call", "tool_result", "completion", "error"}


def _detect(probe: Probe) -> float:
    """Match a call with its parameters, or the completion with the final text, among events of these kinds."""
    own = any(
        (row.get("type") == "tool_call" and {"toolName", "parameters"} <= row.keys())
        or (row.get("type") == "completion" and "finalText" in row)
        for row in probe.objects
    )
    return if_most(0.95, probe, lambda row: as_text(row.get("type")) in _KINDS) if own else 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    yield from event_runs(_events(object_rows(log, report)), report, agent="droid")


IMPORTER = Importer("droid", "Factory Droid output", _detect, _read)


def _events(rows: Iterable[tuple[int, dict[str, Any]]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the events by the names of the Gemini CLI; each session begins with an `init`."""
    session: str | None = None
    is_open, spoken = False, ""
    thoughts = set[str]()  # some versions write each twice
    for line, row in rows:
        kind, text = as_text(row.get("type")), as_text(row.get("text"))
        known = nonblank(row.get("session_id"), row.get("sessionId"))
        if not is_open or (known and session and known != session):
            yield line, {"type": "init", "session_id": known, "model": row.get("model")}
            session, is_open, spoken = known, True, ""
        session = session or known
        event = {"type": kind, "timestamp": row.get("timestamp")}
        if kind == "message":
            spoken = text if row.get("role") == "assistant" else ""
            yield line, {**event, "role": row.get("role"), "content": text}
        elif kind == "reasoning" and row.get("id") not in thoughts:
            thoughts.add(as_text(row.get("id")))
            yield line, {**event, "content": text}
        elif kind == "tool_call":
            called = {
                "tool_name": nonblank(row.get("toolName"), row.get("toolId")),
                "parameters": row.get("parameters"),
            }
            yield line, {**event, "type": "tool_use", "tool_id": _call_id(row), **called}
        elif kind == "tool_result":
            failed = "error" if row.get("isError") is True else "success"
            yield line, {**event, "tool_id": _call_id(row), "output": to_text(row.get("value")), "status": failed}
        elif kind == "completion" and (final := as_text(row.get("finalText"))) not in ("", spoken):
            yield line, {**event, "type": "message", "role": "assistant", "content": final}
        elif kind not in ("system", "reasoning", "completion"):
            yield line, event


def _call_id(row: dict[str, Any]) -> str | None:
    return nonblank(row.get("toolCallId"), row.get("id"))
