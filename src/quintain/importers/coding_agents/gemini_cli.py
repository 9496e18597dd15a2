"""Gemini CLI sessions, checkpoints, and `gemini -p --output-format stream-json`.

Sessions are `~/.gemini/tmp/<project>/chats/session-*.json` (one object) or `.jsonl` (a log of changes). Checkpoints
(`checkpoint-*.json`, `checkpoints/*.json`) hold the API's own messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import chain
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, if_most, object_rows
from quintain.importers.run_builder import build_session_run
from quintain.importers.transcripts.chat_messages import read_turns
from quintain.importers.transcripts.message_parts import (
    Message,
    join_messages,
    join_thoughts,
    parse_result,
    plain_text,
    visible_content,
)
from quintain.importers.transcripts.result_envelopes import result_of_part
from quintain.importers.transcripts.transcript import Transcript, make_call
from quintain.importers.values import as_dict, as_list, as_text, dicts_in, nonblank, parse_time, parse_usage
from quintain.records.trajectory import Outcome, OutcomeStatus

_SAME_BATCH = timedelta(milliseconds=100)
"""Parallel calls are logged together when the last one ends; a model reply takes longer than this."""

_NOT_A_TASK = ("This is the Gemini CLI.", "<session_context>", "/", "?")


def _detect(probe: Probe) -> float:
    """Match a session id with a project hash, API messages (`role` and `parts`), or the opening of a stream of events."""
    head = probe.first
    if any(map(is_opening, map(as_dict, probe.rows))):
        return if_most(0.95, probe, is_event)
    if isinstance(head.get("sessionId"), str) and isinstance(head.get("projectHash"), str):
        return 0.95
    if isinstance(head.get("sessionId"), str) and "messageId" in head and isinstance(head.get("message"), str):
        return 0.8  # logs.json: what the person typed
    history = head.get("clientHistory", head.get("history")) if probe.document is not None else list(probe.rows)
    turns = dicts_in(history)
    if turns and all(turn.get("role") in ("user", "model") and isinstance(turn.get("parts"), list) for turn in turns):
        return 0.85
    return 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    session: dict[str, Any] = {}
    messages: dict[str, dict[str, Any]] = {}
    turns: list[dict[str, Any]] = []
    rows = object_rows(log, report)
    for line, row in rows:
        if is_opening(row):
            yield from event_runs(chain([(line, row)], rows), report)
            return
        if "parts" in row:
            turns.append(row)
        elif isinstance(history := row.get("clientHistory", row.get("history")), list):
            turns.extend(dicts_in(history))
        elif "messageId" in row and "message" in row:
            report.skip("typed line without a reply")
        else:
            _change(line, row, session, messages, report)
    writer = _Writer(report)
    for turn in turns:
        writer.write_turn(turn)
    for message in messages.values() if not turns else ():
        writer.write(message)
    key, above = nonblank(session.get("sessionId")), log.parts[-2:-1]
    is_part = session.get("kind") == "subagent" and above and above[0] != "chats"
    yield from build_session_run(
        writer.script,
        report,
        parent=above[0] if key and is_part else None,
        prompt=writer.prompt or "",
        session=key,
        agent="gemini-cli",
        extra={"project_hash": session["projectHash"]} if nonblank(session.get("projectHash")) else {},
    )


IMPORTER = Importer("gemini_cli", "Gemini CLI session", _detect, _read)


def _change(
    line: int, row: dict[str, Any], session: dict[str, Any], messages: dict[str, dict[str, Any]], report: Report
) -> None:
    """Apply a line: the head, a new or grown message, a change of the head, or a rewind."""
    if "$rewindTo" in row:
        ids = list(messages)
        at = ids.index(row["$rewindTo"]) if row["$rewindTo"] in ids else len(ids)
        for dropped in ids[at:]:
            del messages[dropped]
        report.note(f"{len(ids) - at} rewound messages are left out")
        return
    if isinstance(row.get("type"), str) and "messages" not in row:
        messages[nonblank(row.get("id")) or f"#{line}"] = row
        return
    head = as_dict(row.get("$set")) or row
    if not ({"sessionId", "messages"} & set(head)) and "$set" not in row:
        report.reject(line, "expected a session or a message")
        return
    session.update({name: head[name] for name in ("sessionId", "projectHash", "kind") if name in head})
    fresh = dicts_in(head.get("messages"))
    if messages and fresh:
        report.note("the context was compacted or rolled back; the earlier turns are kept")
    for n, message in enumerate(fresh):
        messages[nonblank(message.get("id")) or f"#{line}.{n}"] = message
    for odd in as_list(head.get("messages")):
        if not isinstance(odd, dict):
            report.reject(line, f"expected a message object, got {type(odd).__name__}")


class _Writer:
    """Writes a session's messages, or the API's own messages, as turns."""

    def __init__(self, report: Report) -> None:
        self.script, self.report = Transcript(), report
        self.prompt: str | None = None
        self._answered: set[str] = set()
        """Calls whose result is already recorded."""

    def write(self, message: dict[str, Any]) -> None:
        kind, parts = message.get("type"), message.get("content")
        answers = _answers(parts) if kind == "user" else []
        content = visible_content([part for part in parts if part not in answers] if isinstance(parts, list) else parts)
        for part in answers:  # since 0.61 the program writes every result once more, as sent
            answer = part["functionResponse"]
            if nonblank(answer.get("id")) not in self._answered and (nonblank(answer.get("id")) or self.script.waiting):
                self._observe(part)
        if kind == "user" and (content or not answers):
            self._ask(content, message.get("timestamp"))
        elif kind == "gemini":
            self._reply(message, content)
        elif kind != "user":
            self.report.skip(kind if isinstance(kind, str) else "message without type")

    def write_turn(self, turn: dict[str, Any]) -> None:
        parts = as_list(turn.get("parts"))
        if turn.get("role") == "user" and not _answers(parts):
            self._ask(visible_content(parts))
        else:
            read_turns([{"role": turn.get("role"), "content": parts}], self.script, self.report.refuse)

    def _ask(self, content: Message, time: Any = None) -> None:
        text = plain_text(content)
        if self.prompt is None and text.strip() and not text.lstrip().startswith(_NOT_A_TASK):
            self.prompt = text
        self.script.add_message("user", content, timestamp=parse_time(time))

    def _observe(self, part: dict[str, Any]) -> None:
        read_turns([{"role": "tool", "content": [part]}], self.script, self.report.refuse)

    def _reply(self, message: dict[str, Any], content: Message) -> None:
        """Write a reply with its calls. Later replies without text were logged as further calls of the same message."""
        rounds = _rounds(dicts_in(message.get("toolCalls")))
        if len(rounds) > 1:
            self.report.note("several rounds of calls share one log message; they are separated by their timestamps")
        thought_parts = [_thought(thought) for thought in dicts_in(message.get("thoughts"))]
        for n, calls in enumerate(rounds or [[]]):
            self.script.add_agent_turn(
                content if n == 0 else "",
                thought=join_thoughts(thought_parts) if n == 0 else None,
                actions=[_make_call(call) for call in calls],
                model=nonblank(message.get("model")),
                timestamp=parse_time(message.get("timestamp") if n == 0 else calls[0].get("timestamp")),
                usage=parse_usage(message.get("tokens")) if n == 0 else None,
            )
            for call in calls:
                answer = _result(call)
                if answer is not None:
                    self._answered.add(as_text(call.get("id")))
                    failed = call.get("status") in ("error", "cancelled")
                    self.script.add_result(answer, call_id=nonblank(call.get("id")), is_error=failed)


def _make_call(call: dict[str, Any]) -> dict[str, Any]:
    return make_call(as_text(call.get("name")), call.get("args"), nonblank(call.get("id")))


def _rounds(calls: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Group calls by the time they were logged, in order."""
    rounds: list[list[dict[str, Any]]] = []
    before = None
    for call in calls:
        at = parse_time(call.get("timestamp"))
        if not rounds or (at is not None and before is not None and at - before > _SAME_BATCH):
            rounds.append([])
        rounds[-1].append(call)
        before = at or before
    return rounds


