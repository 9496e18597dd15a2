"""Grok CLI sessions: `~/.grok/sessions/<folder>/<session>/chat_history.jsonl`, with `summary.json` beside them.

A line is a message, a thought, or the result of a call. The thoughts of a reply come before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Importer, Probe, Report, Run
from quintain.importers.row_reader import if_most, object_rows
from quintain.importers.run_builder import build_session_run
from quintain.importers.transcripts.chat_messages import append_turn, parse_message
from quintain.importers.transcripts.transcript import Transcript, make_call
from quintain.importers.values import as_dict, as_text, dicts_in, nonblank

_ROLES = {"system": "system", "user": "user", "assistant": "assistant", "tool_result": "tool"}
_KINDS = {*_ROLES, "reasoning", "backend_tool_call"}


def _detect(probe: Probe) -> float:
    """Match typed lines with the content beside the type; only Grok writes a model id or a prompt index."""
    rows = [row for row in map(as_dict, probe.rows) if "content" in row and as_text(row.get("type")) in _ROLES]
    if probe.shape != "lines" or any({"role", "sessionId", "session_id"} & row.keys() for row in rows):
        return 0.0
    own = (as_text(row.get("model_id")) or {"prompt_index", "synthetic_reason"} & row.keys() for row in rows)
    spoken = any(row["type"] == "assistant" for row in rows)
    if any(own):
        return if_most(0.95, probe, lambda row: as_text(row.get("type")) in _KINDS)
    return 0.6 if spoken and len(rows) > 1 else 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    """Yield the run of a session."""
    writer = _Writer(report)
    for line, row in object_rows(log, report):
        writer.write(line, row)
    writer.end()
    about = as_dict(log.sibling_document("summary.json"))
    if "info" in about:
        report.consume(log.path.with_name("summary.json"))
    else:
        about = {}
    session = nonblank(as_dict(about.get("info")).get("id"))
    is_part = about.get("session_kind") == "subagent"
    where = {"cwd": as_dict(about.get("info")).get("cwd")}
    where |= {"git_branch": about.get("head_branch"), "git_commit": about.get("head_commit")}
    model = writer.script.model or nonblank(about.get("current_model_id"))
    yield from build_session_run(
        writer.script,
        report,
        key=session if session and not is_part else None,
        parent=session if session and is_part else None,
        session_id=session,
        agent="grok-cli",
        model=model,
        about=where | {"agent_type": about.get("agent_name") if is_part else None},
    )


IMPORTER = Importer("grok_cli", "Grok CLI session", _detect, _read)


class _Writer:
    """Writer of turns from lines; thoughts and calls of the vendor's own tools wait for the reply that they belong to."""

    def __init__(self, report: Report) -> None:
        self.script, self.report = Transcript(), report
        self._thoughts: list[str] = []
        self._vendor_calls: list[dict[str, Any]] = []

    def write(self, line: int, row: dict[str, Any]) -> None:
        """Write one line."""
        kind = as_text(row.get("type"))
        if kind == "reasoning":
            self._thoughts += [as_text(piece.get("text")) for piece in dicts_in(row.get("summary"))]
            if row.get("encrypted_content"):
                self.report.note("thoughts are encrypted; their summaries are used where the log has them")
        elif kind == "backend_tool_call":
            call = as_dict(row.get("kind"))
            name = nonblank(call.get("tool_type")) or ""
            self._vendor_calls.append(make_call(name, call.get("action"), nonblank(call.get("id"))))
        elif kind in _ROLES:
            self._message(kind, row)
        elif not kind:
            self.report.reject(line, "expected a line with a type")
        else:
            self.report.skip(kind)

    def _message(self, kind: str, row: dict[str, Any]) -> None:
        keys = ("content", "tool_call_id", "is_error")
        message = {"role": _ROLES[kind], **{key: row[key] for key in keys if row.get(key) is not None}}
        if kind == "assistant":
            beside = as_dict(row.get("reasoning")).get("text")
            message |= {"tool_calls": row.get("tool_calls"), "model": row.get("model_id")}
            self._thoughts += [beside] if isinstance(beside, str) else []
        elif kind == "user":
            self.end()
        turn = parse_message(message, "message", self.report.refuse)
        if turn is None:
            return
        if kind == "assistant":
            turn.thoughts, self._thoughts = [*self._thoughts, *turn.thoughts], []
            turn.calls, self._vendor_calls = [*self._vendor_calls, *turn.calls], []
        elif kind == "user" and nonblank(row.get("synthetic_reason")):
            turn.fields["extra"] = {"context": True}
        append_turn(turn, self.script)

    def end(self) -> None:
        """Write thoughts and calls without a reply: the turn was interrupted."""
        if any(self._thoughts) or self._vendor_calls:
            turn = parse_message({"role": "assistant", "content": ""}, "message", self.report.refuse)
            if turn is not None:
                turn.thoughts, turn.calls = self._thoughts, self._vendor_calls
                append_turn(turn, self.script)
        self._thoughts, self._vendor_calls = [], []
