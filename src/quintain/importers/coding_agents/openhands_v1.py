"""OpenHands events since version 1 (software agent SDK), distinguished by `kind`.

They stand a line each, or a file each: `events/event-00000-ID.json` of a local conversation, or what the cloud gives to
download, a zip archive or folder of `event_000000_ID.json` and `meta.json`. Actions that share an `llm_response_id` are one
turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.coding_agents.openhands_events import EventStream, detect_events, exit_failed, folder_events
from quintain.importers.files.archives import archive, is_zip
from quintain.importers.files.json_parser import Parser
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, object_rows
from quintain.importers.transcripts.message_parts import (
    Message,
    join_messages,
    join_thoughts,
    parse_call,
    plain_text,
    visible_content,
)
from quintain.importers.transcripts.tool_schemas import parse_tool_schemas
from quintain.importers.transcripts.transcript import make_call
from quintain.importers.values import as_dict, as_text, dicts_in, nonblank, parse_time

_FIRST_FILE = re.compile(r"event[-_]0+([-_].*)?\.json")
_FILE = re.compile(r"event[-_]\d+([-_].*)?\.json")
_THINK = re.compile(r"<think>(.*?)</think>", re.DOTALL)
_KINDS = {"CondensationRequest", "Condensation", "CondensationSummaryEvent", "UserRejectObservation"}


def _detect(probe: Probe) -> float:
    """Match objects whose kind is an event kind."""
    if probe.shape == "zip":
        return 0.9 if any(_FILE.fullmatch(_file(name)) for name in probe.rows if isinstance(name, str)) else 0.0
    share = detect_events(probe, is_event, _FIRST_FILE) if "kind" in probe.fields else 0.0
    return 0.0 if not share else 0.93 if probe.document is not None else 0.95 if share == 1 else 0.8


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    if is_zip(log.path, log.root):
        yield from _archived(log, report)
        return
    events = [row for _, row in object_rows(log, report)]
    session = None
    if _FIRST_FILE.fullmatch(log.path.name):
        others, session = folder_events(log, _FILE, report)
        events += others
    state = _state(log)
    yield from _run(events, state, nonblank(state.get("id"), session), report)


IMPORTER = Importer("openhands_v1", "OpenHands events (1.0 and later)", _detect, _read)


def _archived(log: LogFile, report: Report) -> Iterator[Run]:
    """Yield the conversations of an archive, one a folder."""
    parser = Parser(log.reading.repairs)
    with archive(log.path, log.root) as opened:
        folders: dict[str, list[str]] = {}
        for name in sorted(opened.names):
            if _FILE.fullmatch(_file(name)):
                folders.setdefault(name.removesuffix(_file(name)), []).append(name)
        names = set(opened.names)
        for folder, members in folders.items():
            events, about = [], {}
            above = folder.removesuffix("events/")
            for name in [*members, *({f"{folder}meta.json", f"{above}base_state.json"} & names)]:
                try:
                    document = as_dict(parser.parse(opened.read(name)))
                except InvalidInput as error:
                    report.reject(None, f"{name[:80]}: {error.message}")
                    continue
                if name in members:
                    events.append(document)
                else:
                    about = document
            yield from _run(events, about, nonblank(about.get("id"), _file(above.strip("/"))), report)


def _file(name: str) -> str:
    """Return the last part of a member's name."""
    return name.rpartition("/")[2]


def _run(events: list[dict[str, Any]], about: dict[str, Any], session: str | None, report: Report) -> Iterator[Run]:
    model = nonblank(as_dict(as_dict(about.get("agent")).get("llm")).get("model"), about.get("llm_model"))
    yield from V1Stream(report, model).run(events, session=session)


def is_event(row: Any) -> bool:
    """Whether a row is an event of this generation."""
    kind = as_dict(row).get("kind")
    return isinstance(kind, str) and (kind.endswith("Event") or kind in _KINDS) and "source" in row


def _state(log: LogFile) -> dict[str, Any]:
    """Read the conversation state beside the events; in a download, its title, model and id."""
    name = "../base_state.json" if log.parts[-2:-1] == ("events",) else "meta.json"
    is_beside = name != "meta.json" or _FIRST_FILE.fullmatch(log.path.name)
    return as_dict(log.sibling_document(name)) if is_beside else {}


