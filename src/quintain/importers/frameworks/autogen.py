"""AutoGen since version 0.4: messages of a team, results of a task, and saved states of agents and teams.

Each agent has its own conversation, in which the messages of the others are those of a user. A saved state has the
contexts of its models; the messages of a team give the conversation of each agent in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.outcome_fields import outcome_from
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, matching_share
from quintain.importers.run_builder import build_session_run
from quintain.importers.transcripts.chat_messages import Turn
from quintain.importers.transcripts.message_parts import Message, Result, parse_call, parse_result, visible_content
from quintain.importers.values import as_dict, as_list, as_text, dicts_in, nonblank, parse_time, parse_usage, to_text

_CONTEXT = {"UserMessage", "AssistantMessage", "SystemMessage", "FunctionExecutionResultMessage"}
_SPOKEN = {"TextMessage", "MultiModalMessage", "StopMessage"}
_OF_PROGRAM = {"ToolCallSummaryMessage", "HandoffMessage"}
"""Messages that the program writes for an agent, from results that its model has already got."""
_EVENTS = {"ToolCallRequestEvent", "ToolCallExecutionEvent", "ThoughtEvent", "MemoryQueryEvent"}
_EVENTS |= {"ModelClientStreamingChunkEvent", "UserInputRequestedEvent", "CodeGenerationEvent", "CodeExecutionEvent"}
_STATES = {"AssistantAgentState", "TeamState", "ChatAgentContainerState"}


def _detect(probe: Probe) -> float:
    """Match messages, results with messages, and states."""
    rows = [row for row in (*probe.rows, probe.document) if row is not None]
    if probe.shape in {"array", "lines"} and rows and all(_is_message(row) or _is_result(row) for row in rows):
        return 0.96
    return 0.96 if matching_share(probe, lambda row: _is_result(row) or _is_state(row), *probe.fields) > 0.5 else 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    bare: list[dict[str, Any]] = []
    begins, stopped = None, None
    for line, row in log.rows(report):
        if _is_message(row):
            bare.append(row)
            begins = begins or line
        elif _is_state(row):
            yield from _state_runs(row, report, line)
        elif _is_result(row) and bare:  # a stream ends with its result
            stopped = nonblank(row.get("stop_reason"))
        elif _is_result(row):
            yield from _thread_runs(dicts_in(row["messages"]), nonblank(row.get("stop_reason")), report, line)
        else:
            report.reject(line, "expected a message, a result or a state of AutoGen")
    if bare:
        yield from _thread_runs(bare, stopped, report, begins)


IMPORTER = Importer("autogen", "AutoGen messages or state", _detect, _read)


def _is_message(value: Any) -> bool:
    kind = as_text(as_dict(value).get("type"))
    known = kind in _SPOKEN | _OF_PROGRAM | _EVENTS or kind.startswith("StructuredMessage")
    return known and isinstance(value.get("source"), str) and "content" in value


def _is_result(value: Any) -> bool:
    messages = as_list(as_dict(value).get("messages"))
    return bool(messages) and all(map(_is_message, messages[:20]))


def _is_state(value: Any) -> bool:
    return as_text(as_dict(value).get("type")) in _STATES and "version" in as_dict(value)


def _state_runs(state: dict[str, Any], report: Report, line: int) -> Iterator[Run]:
    """Yield the runs of a state: of each context, else of the messages of the team."""
    members = as_dict(state.get("agent_states")) or {"assistant": state}
    inner = {name: as_dict(as_dict(member).get("agent_state")) or as_dict(member) for name, member in members.items()}
    thread = next(
        (dicts_in(member.get("message_thread")) for member in inner.values() if "message_thread" in member), []
    )
    found = False
    for name, member in inner.items():
        context = dicts_in(as_dict(member.get("llm_context")).get("messages")) or dicts_in(member.get("llm_messages"))
        turns = [turn for message in context if (turn := _context_turn(message, report))]
        if any(turn.actor == "agent" for turn in turns):
            found = True
            authors = (nonblank(m.get("source")) for m in context if m.get("type") == "AssistantMessage")
            author = next(authors, None) or name  # the name of a member may have the id of its team
            _add_counts(turns, [message for message in thread if message.get("source") == author])
            yield from _run(turns, author, None, report, line)
    if not found:
        yield from _thread_runs(thread, None, report, line)


def _context_turn(message: dict[str, Any], report: Report) -> Turn | None:
    """Return the turn of a message of a model's context; None if it is skipped."""
    kind, content = as_text(message.get("type")), message.get("content")
    if kind == "AssistantMessage":
        turn = Turn("agent", thoughts=list(filter(None, [nonblank(message.get("thought"))])))
        if isinstance(content, list):
            turn.calls = _calls(content)
        else:
            turn.content = to_text(content)
        return turn
    if kind == "FunctionExecutionResultMessage":
        return Turn("tool", results=_results(content))
    if kind in _CONTEXT:
        return Turn("system" if kind == "SystemMessage" else "user", _content(content))
    report.skip(f"message: {kind}")
    return None


