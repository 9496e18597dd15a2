"""OpenHands events before version 1: a list of actions and observations, a line each, or a file each (`events/0.json`, ...).

The reply of the model stands in `tool_call_metadata.model_response` of every action that it asked for; where it is missing
the action itself is read. Observations find their action by the id of the call, else by `cause`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.logfile import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.runs import session_run
from quintain.importers.training_data.rows import objects
from quintain.importers.training_data.tool_schemas import tool_schemas
from quintain.importers.transcripts.chat import put, turn_of
from quintain.importers.transcripts.parts import joined, shown
from quintain.importers.transcripts.transcript import Transcript, action, moment
from quintain.importers.transcripts.usage import usage_of
from quintain.importers.transcripts.values import first, items, label, record, records, text
from quintain.records.trajectory import AgentInfo

_FIRST_FILE = re.compile(r"0+\.json")
_NO_TURN = {"recall", "change_agent_state", "agent_state_changed", "null", "condensation_request", "pause", "resume"}
_SPOKEN = ("content", "tool_calls", "function_call", "reasoning_content", "thinking_blocks")
_BESIDE_ARGS = {"thought", "blocking", "is_static", "hidden", "confirmation_state", "security_risk", "is_confirmed"}


@dataclass(frozen=True)
class OpenHandsV0:
    """Reads OpenHands events of versions before 1."""

    name: str = "openhands_v0"
    title: str = "OpenHands events (before 1.0)"

    def detect(self, probe: Probe) -> float:
        """Objects of an action or observation with a source."""
        if probe.fields.isdisjoint(("trajectory", "action", "observation")):
            return 0.0
        whole = record(probe.document).get("trajectory")
        if records(whole) and all(map(is_event, records(whole))):
            return 0.9
        rows = [row for row in probe.rows or [probe.document] if isinstance(row, dict)]
        if "event_cache" in probe.path:
            return 0.0  # the same events once more
        if not rows or "history" in rows[0] or not any(map(is_event, rows)):
            return 0.0
        if probe.document is not None:
            return 0.9 if _FIRST_FILE.fullmatch(probe.name) else 0.0  # the other files of its folder are read with it
        return 0.93 if all(map(is_event, rows)) else 0.7

    def read(self, log: LogFile, report: Report) -> Iterator[Run]:
        """The one run of a file, or of a folder of events."""
        events: list[dict[str, Any]] = []
        session = None
        for _, row in objects(log, report):
            events.extend(records(row["trajectory"]) if isinstance(row.get("trajectory"), list) else [row])
        if _FIRST_FILE.fullmatch(log.path.name):
            session = next((part for part in reversed(log.parts[:-1]) if part != "events"), None)
            events = sorted(events_beside(log, events, re.compile(r"\d+\.json"), report), key=_number)
        stream = V0Stream(report)
        stream.write_all(events)
        yield from session_run(
            stream.script,
            report,
            None,
            format="openhands_v0",
            key=f"openhands_v0:{session}" if session else None,
            session_id=session,
            tools=stream.tools,
            agent=stream.agent,
        )


def is_event(row: Any) -> bool:
    """Is this an event of this generation?"""
    event = record(row)
    return (isinstance(event.get("action"), str) or isinstance(event.get("observation"), str)) and (
        "source" in event or "cause" in event
    )


def events_beside(
    log: LogFile, events: list[dict[str, Any]], names: re.Pattern[str], report: Report
) -> list[dict[str, Any]]:
    """The events of a file and of the others of its folder that are named so, in the order of names."""
    found = list(events)
    for sibling in log.siblings("."):
        if sibling.path.name != log.path.name and names.fullmatch(sibling.path.name):
            try:
                found.append(record(sibling.document()))
            except InvalidInput as error:
                report.reject(None, error.message)
    return found


def _number(event: dict[str, Any]) -> int:
    return event["id"] if isinstance(event.get("id"), int) else 0


class V0Stream:
    """Writes events as turns, in their order."""

    def __init__(self, report: Report) -> None:
        self.script, self.report = Transcript(), report
        self.tools: list[dict[str, Any]] = []
        self.version: str | None = None
        self.agent_class: str | None = None
        self._calls: dict[Any, str] = {}
        """Id of an action's event -> id of its call."""
        self._replies: set[str] = set()
        self._quiet: set[Any] = set()
        """Ids of events that are no turns; what observes them is none either."""

    @property
    def agent(self) -> AgentInfo:
        """Who acted."""
        return AgentInfo(name=self.agent_class or "openhands", version=self.version, model=self.script.model)

    def write_all(self, events: Iterable[dict[str, Any]]) -> None:
        """Add events."""
        for event in events:
            if isinstance(event.get("action"), str):
                self._action(event, event["action"])
            elif isinstance(event.get("observation"), str):
                self._observation(event, event["observation"])
            else:
                self.report.skip("event without action or observation")

    def _action(self, event: dict[str, Any], kind: str) -> None:
        args, by_agent = record(event.get("args")), event.get("source") == "agent"
        if kind == "system":
            self.tools = self.tools or tool_schemas(args.get("tools"))
            self.version = self.version or label(args.get("openhands_version"))
            self.agent_class = self.agent_class or label(args.get("agent_class"))
            self.script.say("system", self._words(event, args), timestamp=moment(event.get("timestamp")))
        elif kind == "condensation":
            self.report.skip(kind)
            self.report.note("the context was condensed: the model no longer saw some turns before the summary")
            if summary := text(args.get("summary")):
                self.script.say("user", summary, extra={"compacted": True})
        elif kind in _NO_TURN:
            self._quiet.add(_key(event.get("id")))
            self.report.skip(f"action/{kind}")
        elif not by_agent:
            self.script.say("user", self._words(event, args), timestamp=moment(event.get("timestamp")))
        else:
            self._acted(event, kind, args)

    def _words(self, event: dict[str, Any], args: dict[str, Any]) -> Any:
        pictures = [{"type": "image_url", "image_url": url} for url in items(args.get("image_urls"))]
        said = shown(args.get("content")) if "content" in args else text(event.get("message"))
        return joined(said, shown(pictures))

    def _acted(self, event: dict[str, Any], kind: str, args: dict[str, Any]) -> None:
        called = record(event.get("tool_call_metadata"))
        response, call_id = record(called.get("model_response")), label(called.get("tool_call_id"))
        if kind != "message":
            self._calls[_key(event.get("id"))] = call_id or f"event-{event.get('id')}"
        reply = label(response.get("id"))
        if reply in self._replies:
            return
        message = record(next((record(choice).get("message") for choice in items(response.get("choices"))), None))
        if not message:
            self._told(event, kind, args, called)
            return
        if reply:
            self._replies.add(reply)
        known = {key: message.get(key) for key in _SPOKEN}
        turn = turn_of({"role": "assistant", **known}, "message", self.report.refuse)
        if turn is None:
            return
        about = {
            "model": label(response.get("model")),
            "usage": usage_of(response.get("usage")),
            "timestamp": moment(event.get("timestamp")),
        }
        turn.fields |= about
        put(turn, self.script)

    def _told(self, event: dict[str, Any], kind: str, args: dict[str, Any], called: dict[str, Any]) -> None:
        """An action whose reply is not in the log: the thought and the arguments of the event."""
        time = moment(event.get("timestamp"))
        if kind == "message":
            self.script.act(self._words(event, args), thought=label(args.get("thought")), timestamp=time)
            return
        given = {name: value for name, value in args.items() if name not in _BESIDE_ARGS}
        call = action(first(called.get("function_name"), kind) or kind, given, self._calls[_key(event.get("id"))])
        self.script.act(thought=label(args.get("thought")), actions=[call], timestamp=time)

    def _observation(self, event: dict[str, Any], kind: str) -> None:
        cause = _key(event.get("cause"))
        if kind in _NO_TURN or cause in self._quiet:
            self.report.skip(f"observation/{kind}")
            return
        call_id = label(record(event.get("tool_call_metadata")).get("tool_call_id")) or self._calls.get(cause)
        extras = record(event.get("extras"))
        code: Any = record(extras.get("metadata")).get("exit_code", extras.get("exit_code"))
        failed = kind in ("error", "user_rejected") or extras.get("error") is True or (type(code) is int and code > 0)
        said = shown(event.get("content"))
        self.script.observe(said or text(event.get("message")), call_id=call_id, is_error=failed)


def _key(value: Any) -> Any:
    """An id of an event as a key; None for what is none."""
    return value if isinstance(value, int | str) else None
