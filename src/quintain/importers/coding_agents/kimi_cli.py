"""Kimi CLI sessions: `~/.kimi/sessions/<folder>/<session>/context.jsonl`, with the events in `wire.jsonl` beside it.

The context is what the model saw; the events add times, token counts and failed results. Events without a context are read
on their own. Its successor, Kimi Code, writes records instead (`kimi_records`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from quintain.importers.coding_agents.kimi_records import KimiRecords, blocks, is_record, usage_of
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Importer, Probe, Report, Run
from quintain.importers.row_reader import if_most, object_rows
from quintain.importers.run_builder import COMPACTED, build_session_run
from quintain.importers.transcripts.chat_messages import ACTORS, append_turn, parse_message, read_turns
from quintain.importers.transcripts.message_parts import plain_text
from quintain.importers.transcripts.transcript import Transcript
from quintain.importers.values import as_dict, as_text, parse_time

_MARKS = frozenset({"_checkpoint", "_usage", "_system_prompt"})
_FAILED = "<system>ERROR: "
"""Beginning of a failed result, as the program writes it for the model."""
_INSERTED = ("<system>", "<system-reminder>")
_SUMMARY = "<system>Previous context has been compacted."
_EVENTS_ONLY = "only the events of this session are in the log: the model's context, with its system prompt, is not"


def _detect(probe: Probe) -> float:
    """Match messages among the program's marks, or events in their envelope."""
    if probe.shape != "lines":
        return 0.0
    rows = [row for row in probe.rows if isinstance(row, dict)]
    if any(map(is_record, rows)):
        return if_most(0.96, probe, lambda row: "." in as_text(row.get("type")) or "protocol_version" in row)
    if any(as_text(row.get("role")) in _MARKS for row in rows):
        return if_most(0.96, probe, lambda row: as_text(row.get("role")) in ACTORS.keys() | _MARKS)
    return if_most(0.96, probe, _is_event) if sum(map(_is_event, rows)) > 1 else 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    """Yield the run of a session."""
    rows = list(object_rows(log, report))
    if any(is_record(row) for _, row in rows):
        yield from _read_records(log, rows, report)
        return
    parts = log.parts
    session, parent, script = (parts[-2] if len(parts) > 1 else None), None, Transcript()
    if len(parts) > 3 and parts[-3] == "subagents":
        parent = parts[-4]
    if any(_is_event(row) for _, row in rows):
        report.note(_EVENTS_ONLY)
        _Events().replay(rows, script, report)
    else:
        _read_context(rows, _events_beside(log, report), script, report)
    is_current = log.path.stem in ("context", "wire")  # the others were replaced by a compaction or a return
    yield from build_session_run(
        script,
        report,
        key=session if session and is_current else None,
        parent=parent,
        session_id=session,
        agent="kimi-cli",
    )


IMPORTER = Importer("kimi_cli", "Kimi CLI session", _detect, _read)


def _read_records(log: LogFile, rows: list[tuple[int, dict[str, Any]]], report: Report) -> Iterator[Run]:
    """Yield the run of an agent of Kimi Code; `main` started the others."""
    records = KimiRecords(Transcript(), report)
    records.read(rows)
    parts = log.parts
    is_placed = len(parts) > 3 and parts[-3] == "agents"
    session, agent = (parts[-4], parts[-2]) if is_placed else (None, "main")
    is_main = agent == "main"
    yield from build_session_run(
        records.script,
        report,
        key=session if is_main else f"{session}/{agent}",
        parent=None if is_main else session,
        prompt=records.prompt,
        session_id=session if is_main else f"{session}/{agent}",
        agent="kimi-code",
        tools=records.tools,
    )


def _is_event(row: dict[str, Any]) -> bool:
    message = as_dict(row.get("message"))
    return "timestamp" in row and isinstance(message.get("type"), str) and isinstance(message.get("payload"), dict)