def _add_counts(turns: list[Turn], thread: list[dict[str, Any]]) -> None:
    """Add time and token counts of an agent's messages in the team's thread, if they are as many as its turns."""
    counted = [message for message in thread if parse_usage(message.get("models_usage"))]
    acted = [turn for turn in turns if turn.actor == "agent"]
    if len(counted) == len(acted):
        for turn, message in zip(acted, counted, strict=True):
            turn.fields |= _about(message)


@dataclass
class _View:
    """The conversation of one agent in a team."""

    name: str
    turns: list[Turn] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)

    def add(self, message: dict[str, Any], report: Report) -> None:
        """Add a message of any agent."""
        kind, content = as_text(message.get("type")), message.get("content")
        if message.get("source") != self.name:
            if kind not in _EVENTS:
                source = {"source": as_text(message.get("source"))[:80]}
                when = parse_time(message.get("created_at"))
                self.turns.append(Turn("user", _content(content), fields={"timestamp": when, "extra": source}))
        elif kind == "ThoughtEvent":
            self.thoughts.append(to_text(content))
        elif kind == "ToolCallExecutionEvent":
            self.turns.append(Turn("tool", results=_results(content)))
        elif kind == "ToolCallRequestEvent":
            self.turns.append(Turn("agent", "", self.thoughts, _calls(content), fields=_about(message)))
            self.thoughts = []
        elif kind in _EVENTS or kind in _OF_PROGRAM:
            report.skip(f"message: {kind}")
        else:
            self.turns.append(Turn("agent", _content(content), self.thoughts, fields=_about(message)))
            self.thoughts = []


def _thread_runs(
    messages: list[dict[str, Any]], stopped: str | None, report: Report, line: int | None
) -> Iterator[Run]:
    """Yield the run of each agent whose model wrote one of the messages."""
    acts = {"ThoughtEvent", "ToolCallRequestEvent"}
    agents = [m.get("source") for m in messages if parse_usage(m.get("models_usage")) or m.get("type") in acts]
    agents = agents or [m.get("source") for m in messages if m.get("source") != "user"]
    for name in dict.fromkeys(filter(None, map(as_text, agents))):
        view = _View(name)
        for message in messages:
            view.add(message, report)
        yield from _run(view.turns, name, stopped, report, line)


def _run(turns: list[Turn], agent: str, stopped: str | None, report: Report, line: int | None) -> Iterator[Run]:
    outcome = outcome_from(None, stopped)
    yield from build_session_run(turns, report, line, agent=agent[:200], outcome=outcome)


def _calls(content: Any) -> list[dict[str, Any]]:
    calls = (parse_call(call, "call", Report().refuse) for call in dicts_in(content))
    return [call for call in calls if call]


def _results(content: Any) -> list[Result]:
    return [parse_result(held, to_text(held.get("content")), "result", Report().refuse) for held in dicts_in(content)]


def _content(value: Any) -> Message:
    """Return text, or text and images; a structured message as JSON."""
    if not isinstance(value, list):
        return to_text(value)
    return visible_content(
        [{"type": "image", **part} if isinstance(part, dict) and "data" in part else part for part in value]
    )


def _about(message: dict[str, Any]) -> dict[str, Any]:
    return {"timestamp": parse_time(message.get("created_at")), "usage": parse_usage(message.get("models_usage"))}