def _thought(thought: dict[str, Any]) -> str:
    return "\n".join(filter(None, (as_text(thought.get("subject")), as_text(thought.get("description")))))


def _result(call: dict[str, Any]) -> Message | None:
    """Return the result of a call; None if it did not end."""
    parts = call.get("result")
    if parts is None:
        return nonblank(call.get("resultDisplay"))
    answers = (
        parse_result(*result_of_part(part), "result", Report().refuse).content
        if _answers([part])
        else visible_content(part)
        for part in as_list(parts) or [parts]
    )
    return join_messages(*answers)


def _answers(content: Any) -> list[dict[str, Any]]:
    """Return the parts that answer a call."""
    return [part for part in dicts_in(content) if isinstance(part.get("functionResponse"), dict)]


_KINDS = {"init", "message", "tool_use", "tool_result", "error", "result"}


def is_opening(row: dict[str, Any]) -> bool:
    """Whether a row opens a session."""
    return row.get("type") == "init" and nonblank(row.get("session_id")) is not None and "model" in row


def is_event(row: dict[str, Any]) -> bool:
    """Whether a row has the kind and the time of an event."""
    return as_text(row.get("type")) in _KINDS and "timestamp" in row


def event_runs(
    rows: Iterable[tuple[int, dict[str, Any]]], report: Report, *, agent: str = "gemini-cli"
) -> Iterator[Run]:
    """Yield the run of each session; lines before its `init` or after its `result` are of another program."""
    session: _Session | None = None
    for line, row in rows:
        if row.get("type") == "init":
            if session is not None:
                yield from session.run(report)
            session = _Session(line, row, agent)
        elif session is None or session.is_over:
            report.skip("line outside a session")
        else:
            session.take(row, report)
    if session is not None:
        yield from session.run(report)