@dataclass
class _Events:
    """Times, failures and token counts of a session, by the id of a call or the number of a reply."""

    times: dict[str, Any] = field(default_factory=dict)
    failed: dict[str, bool] = field(default_factory=dict)

    def replay(self, rows: list[tuple[int, dict[str, Any]]], script: Transcript, report: Report) -> None:
        """Note what the events add to calls, and add their turns to a transcript."""
        reply: dict[str, Any] = {}
        for _, row in rows:
            event = as_dict(row.get("message"))
            kind, payload = as_text(event.get("type")), as_dict(event.get("payload"))
            when = parse_time(row.get("timestamp"))
            if kind == "ContentPart":
                reply.setdefault("content", []).append(blocks([payload])[0])
            elif kind == "ToolCall":
                reply.setdefault("tool_calls", []).append(
                    payload | {"function": dict(as_dict(payload.get("function")))}
                )
                self.times[as_text(payload.get("id"))] = when
            elif kind == "ToolCallPart" and (calls := reply.get("tool_calls")):
                function = calls[-1]["function"]
                more = as_text(payload.get("arguments_part"))
                function["arguments"] = as_text(function.get("arguments")) + more
            elif kind == "StatusUpdate":
                reply["usage"] = usage_of(payload.get("token_usage")) or reply.get("usage")
            else:
                reply = _end(reply, script, report)
                if kind in ("TurnBegin", "SteerInput"):
                    message = {"role": "user", "content": blocks(payload.get("user_input"))}
                    if (turn := parse_message(message, "message", report.refuse)) is not None:
                        turn.fields["timestamp"] = when
                        append_turn(turn, script)
                elif kind == "ToolResult":
                    self._result(payload, script, report)
                elif kind == "StepBegin":
                    reply = {"timestamp": row.get("timestamp")}
                elif kind == "CompactionEnd":
                    report.note(COMPACTED)
                elif kind != "TurnEnd" and "message" in row:
                    report.skip(kind)
        _end(reply, script, report)

    def _result(self, payload: dict[str, Any], script: Transcript, report: Report) -> None:
        call_id, value = as_text(payload.get("tool_call_id")), as_dict(payload.get("return_value"))
        self.failed[call_id] = value.get("is_error") is True
        bodies = (value.get("output"), value.get("message"))
        body = next((body for body in bodies if body), "")
        message = {"role": "tool", "tool_call_id": call_id, "content": body, "is_error": self.failed[call_id]}
        read_turns([message], script, report.refuse)


def _end(reply: dict[str, Any], script: Transcript, report: Report) -> dict[str, Any]:
    """Add a reply that has any content to a transcript; return the next one, empty."""
    if reply.get("content") or reply.get("tool_calls"):
        read_turns([{"role": "assistant", "content": [], **reply}], script, report.refuse)
        return {}
    return reply if "timestamp" in reply and not reply.get("usage") else {}


def _events_beside(log: LogFile, report: Report) -> _Events:
    events, beside = _Events(), log.sibling("wire.jsonl") if log.path.stem == "context" else None
    if beside is not None:
        report.consume(beside.path)
        unused = Report()
        events.replay(list(object_rows(beside, unused)), Transcript(), unused)
    return events


def _read_context(rows: list[tuple[int, dict[str, Any]]], events: _Events, script: Transcript, report: Report) -> None:
    """Add the messages of a context to a transcript."""
    for line, row in rows:
        role = as_text(row.get("role"))
        if role in ("_checkpoint", "_usage"):
            continue
        message = {**row, "role": "system" if role == "_system_prompt" else role, "content": blocks(row.get("content"))}
        message.pop("partial", None)
        turn = parse_message(message, f"line {line}", report.refuse)
        if turn is None:
            continue
        text = plain_text(turn.content)
        for n, result in enumerate(turn.results):
            failed = plain_text(result.content).startswith(_FAILED) or events.failed.get(result.call_id or "", False)
            turn.results[n] = result._replace(is_error=failed)
        if turn.actor == "agent":
            turn.fields["timestamp"] = next((events.times[i] for i in turn.call_ids if i in events.times), None)
        elif turn.actor == "user" and text.startswith(_INSERTED):
            turn.fields["extra"] = {"context": True}
            if text.startswith(_SUMMARY):
                report.note(COMPACTED)
        append_turn(turn, script)