class V1Stream(EventStream):
    """Writes events since version 1."""

    _reply: str | None = None
    """Response id of the last turn."""

    def write(self, event: dict[str, Any]) -> None:
        """Write one event."""
        kind = event.get("kind")
        if kind == "ActionEvent":
            self._action(event)
        elif kind in ("ObservationEvent", "UserRejectObservation", "AgentErrorEvent"):
            self._observation(event, kind)
        elif kind == "MessageEvent":
            self._message(event)
        elif kind in ("SystemPromptEvent", "SystemPromptUpdateEvent"):
            self._system(event)
        elif kind in ("Condensation", "CondensationSummaryEvent"):
            self._condense(kind, event)
        else:
            self.report.skip(kind if isinstance(kind, str) else "event without kind")
            if kind == "ConversationStateUpdateEvent":
                self.model = _model(event) or self.model

    def _action(self, event: dict[str, Any]) -> None:
        call, action = as_dict(event.get("tool_call")), as_dict(event.get("action"))
        function = as_dict(call.get("function")) or call
        call_id = nonblank(event.get("tool_call_id"), call.get("id"))
        arguments = function.get("arguments", {name: value for name, value in action.items() if name != "kind"})
        calling = make_call(nonblank(event.get("tool_name"), function.get("name")) or "", arguments, call_id)
        if (name := nonblank(event.get("id"))) and call_id:
            self._calls[name] = call_id
        content, thought = _content_and_thought(visible_content(event.get("thought")), event)
        reply = nonblank(event.get("llm_response_id"))
        last = self.script.steps[-1] if self.script.steps else {}
        if reply and reply == self._reply and last.get("actor") == "agent":
            self.script.add_call(calling)
            last["message"] = join_messages(last["message"], content)
            last["thought"] = join_thoughts([last["thought"], thought])
            return
        self._reply = reply
        self._act(event, content, thought, [calling])

    def _act(self, event: dict[str, Any], content: Message, thought: str | None, calls: list[dict[str, Any]]) -> None:
        time = parse_time(event.get("timestamp"))
        self.script.add_agent_turn(content, thought=thought, actions=calls, model=self.model, timestamp=time)

    def _observation(self, event: dict[str, Any], kind: str) -> None:
        call_id = nonblank(event.get("tool_call_id")) or self._calls.get(as_text(event.get("action_id")))
        observation = as_dict(event.get("observation"))
        if kind == "AgentErrorEvent":
            answer, failed = visible_content(event.get("error")), True
        elif kind == "UserRejectObservation":
            answer, failed = visible_content(event.get("rejection_reason")), True
        else:
            answer = visible_content(observation.get("content", observation.get("output", observation.get("message"))))
            flag = observation.get("is_error")
            failed = flag if isinstance(flag, bool) else bool(observation.get("error")) or exit_failed(observation)
            answer = answer or visible_content(
                observation.get("error") if isinstance(observation.get("error"), str) else None
            )
        self.script.add_result(answer, call_id=call_id, is_error=failed)

    def _message(self, event: dict[str, Any]) -> None:
        message = as_dict(event.get("llm_message"))
        content = join_messages(visible_content(message.get("content")), visible_content(event.get("extended_content")))
        if event.get("source") == "agent" or message.get("role") == "assistant":
            content, thought = _content_and_thought(content, message)
            self._reply = nonblank(event.get("llm_response_id"))
            tool_calls = dicts_in(message.get("tool_calls"))
            calls = [call for each in tool_calls if (call := parse_call(each, "tool_calls", self.report.refuse))]
            self._act(event, content, thought, calls)
        else:
            actor = "system" if message.get("role") == "system" else "user"
            self.script.add_message(actor, content, timestamp=parse_time(event.get("timestamp")))

    def _system(self, event: dict[str, Any]) -> None:
        content = join_messages(*(visible_content(event.get(key)) for key in ("system_prompt", "dynamic_context")))
        # The agent SDK writes the name of a tool as its title, and no parameters.
        offered = dicts_in(event.get("tools"))
        tools = [{"name": tool.get("title"), **as_dict(tool.get("mcp_tool")), **tool} for tool in offered]
        self.tools = parse_tool_schemas(tools) or self.tools
        self.script.add_message("system", content, timestamp=parse_time(event.get("timestamp")))


def _content_and_thought(content: Message, event: dict[str, Any]) -> tuple[Message, str | None]:
    """Return content and thought; `<think>` text is a thought and is often recorded in both places."""
    thought_parts = [as_text(event.get("reasoning_content"))]
    if not thought_parts[0].strip():
        thought_parts = [as_text(block.get("thinking")) for block in dicts_in(event.get("thinking_blocks"))]
    if "<think>" in plain_text(content):
        spoken = plain_text(content)
        end = spoken.rfind("</think>") + len("</think>")  # behind it the search would go through the text for nothing
        if not any(piece.strip() for piece in thought_parts):
            thought_parts = _THINK.findall(spoken, 0, end)
        content = f"{_THINK.sub('', spoken[:end])}{spoken[end:]}".strip()
    return content, join_thoughts(piece.strip() for piece in thought_parts)


def _model(event: dict[str, Any]) -> str | None:
    """Return the agent's model if a state update names it."""
    value = as_dict(event.get("value"))
    metrics = as_dict(value.get("usage_to_metrics"))
    named = (as_dict(metrics.get(name)).get("model_name") for name in ("agent", "default"))
    return nonblank(as_dict(as_dict(value.get("agent")).get("llm")).get("model"), *named)