class _Session:
    """One session: the pieces of a message wait for the calls that belong to it."""

    def __init__(self, line: int, opening: dict[str, Any], agent: str) -> None:
        self.agent = agent
        self.line, self.id, self.model = line, opening.get("session_id"), opening.get("model")
        self.script = Transcript()
        self._reply: dict[str, Any] = {}
        self.is_over = False
        self.failure: str | None = None
        self.usage: dict[str, Any] = {}

    def take(self, event: dict[str, Any], report: Report) -> None:
        kind, when = as_text(event.get("type")), event.get("timestamp")
        if kind == "message" and event.get("role") == "user":
            self._end()
            self.script.add_message("user", as_text(event.get("content")), timestamp=parse_time(when))
        elif kind == "message":
            if self._reply.get("tool_calls"):
                self._end()
            self._goes_on(when)["content"] += as_text(event.get("content"))
        elif kind == "reasoning":
            if self._reply:
                self._end()
            self._goes_on(when)["thinking"] = as_text(event.get("content"))
        elif kind == "tool_use":
            call = {"id": event.get("tool_id"), "name": event.get("tool_name"), "arguments": event.get("parameters")}
            self._goes_on(when)["tool_calls"].append(call)
        elif kind == "tool_result":
            self._end()
            answer = nonblank(event.get("output"), as_dict(event.get("error")).get("message")) or ""
            failed = event.get("status") == "error"
            self.script.add_result(answer, call_id=nonblank(event.get("tool_id")), is_error=failed)
        elif kind == "result":
            self.is_over, self.usage = True, as_dict(event.get("stats"))
            if event.get("status") == "error":
                self.failure = nonblank(as_dict(event.get("error")).get("message"), "error")
        else:
            report.skip(kind or "without type")

    def _goes_on(self, when: Any) -> dict[str, Any]:
        """Return the message of the model that goes on; no text follows its calls."""
        reply = {"role": "assistant", "content": "", "tool_calls": [], "model": self.model, "timestamp": when}
        self._reply = self._reply or reply
        return self._reply

    def _end(self) -> None:
        read_turns([self._reply] if self._reply else [], self.script, Report().refuse)
        self._reply = {}

    def run(self, report: Report) -> Iterator[Run]:
        self._end()
        spent = {name: self.usage[name] for name in ("input_tokens", "output_tokens") if name in self.usage}
        status = OutcomeStatus.ERROR if self.failure else OutcomeStatus.UNKNOWN
        yield from build_session_run(
            self.script,
            report,
            self.line,
            agent=self.agent,
            model=self.model,
            session=self.id,
            outcome=Outcome(status=status, exit_status=self.failure and self.failure[:200]),
            extra={"usage": spent} if spent else {},
        )
