"""Sessions of Claude's Managed Agents: the events that `GET /v1/sessions/{id}/events` lists, a line each, an array or a page.

An event may stand whole within a record of the program that kept it. The events name neither the model nor the session.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.outcome_fields import outcome_from
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, if_most, only_objects
from quintain.importers.run_builder import COMPACTED, build_session_run
from quintain.importers.transcripts.chat_messages import SEALED
from quintain.importers.transcripts.message_parts import join_messages, visible_content
from quintain.importers.transcripts.transcript import Transcript, make_call
from quintain.importers.values import as_dict, as_text, dicts_in, nonblank, parse_time, parse_usage
from quintain.records.trajectory import Task

_DOMAINS = ("agent.", "user.", "session.", "span.", "system.")
_MARKS = {"agent.message", "agent.tool_use", "agent.custom_tool_use", "agent.mcp_tool_use", "span.model_request_end"}
_NOTE = "the log does not name the model of the session"
_PASSED, _UNDECIDED = "satisfied", "interrupted"
"""Results of a grader; the others are failures."""


def _detect(probe: Probe) -> float:
    """Match events of a session, among them what an agent did."""
    rows = dicts_in(as_dict(probe.document).get("data")) if probe.document is not None else probe.objects
    events = [event for row in rows if (event := _event(row))]
    if not any(event["type"] in _MARKS or event["type"].startswith("session.status_") for event in events):
        return 0.0
    return 0.96 if probe.document is not None else if_most(0.96, probe, lambda row: bool(_event(row)))


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    writer = _Writer(report)
    for _, row in only_objects(log.rows(report, ("data",)), report):
        for held in row["data"] if not _event(row) and "data" in row else (row,):
            writer.write(_event(held) if isinstance(held, Mapping) else {})
    writer.close()
    report.note(_NOTE)
    yield from build_session_run(
        writer.script,
        report,
        agent=writer.agent or "claude",
        task=Task(metadata={"rubric": writer.rubric} if writer.rubric else {}),
        outcome=outcome_from(writer.verdict, None),
    )


IMPORTER = Importer("managed_agents", "Claude Managed Agents session", _detect, _read)


def _event(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the event that a record is or holds; {} for another record."""
    for held in (row, *row.values()):
        if isinstance(held, dict) and "processed_at" in held and as_text(held.get("type")).startswith(_DOMAINS):
            return held
    return {}


class _Writer:
    """Writes events as turns: what the agent did up to the end of a request to the model, or to what follows, is one."""

    def __init__(self, report: Report) -> None:
        self.script, self.report = Transcript(), report
        self.agent: str | None = None
        self.rubric: str | None = None
        self.verdict: bool | None = None
        self._said: list[Any] = []
        self._calls: list[dict[str, Any]] = []
        self._about: dict[str, Any] = {}

    def write(self, event: dict[str, Any]) -> None:
        kind, when = as_text(event.get("type")), parse_time(event.get("processed_at"))
        if kind == "agent.message" or kind.endswith("tool_use"):
            self._about.setdefault("timestamp", when)
            if kind == "agent.message":
                self._said.append(visible_content(event.get("content")))
            else:
                self._calls.append(make_call(as_text(event.get("name")), event.get("input"), nonblank(event.get("id"))))
        elif kind == "agent.thinking":
            self.report.note(SEALED)
        elif kind == "span.model_request_end":
            self.close(usage=parse_usage(event.get("model_usage")))
        elif kind.endswith("tool_result"):
            self.close()
            called = (event[key] for key in event if key.endswith("tool_use_id"))
            content, failed = visible_content(event.get("content")), event.get("is_error") is True
            self.script.add_result(content, call_id=nonblank(*called), is_error=failed)
        elif kind in ("user.message", "user.define_outcome", "system.message"):
            self.close()
            self.rubric = self.rubric or nonblank(as_dict(event.get("rubric")).get("content"))
            text = visible_content(event.get("content") or as_text(event.get("description")))
            self.script.add_message(kind.partition(".")[0], text, timestamp=when)
        elif kind == "span.outcome_evaluation_end" and event.get("result") != _UNDECIDED:
            self.verdict = event.get("result") == _PASSED
        else:
            self._note(kind, event)

    def _note(self, kind: str, event: dict[str, Any]) -> None:
        self.agent = self.agent or nonblank(event.get("agent_name"))
        if kind == "agent.thread_context_compacted":
            self.report.note(COMPACTED)
        elif kind != "span.model_request_start":
            self.report.skip(kind or "record without an event")

    def close(self, **fields: Any) -> None:
        """End the agent's turn, if it did anything."""
        if self._said or self._calls:
            self.script.add_agent_turn(join_messages(*self._said), actions=self._calls, **self._about, **fields)
        self._said, self._calls, self._about = [], [], {}
