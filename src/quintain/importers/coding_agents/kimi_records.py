"""Records of Kimi Code, the successor of Kimi CLI: `~/.kimi-code/sessions/<folder>/<session>/agents/<agent>/wire.jsonl`.

The file has the system prompt, the tools and all messages. Its records are defined by `AgentRecordEvents` in
https://github.com/MoonshotAI/kimi-code (`packages/agent-core/src/agent/records/types.ts`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from quintain.importers.protocol import Report
from quintain.importers.run_builder import COMPACTED
from quintain.importers.transcripts.chat_messages import append_turn, parse_message, read_turns
from quintain.importers.transcripts.message_parts import plain_text
from quintain.importers.transcripts.tool_schemas import parse_tool_schemas
from quintain.importers.transcripts.transcript import Transcript
from quintain.importers.values import as_count, as_dict, as_text, nonblank, parse_time

_UNDONE = "turns that the user took back are left out"
_CLEARED = "the context was cleared: after that the model no longer saw the earlier turns"


def is_record(row: dict[str, Any]) -> bool:
    """Whether a row is a record of a change of the context."""
    kind = as_text(row.get("type"))
    held = row.get({"context.append_message": "message", "context.append_loop_event": "event"}.get(kind, ""))
    return isinstance(held, dict) and ("role" in held or "type" in held)


def blocks(content: Any) -> Any:
    """Return content with thoughts as other programs write them."""
    return [_block(part) for part in content] if isinstance(content, list) else content


def _block(part: Any) -> Any:
    held = as_dict(part)
    if held.get("type") != "think":
        return part
    return {"type": "thinking", "thinking": as_text(held.get("think")), "signature": held.get("encrypted")}


@dataclass
class KimiRecords:
    """Adds the turns of a session to a transcript, record by record."""

    script: Transcript
    report: Report
    prompt: str | None = None
    """The first prompt, of the user or, in a subagent, of the agent that started it."""
    tools: list[dict[str, Any]] = field(default_factory=list)
    """Schemas of the newest request."""
    _model: str | None = None
    _reply: dict[str, Any] = field(default_factory=dict)
    """Message of the step that has not ended."""
    _results: list[dict[str, Any]] = field(default_factory=list)
    """Results of its calls."""
    _deferred: list[dict[str, Any]] = field(default_factory=list)
    """Messages that came while calls of the step were waiting: the model sees them after the results."""
    _asked: list[int] = field(default_factory=list)
    """Indices of the steps that the user wrote."""

    def read(self, rows: Iterable[tuple[int, dict[str, Any]]]) -> None:
        """Read the records of a file."""
        for _, row in rows:
            kind = as_text(row.get("type"))
            if kind == "context.append_message":
                self._message(row)
            elif kind == "context.append_loop_event":
                self._event(as_dict(row.get("event")), row.get("time"))
            elif kind in ("config.update", "profile.bind"):
                self._configure(row)
            elif kind == "turn.prompt":
                self.prompt = self.prompt or nonblank(plain_text(_text_parts(row.get("input"))))
            elif kind == "llm.tools_snapshot":
                self.tools = parse_tool_schemas(row.get("tools")) or self.tools
            elif kind == "llm.request":
                self._model = nonblank(row.get("model"), self._model)
            elif kind == "context.apply_compaction":
                self._end_step()
                self.report.note(COMPACTED)
                summary = nonblank(row.get("contextSummary"), row.get("summary")) or ""
                self.script.add_message("user", summary, timestamp=parse_time(row.get("time")), extra={"context": True})
            elif kind == "context.undo":
                self._undo(as_count(row.get("count")) or 0)
            elif kind == "context.clear":
                self._end_step()
                self.report.note(_CLEARED)
            elif kind != "metadata":
                self.report.skip(kind or "record without a type")
        self._end_step()

    def _configure(self, row: dict[str, Any]) -> None:
        self._model = nonblank(self._model, row.get("modelAlias"))
        prompt = nonblank(row.get("systemPrompt"))
        if prompt is not None and not self.script.has_system:
            self.script.prepend_system(prompt)

    def _message(self, row: dict[str, Any]) -> None:
        if self._reply.get("tool_calls") and len(self._results) < len(self._reply["tool_calls"]):
            self._deferred.append(row)
            return
        self._end_step()
        self._append_message(row)

    def _append_message(self, row: dict[str, Any]) -> None:
        message = as_dict(row.get("message"))
        origin = as_text(as_dict(message.get("origin")).get("kind")) or "user"
        known = {"role": message.get("role"), "content": blocks(message.get("content"))}
        known |= {"tool_calls": calls} if (calls := message.get("toolCalls")) else {}
        known |= {"tool_call_id": call_id} if (call_id := message.get("toolCallId")) else {}
        turn = parse_message(known, "message", self.report.refuse)
        if turn is None:
            return
        if turn.actor == "user":
            turn.fields["timestamp"] = parse_time(row.get("time"))
            if origin == "user":
                self._asked.append(len(self.script.steps))
            elif origin == "injection":
                turn.fields["extra"] = {"context": True}
        append_turn(turn, self.script)

    def _event(self, event: dict[str, Any], time: Any) -> None:
        kind = as_text(event.get("type"))
        if kind == "step.begin":
            self._end_step()
            self._reply = {"timestamp": time}
        elif kind == "content.part":
            self._reply.setdefault("content", []).append(_block(event.get("part")))
        elif kind == "tool.call":
            function = {"name": event.get("name"), "arguments": event.get("args")}
            self._reply.setdefault("tool_calls", []).append({"id": event.get("toolCallId"), "function": function})
        elif kind == "tool.result":
            self._results.append({"tool_call_id": event.get("toolCallId"), **_result(as_dict(event.get("result")))})
        elif kind == "step.end":
            self._reply["usage"] = as_dict(event.get("usage"))
            if len(self._results) >= len(self._reply.get("tool_calls", ())):
                self._end_step()
        else:
            self.report.skip(kind or "event without a type")

    def _end_step(self) -> None:
        """Add the reply, its results, and the messages that waited for them."""
        reply, results, deferred = self._reply, self._results, self._deferred
        self._reply, self._results, self._deferred = {}, [], []
        answer = (
            [{"role": "assistant", "content": [], "model": self._model, **reply}]
            if reply.keys() & {"content", "tool_calls"}
            else []
        )
        read_turns([*answer, *({"role": "tool", **result} for result in results)], self.script, self.report.refuse)
        for row in deferred:
            self._append_message(row)

    def _undo(self, count: int) -> None:
        """Drop the turns since the prompt that is the last but `count` - 1."""
        self._end_step()
        if 0 < count <= len(self._asked):
            self.script.cut(self._asked[-count])
            del self._asked[-count:]
            self.report.note(_UNDONE)


def _result(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result as the model sees it: the note, which users do not see, follows the output."""
    output, note = result.get("output"), nonblank(result.get("note"))
    if note is not None and isinstance(output, list):
        output = [*output, {"type": "text", "text": note}]
    elif note is not None:
        output = f"{as_text(output)}\n{note}"
    return {"content": output or "", "is_error": result.get("isError") is True}


def _text_parts(content: Any) -> Any:
    turn = parse_message({"role": "user", "content": content}, "input", Report().refuse)
    return turn.content if turn is not None else ""
