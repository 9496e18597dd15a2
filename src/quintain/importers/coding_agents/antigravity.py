"""Transcripts of Google's Antigravity: `brain/<id>/.system_generated/logs/transcript.jsonl`, one step a line.

The steps after an answer of the model are what its tools did, in the order of their calls, without the ids of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Importer, Probe, Report, Run
from quintain.importers.row_reader import if_most, object_rows
from quintain.importers.run_builder import build_session_run
from quintain.importers.transcripts.message_parts import parse_call
from quintain.importers.transcripts.transcript import Transcript
from quintain.importers.values import as_text, dicts_in, nonblank, parse_time
from quintain.records.trajectory import AgentInfo

_FIELDS = {"step_index", "source", "type", "status"}


def _detect(probe: Probe) -> float:
    """Match numbered steps with a source, a type and a status."""
    if not any(isinstance(row, dict) and row.keys() >= _FIELDS for row in probe.rows):
        return 0.0
    return if_most(0.96, probe, lambda row: row.keys() >= _FIELDS)


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    """Yield the run of a conversation."""
    script = Transcript()
    for _, row in object_rows(log, report):
        _write(row, script, report)
    parts = log.path.parts
    session = parts[-4] if parts[-3:-1] == (".system_generated", "logs") else None
    yield from build_session_run(script, report, None, session=session, agent=AgentInfo(name="antigravity"))


IMPORTER = Importer("antigravity", "Antigravity transcript", _detect, _read)


def _write(row: dict[str, Any], script: Transcript, report: Report) -> None:
    kind, content, time = as_text(row.get("type")), as_text(row.get("content")), parse_time(row.get("created_at"))
    if kind == "PLANNER_RESPONSE":
        calls = [parse_call(call, "call", report.refuse) for call in dicts_in(row.get("tool_calls"))]
        actions = [call for call in calls if call]
        script.add_agent_turn(content, thought=nonblank(row.get("thinking")), actions=actions, timestamp=time)
    elif not content:
        report.skip(kind or "without a type")
    elif row.get("source") == "MODEL":
        script.add_result(content, tool=kind.lower(), is_error=row.get("status") == "ERROR")
    else:
        extra = {} if kind == "USER_INPUT" else {"context": True}
        script.add_message("user", content, timestamp=time, extra=extra)
