"""OpenHands events before version 1: a list of actions and observations, a line each, or a file each (`events/0.json`, ...).

The reply of the model is in `tool_call_metadata.model_response` of every action that it asked for; where it is missing
the action itself is read. Observations find their action by the id of the call, else by `cause`. Events of 2024 have their
arguments beside `action`, without id, source or cause: an observation answers the action before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from quintain.importers.coding_agents.openhands_events import EventStream, detect_events, exit_failed, folder_events
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, object_rows
from quintain.importers.transcripts.chat_messages import append_turn, parse_message
from quintain.importers.transcripts.message_parts import join_messages, visible_content
from quintain.importers.transcripts.tool_schemas import parse_tool_schemas
from quintain.importers.transcripts.transcript import make_call
from quintain.importers.values import as_dict, as_list, as_text, dicts_in, nonblank, parse_time, parse_usage

_FIRST_FILE = re.compile(r"0+\.json")
_NO_TURN = {"recall", "change_agent_state", "agent_state_changed", "null", "condensation_request", "pause", "resume"}
_REPLY_FIELDS = ("content", "tool_calls", "function_call", "reasoning_content", "thinking_blocks")
_BESIDE_ARGS = {"thought", "blocking", "is_static", "hidden", "confirmation_state", "security_risk", "is_confirmed"}
_BESIDE_ARGS |= {"keep_prompt", "kernel_init_code"}
_ENVELOPE = {
    "action",
    "observation",
    "id",
    "source",
    "cause",
    "timestamp",
    "message",
    "tool_call_metadata",
    "llm_metrics",
}


def _detect(probe: Probe) -> float:
    """Match objects with an action or observation and a source."""
    if probe.fields.isdisjoint(("trajectory", "action", "observation")):
        return 0.0
    whole = as_dict(probe.document).get("trajectory")
    if dicts_in(whole) and all(map(is_event, dicts_in(whole))):
        return 0.9
    if "event_cache" in probe.path or "history" in as_dict(probe.first):
        return 0.0  # the same events once more, or evaluation output
    share = detect_events(probe, is_event, _FIRST_FILE)
    return 0.0 if not share else 0.9 if probe.document is not None else 0.93 if share == 1 else 0.7


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    events: list[dict[str, Any]] = []
    session = None
    for _, row in object_rows(log, report):
        events.extend(dicts_in(row["trajectory"]) if isinstance(row.get("trajectory"), list) else [row])
    if _FIRST_FILE.fullmatch(log.path.name):
        others, session = folder_events(log, re.compile(r"\d+\.json"), report)
        events += others
        events.sort(key=lambda event: event["id"] if isinstance(event.get("id"), int) else 0)
    yield from V0Stream(report).run(events, session=session)


IMPORTER = Importer("openhands_v0", "OpenHands events (before 1.0)", _detect, _read)


def is_event(row: Any) -> bool:
    """Whether a row is an event of this generation."""
    event = as_dict(row)
    return (isinstance(event.get("action"), str) or isinstance(event.get("observation"), str)) and (
        "source" in event or "cause" in event
    )


class V0Stream(EventStream):
    """Writes events before version 1."""

    def __init__(self, report: Report, model: str | None = None) -> None:
        super().__init__(report, model)
        self._replies: set[str] = set()
        self._quiet: set[Any] = set()
        """Ids of events that are not turns; observations of them are skipped too."""

    def write(self, event: dict[str, Any]) -> None:
        """Write one event."""
        if isinstance(event.get("action"), str):
            self._action(event, event["action"])
        elif isinstance(event.get("observation"), str):
            self._observation(event, event["observation"])
        else:
            self.report.skip("event without action or observation")

    def _action(self, event: dict[str, Any], kind: str) -> None:
        args, by_agent = _arguments(event), _is_by_agent(event, kind)
        if kind == "system":
            self.tools = self.tools or parse_tool_schemas(args.get("tools"))
            self.version = self.version or nonblank(args.get("openhands_version"))
            self.agent_class = self.agent_class or nonblank(args.get("agent_class"))
            self.script.add_message("system", self._words(event, args), timestamp=parse_time(event.get("timestamp")))
        elif kind == "condensation":
            self._condense(kind, args)
        elif kind in _NO_TURN:
            self._quiet |= {_key(event.get("id"))} - {None}
            self.report.skip(f"action/{kind}")
        elif not by_agent:
            self.script.add_message("user", self._words(event, args), timestamp=parse_time(event.get("timestamp")))
        else:
            self._acted(event, kind, args)

    def _words(self, event: dict[str, Any], args: dict[str, Any]) -> Any:
        pictures = [{"type": "image_url", "image_url": url} for url in as_list(args.get("image_urls"))]
        content = visible_content(args.get("content")) if "content" in args else as_text(event.get("message"))
        return join_messages(content, visible_content(pictures))

    def _acted(self, event: dict[str, Any], kind: str, args: dict[str, Any]) -> None:
        called = as_dict(event.get("tool_call_metadata"))
        response, call_id = as_dict(called.get("model_response")), nonblank(called.get("tool_call_id"))
        event_id = _key(event.get("id"))
        if kind != "message" and event_id is not None:
            self._calls[event_id] = call_id or f"event-{event_id}"
        reply = nonblank(response.get("id"))
        if reply in self._replies:
            return
        message = as_dict(next((as_dict(choice).get("message") for choice in as_list(response.get("choices"))), None))
        if not message:
            self._action_without_reply(event, kind, args, called)
            return
        if reply:
            self._replies.add(reply)
        known = {key: message.get(key) for key in _REPLY_FIELDS}
        turn = parse_message({"role": "assistant", **known}, "message", self.report.refuse)
        if turn is None:
            return
        turn.fields |= {
            "model": nonblank(response.get("model")),
            "usage": parse_usage(response.get("usage")),
            "timestamp": parse_time(event.get("timestamp")),
        }
        append_turn(turn, self.script)

    def _action_without_reply(
        self, event: dict[str, Any], kind: str, args: dict[str, Any], called: dict[str, Any]
    ) -> None:
        """Write an action whose model reply is missing, from the event's thought and arguments."""
        time = parse_time(event.get("timestamp"))
        if kind == "message":
            self.script.add_agent_turn(self._words(event, args), thought=nonblank(args.get("thought")), timestamp=time)
            return
        arguments = {name: value for name, value in args.items() if name not in _BESIDE_ARGS}
        call = make_call(
            nonblank(called.get("function_name")) or kind, arguments, self._calls.get(_key(event.get("id")))
        )
        self.script.add_agent_turn(thought=nonblank(args.get("thought")), actions=[call], timestamp=time)

    def _observation(self, event: dict[str, Any], kind: str) -> None:
        cause = _key(event.get("cause"))
        if kind in _NO_TURN or cause in self._quiet:
            self.report.skip(f"observation/{kind}")
            return
        call_id = nonblank(as_dict(event.get("tool_call_metadata")).get("tool_call_id")) or self._calls.get(cause)
        extras = as_dict(event.get("extras", event))
        failed = kind in ("error", "user_rejected") or extras.get("error") is True or exit_failed(extras)
        content = visible_content(event.get("content"))
        self.script.add_result(content or as_text(event.get("message")), call_id=call_id, is_error=failed)


def _arguments(event: dict[str, Any]) -> dict[str, Any]:
    if "args" in event:
        return as_dict(event["args"])
    return {name: value for name, value in event.items() if name not in _ENVELOPE}


def _is_by_agent(event: dict[str, Any], kind: str) -> bool:
    """Whether the agent acted. Without a source, only messages that wait for a response are the agent's."""
    if event.get("source") is not None:
        return bool(event["source"] == "agent")
    return kind != "message" or _arguments(event).get("wait_for_response") is True


def _key(value: Any) -> Any:
    """Return an event id as a dictionary key; None for other values."""
    return value if isinstance(value, int | str) else None
