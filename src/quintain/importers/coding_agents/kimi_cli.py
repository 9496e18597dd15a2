"""Kimi CLI sessions: `~/.kimi/sessions/<folder>/<session>/context.jsonl`, with the events in `wire.jsonl` beside it.

The context is what the model saw; the events add times, token counts and failed results. Events without a context are read
on their own. Its successor, Kimi Code, writes records instead (`kimi_records`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from quintain.importers.coding_agents.kimi_records import KimiRecords, blocks, is_record
from quintain.importers.files.spooled_list import SpooledList
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, if_most, object_rows
from quintain.importers.run_builder import COMPACTED, build_session_run
from quintain.importers.transcripts.chat_messages import ACTORS
from quintain.importers.transcripts.message_parts import plain_text, visible_content
from quintain.importers.transcripts.transcript import Transcript
from quintain.importers.values import as_dict, as_text, dicts_in

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
    rows = probe.objects
    if any(map(is_record, rows)):
        return if_most(0.96, probe, lambda row: "." in as_text(row.get("type")) or "protocol_version" in row)
    if any(as_text(row.get("role")) in _MARKS for row in rows):
        return if_most(0.96, probe, lambda row: as_text(row.get("role")) in ACTORS.keys() | _MARKS)
    return if_most(0.96, probe, _is_event) if sum(map(_is_event, rows)) > 1 else 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    rows = SpooledList[tuple[int, dict[str, Any]]]()
    for numbered in object_rows(log, report):
        log.hold(numbered, rows)
    if any(is_record(row) for _, row in rows):
        yield from _read_records(log, rows, report)
        return
    parts = log.parts
    session = parts[-2] if len(parts) > 1 else None
    if any(_is_event(row) for _, row in rows):
        report.note(_EVENTS_ONLY)
        messages = _Events().messages(rows, report)
    else:
        messages = _context(rows, _events_beside(log, report), report)
    is_current = log.path.stem in ("context", "wire")  # the others were replaced by a compaction or a return
    yield from build_session_run(
        messages,
        report,
        key=session if session and is_current else None,
        parent=parts[-4] if len(parts) > 3 and parts[-3] == "subagents" else None,
        session_id=session,
        agent="kimi-cli",
    )


IMPORTER = Importer("kimi_cli", "Kimi CLI session", _detect, _read)


def _read_records(log: LogFile, rows: Iterable[tuple[int, dict[str, Any]]], report: Report) -> Iterator[Run]:
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

    def messages(self, rows: Iterable[tuple[int, dict[str, Any]]], report: Report) -> Iterator[dict[str, Any]]:
        """Yield the messages of the events, and note what the events add to calls."""
        reply: dict[str, Any] = {}
        for _, row in chain(rows, [(0, {"message": {"type": "TurnEnd"}})]):
            event = as_dict(row.get("message"))
            kind, payload = as_text(event.get("type")), as_dict(event.get("payload"))
            when = row.get("timestamp")
            if kind == "ContentPart":
                reply.setdefault("content", []).append(blocks([payload])[0])
            elif kind == "ToolCall":
                calls = reply.setdefault("tool_calls", [])
                calls.append(payload | {"function": dict(as_dict(payload.get("function")))})
                self.times[as_text(payload.get("id"))] = when
            elif kind == "ToolCallPart" and (calls := reply.get("tool_calls")):
                function = calls[-1]["function"]
                more = as_text(payload.get("arguments_part"))
                function["arguments"] = as_text(function.get("arguments")) + more
            elif kind == "StatusUpdate":
                reply["usage"] = as_dict(payload.get("token_usage")) or reply.get("usage")
            else:
                if reply.get("content") or reply.get("tool_calls"):
                    yield {"role": "assistant", "content": [], **reply}
                    reply = {}
                if kind in ("TurnBegin", "SteerInput"):
                    yield {"role": "user", "content": blocks(payload.get("user_input")), "timestamp": when}
                elif kind == "ToolResult":
                    yield self._result(payload)
                elif kind == "StepBegin":
                    reply = {"timestamp": when}
                elif kind == "CompactionEnd":
                    report.note(COMPACTED)
                elif kind != "TurnEnd" and "message" in row:
                    report.skip(kind)

    def _result(self, payload: dict[str, Any]) -> dict[str, Any]:
        call_id, value = as_text(payload.get("tool_call_id")), as_dict(payload.get("return_value"))
        self.failed[call_id] = value.get("is_error") is True
        body = value.get("output") or value.get("message") or ""
        return {"role": "tool", "tool_call_id": call_id, "content": body, "is_error": self.failed[call_id]}


def _events_beside(log: LogFile, report: Report) -> _Events:
    events, beside = _Events(), log.sibling("wire.jsonl") if log.path.stem == "context" else None
    if beside is not None:
        report.consume(beside.path)
        unused = Report()
        for _ in events.messages(object_rows(beside, unused), unused):
            pass
    return events


def _context(rows: Iterable[tuple[int, dict[str, Any]]], events: _Events, report: Report) -> Iterator[dict[str, Any]]:
    for _, row in rows:
        role, content = as_text(row.get("role")), blocks(row.get("content"))
        if role in ("_checkpoint", "_usage"):
            continue
        message = {key: value for key, value in row.items() if key != "partial"}
        message |= {"role": "system" if role == "_system_prompt" else role, "content": content}
        text = plain_text(visible_content(content))
        if role == "tool":
            is_known = events.failed.get(as_text(row.get("tool_call_id")), False)
            message["is_error"] = text.startswith(_FAILED) or is_known
        elif role == "assistant":
            ids = [as_text(call.get("id")) for call in dicts_in(row.get("tool_calls"))]
            message["timestamp"] = next((events.times[i] for i in ids if i in events.times), None)
        elif role == "user" and text.startswith(_INSERTED):
            message["context"] = True
            if text.startswith(_SUMMARY):
                report.note(COMPACTED)
        yield message
