"""Events of `gemini -p --output-format stream-json`: messages in pieces, calls and their results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from quintain.importers.protocol import Report, Run
from quintain.importers.run_builder import build_session_run
from quintain.importers.transcripts.message_parts import join_messages
from quintain.importers.transcripts.transcript import Transcript, make_call
from quintain.importers.values import as_dict, as_text, nonblank, parse_time
from quintain.records.trajectory import Outcome, OutcomeStatus

_KINDS = {"init", "message", "tool_use", "tool_result", "error", "result"}


def is_opening(row: dict[str, Any]) -> bool:
    """Whether a row opens a session."""
    return row.get("type") == "init" and nonblank(row.get("session_id")) is not None and "model" in row


def is_event(row: dict[str, Any]) -> bool:
    """Whether a row has the kind and the time of an event."""
    return as_text(row.get("type")) in _KINDS and "timestamp" in row


def event_runs(rows: Iterable[tuple[int, dict[str, Any]]], report: Report) -> Iterator[Run]:
    """Yield the run of each session; lines before its `init` or after its `result` are of another program."""
    session: _Session | None = None
    for line, row in rows:
        if is_opening(row):
            if session is not None:
                yield from session.run(report)
            session = _Session(line, row)
        elif session is None or session.is_over:
            report.skip("line outside a session")
        else:
            session.take(row, report)
    if session is not None:
        yield from session.run(report)


class _Session:
    def __init__(self, line: int, opening: dict[str, Any]) -> None:
        self.line = line
        self.id, self.model = nonblank(opening.get("session_id")), nonblank(opening.get("model"))
        self.script = Transcript()
        self.is_over = False
        self.failure: str | None = None
        self.usage: dict[str, Any] = {}
        self._texts: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._time: Any = None

    def take(self, event: dict[str, Any], report: Report) -> None:
        """Process one event."""
        kind = as_text(event.get("type"))
        if kind == "message" and event.get("role") == "user":
            self._write()
            self.script.add_message("user", as_text(event.get("content")), timestamp=parse_time(event.get("timestamp")))
        elif kind == "message":
            if self._calls:
                self._write()
            self._time = self._time or event.get("timestamp")
            self._texts.append(as_text(event.get("content")))
        elif kind == "tool_use":
            self._time = self._time or event.get("timestamp")
            call_id = nonblank(event.get("tool_id"))
            self._calls.append(make_call(as_text(event.get("tool_name")), event.get("parameters"), call_id))
        elif kind == "tool_result":
            self._write()
            answer = nonblank(event.get("output"), as_dict(event.get("error")).get("message")) or ""
            failed = event.get("status") == "error"
            self.script.add_result(answer, call_id=nonblank(event.get("tool_id")), is_error=failed)
        elif kind == "result":
            self.is_over, self.usage = True, as_dict(event.get("stats"))
            if event.get("status") == "error":
                self.failure = nonblank(as_dict(event.get("error")).get("message"), "error")
        else:
            report.skip(kind or "without type")

    def _write(self) -> None:
        if self._texts or self._calls:
            self.script.add_agent_turn(
                join_messages("".join(self._texts)),
                actions=self._calls,
                model=self.model,
                timestamp=parse_time(self._time),
            )
        self._texts, self._calls, self._time = [], [], None

    def run(self, report: Report) -> Iterator[Run]:
        """Yield the session as a run."""
        self._write()
        status = OutcomeStatus.ERROR if self.failure else OutcomeStatus.UNKNOWN
        spent = {name: self.usage[name] for name in ("input_tokens", "output_tokens") if name in self.usage}
        yield from build_session_run(
            self.script,
            report,
            self.line,
            session=self.id,
            agent="gemini-cli",
            model=self.model,
            outcome=Outcome(status=status, exit_status=self.failure and self.failure[:200]),
            extra={"usage": spent} if spent else {},
        )
