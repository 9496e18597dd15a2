"""Events of `gemini -p --output-format stream-json`: messages in pieces, calls and their results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from quintain.importers.protocol import Report, Run
from quintain.importers.run_builder import build_session_run
from quintain.importers.values import as_dict, as_text, nonblank
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
    """One session: the pieces of a message wait for the calls that belong to it."""

    def __init__(self, line: int, opening: dict[str, Any]) -> None:
        self.line, self.id, self.model = line, opening.get("session_id"), opening.get("model")
        self.messages: list[dict[str, Any]] = []
        self.is_over = False
        self.failure: str | None = None
        self.usage: dict[str, Any] = {}

    def take(self, event: dict[str, Any], report: Report) -> None:
        kind, when = as_text(event.get("type")), event.get("timestamp")
        if kind == "message" and event.get("role") == "user":
            self.messages.append({"role": "user", "content": as_text(event.get("content")), "timestamp": when})
        elif kind == "message":
            self._reply(when, is_text=True)["content"] += as_text(event.get("content"))
        elif kind == "tool_use":
            call = {"id": event.get("tool_id"), "name": event.get("tool_name"), "arguments": event.get("parameters")}
            self._reply(when, is_text=False)["tool_calls"].append(call)
        elif kind == "tool_result":
            answer = nonblank(event.get("output"), as_dict(event.get("error")).get("message")) or ""
            failed = event.get("status") == "error"
            result = {"role": "tool", "tool_call_id": event.get("tool_id"), "content": answer, "is_error": failed}
            self.messages.append(result)
        elif kind == "result":
            self.is_over, self.usage = True, as_dict(event.get("stats"))
            if event.get("status") == "error":
                self.failure = nonblank(as_dict(event.get("error")).get("message"), "error")
        else:
            report.skip(kind or "without type")

    def _reply(self, when: Any, *, is_text: bool) -> dict[str, Any]:
        """Return the message of the model that goes on: no text follows its calls."""
        last = self.messages[-1] if self.messages else {}
        if last.get("role") != "assistant" or (is_text and last["tool_calls"]):
            last = {"role": "assistant", "content": "", "tool_calls": [], "model": self.model, "timestamp": when}
            self.messages.append(last)
        return last

    def run(self, report: Report) -> Iterator[Run]:
        spent = {name: self.usage[name] for name in ("input_tokens", "output_tokens") if name in self.usage}
        status = OutcomeStatus.ERROR if self.failure else OutcomeStatus.UNKNOWN
        yield from build_session_run(
            self.messages,
            report,
            self.line,
            agent="gemini-cli",
            model=self.model,
            session=self.id,
            outcome=Outcome(status=status, exit_status=self.failure and self.failure[:200]),
            extra={"usage": spent} if spent else {},
        )
