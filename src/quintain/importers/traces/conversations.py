"""Assemble the model calls and tool calls of a trace into conversations.

Every model call of a trace repeats the history before it. A call goes on with the conversation whose last answer stands
in its input, so that agents that talk side by side, and subagents, become conversations of their own. So does an agent to
whom another one hands over: its calls have the history, but its own system prompt. An answer is taken
from the call that made it (with its thoughts, model, usage and time), never from a later copy. Turns of the agent that
were in the input of a conversation's first call were made elsewhere: they are marked as copied context.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise, takewhile
from typing import Any

from quintain.importers.protocol import Report
from quintain.importers.transcripts.chat_messages import Turn, canonical_arguments
from quintain.importers.transcripts.message_parts import Result, plain_text

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_LONG = 40
"""Length from which an answer is identified by its text alone."""
_TRIED = 50
"""Number of latest conversations compared with a call."""


@dataclass
class ModelCall:
    """One model request and its response."""

    inputs: list[Turn]
    outputs: list[Turn]
    start: datetime | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    """Fields of the resulting step: model, usage, ..."""
    tools: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None
    agent: str | None = None
    """Name of the agent that made the call, where the trace has several."""
    parent: str | None = None
    """Id of the record around the call."""


@dataclass
class ToolCall:
    """One tool execution as recorded by the trace."""

    call: dict[str, Any]
    """As returned by `make_call`, with arguments and id where known."""
    result: Result
    start: datetime | None = None


@dataclass(eq=False)
class Conversation:
    """One thread of a trace."""

    turns: list[Turn]
    tools: list[dict[str, Any]]
    results: dict[int, list[tuple[int, Result]]] = field(default_factory=dict)
    """Turn index -> results that only tool records contain, each with the index of its call."""
    agent: str | None = None
    """As in `ModelCall`."""

    @property
    def last(self) -> Turn | None:
        """Last agent turn."""
        return next((turn for turn in reversed(self.turns) if turn.actor == "agent"), None)

    @property
    def turns_with_results(self) -> list[Turn]:
        """All turns, each result after the turn with its call: of calls without an id in their order, which matches them."""
        turns = []
        for i, turn in enumerate(self.turns):
            found = self.results.get(i, [])
            found = found if turn.call_ids else sorted(found, key=lambda numbered: numbered[0])
            turns += [turn, *(Turn("tool", results=[result]) for _, result in found)]
        return turns


@dataclass
class _Index:
    """Conversations indexed by their last turn."""

    ends: dict[Any, list[Conversation]] = field(default_factory=lambda: defaultdict(list))
    asking: dict[str, Conversation] = field(default_factory=dict)
    """Call id -> conversation that made the call last."""

    def add(self, conversation: Conversation) -> None:
        if (last := conversation.last) is not None:
            self.ends[last.key].append(conversation)
            self.asking.update(dict.fromkeys(last.call_ids, conversation))

    def find(self, turn: Turn, before: Turn | None) -> Conversation | None:
        """Return the conversation whose last answer is this turn; the preceding turn distinguishes equal answers."""
        for call_id in turn.call_ids:
            if (known := self.asking.get(call_id)) is not None and call_id in (known.last or turn).call_ids:
                return known
        for known in reversed(self.ends.get(turn.key, [])[-_TRIED:]):
            if (last := known.last) is None or last.key != turn.key:
                continue
            asked = _before(known.turns, last)
            if len(plain_text(turn.content)) >= _LONG or (before and before.key) == (asked and asked.key):
                return known
        return None


def build_conversations(calls: Sequence[ModelCall], *, is_one: bool) -> list[Conversation]:
    """Return the conversations of some model calls, in order of their beginning.

    Args:
        calls: Of one trace.
        is_one: Are they one conversation by the word of the log? Then a call without a history goes on with it.
    """
    found: list[Conversation] = []
    index = _Index()
    for call in sorted(calls, key=lambda call: call.start or _BEGINNING):
        known, position = _continued(call, found, index, is_one)
        if known is None:
            known = Conversation(_copied(call.inputs), call.tools, agent=call.agent)
            found.append(known)
        else:
            _correct_calls(known, call.inputs[:position])
            _insert_results(known, call.inputs[:position])
            known.turns += _copied(call.inputs[position:])
            known.tools = known.tools or call.tools
        answer = next((turn for turn in call.outputs if turn.actor == "agent"), None)
        if answer is not None:
            own = {name: value for name, value in answer.fields.items() if value is not None}
            answer.fields = {"timestamp": call.start, **call.fields, **own}
        known.turns += call.outputs
        index.add(known)
    return found


def _copied(turns: list[Turn]) -> list[Turn]:
    """Mark turns of the agent that no recorded call made."""
    copied = {"copied_context": True}
    return [replace(turn, fields=turn.fields | copied) if turn.actor == "agent" else turn for turn in turns]


def _correct_calls(known: Conversation, history: list[Turn]) -> None:
    """Take the calls of the last answer from its copy where the answer itself was recorded with broken arguments.

    An instrumentation that joins streamed calls by their order can write those of parallel calls into one (BeeAI).
    """
    last, copy = known.last, next((turn for turn in reversed(history) if turn.actor == "agent"), None)
    if last is None or copy is None or not set(last.call_ids) & set(copy.call_ids):
        return
    if any(call["args"] is None for call in last.calls) and all(call["args"] is not None for call in copy.calls):
        last.calls = copy.calls


def _insert_results(known: Conversation, history: list[Turn]) -> None:
    """Insert the results that a history has between the messages of the last response, each with its own calls (Koog)."""
    start = len(known.turns)
    while start and known.turns[start - 1].actor == "agent":
        start -= 1
    written = known.turns[start:-1]
    answers = {call.key: turn for call, turn in pairwise(history) if call.actor == "agent" and turn.actor == "tool"}
    if any(turn.key in answers for turn in written):
        between = [other for turn in written for other in (turn, answers.get(turn.key)) if other is not None]
        known.turns[start:-1] = between


def _continued(
    call: ModelCall, found: list[Conversation], index: _Index, is_one: bool
) -> tuple[Conversation | None, int]:
    """Return the conversation that a call continues, and the index of the first new turn in its input."""
    for i in reversed(range(len(call.inputs))):
        if call.inputs[i].actor != "agent":
            continue
        known = index.find(call.inputs[i], _before(call.inputs, call.inputs[i]))
        if known is not None and not _is_of_another_agent(call, known):
            return known, i + 1
    if any(turn.actor == "agent" for turn in call.inputs) or not call.inputs:
        return None, 0
    system = _system(call.inputs)
    answered = [result.call_id for turn in call.inputs for result in turn.results]
    asking = next((index.asking[call_id] for call_id in answered if call_id in index.asking), None)
    for known in [asking] if asking else reversed(found[-_TRIED:]) if is_one else []:
        same = not system or system == _system(known.turns)
        if asking or same:
            return known, len(system) if same else 0
    return None, 0


def _system(turns: list[Turn]) -> list[Any]:
    return [turn.key for turn in turns if turn.actor == "system"]


def _is_of_another_agent(call: ModelCall, known: Conversation) -> bool:
    """Whether another agent, with another system prompt, makes a call than the agent of a conversation."""
    if call.agent is None or known.agent is None or call.agent == known.agent:
        return False
    return bool(system := _system(call.inputs)) and system != _system(known.turns)


def _before(turns: list[Turn], turn: Turn) -> Turn | None:
    """Return the preceding turn, skipping system prompts, which may change between calls."""
    earlier = None
    for other in turns:
        if other is turn:
            break
        earlier = other if other.actor != "system" else earlier
    return earlier


@dataclass(eq=False)
class _Asked:
    """A call of a conversation without a matched tool record."""

    conversation: Conversation
    turn: int
    call: dict[str, Any]

    def is_answered(self) -> bool:
        """Whether as many results without an id follow the turn as it has calls."""
        after = takewhile(lambda turn: turn.actor != "agent", self.conversation.turns[self.turn + 1 :])
        nameless = sum(result.call_id is None for turn in after for result in turn.results)
        return nameless >= len(self.conversation.turns[self.turn].calls)


def match_results(found: Sequence[Conversation], tool_calls: Sequence[ToolCall], report: Report) -> None:
    """Assign results that only tool records contain to the calls that requested them."""
    by_id: dict[str, list[_Asked]] = defaultdict(list)
    by_tool: dict[str, list[_Asked]] = defaultdict(list)
    answered: dict[tuple[int, str | None], tuple[Turn, int]] = {}
    nameless: Counter[str] = Counter()
    for conversation in found:
        for i, turn in enumerate(conversation.turns):
            for call in turn.calls if not turn.fields.get("copied_context") else ():
                asked = _Asked(conversation, i, call)
                by_id[call["call_id"] or ""].append(asked)
                by_tool[call["tool"]].append(asked)
            for n, result in enumerate(turn.results):
                answered[id(conversation), result.call_id] = turn, n
                nameless[plain_text(result.content).strip()] += result.call_id is None
    used: set[_Asked] = set()
    for tool_call in sorted(tool_calls, key=lambda tool_call: tool_call.start or _BEGINNING):
        match = _match(tool_call, by_id, by_tool, used)
        if match is None:
            report.skip("run of a tool that no model asked for")
            continue
        used.add(match)
        _add_tool_result(tool_call.result, match, answered, nameless)


def _match(
    tool_call: ToolCall, by_id: dict[str, list[_Asked]], by_tool: dict[str, list[_Asked]], used: set[_Asked]
) -> _Asked | None:
    wanted = tool_call.call["call_id"]
    if wanted and (same_id := next((asked for asked in by_id.get(wanted, ()) if asked not in used), None)):
        return same_id
    named = by_tool.get(tool_call.call["tool"], [])
    while named and named[0] in used:
        named.pop(0)
    left = [asked for asked in named[:1000] if asked not in used and not (wanted and asked.call["call_id"])]
    exact = (asked for asked in left if canonical_arguments(asked.call) == canonical_arguments(tool_call.call))
    return next(exact, None) or next(iter(left), None)


def _add_tool_result(
    result: Result, asked: _Asked, answered: dict[tuple[int, str | None], tuple[Turn, int]], nameless: Counter[str]
) -> None:
    call_id = asked.call["call_id"]
    content = plain_text(result.content).strip()
    if call_id and (known := answered.get((id(asked.conversation), call_id))):
        turn, n = known
        turn.results[n] = turn.results[n]._replace(is_error=turn.results[n].is_error or result.is_error)
    elif not call_id and nameless[content]:
        nameless[content] -= 1
    elif not call_id and asked.is_answered():
        pass
    else:
        place = next(n for n, call in enumerate(asked.conversation.turns[asked.turn].calls) if call is asked.call)
        asked.conversation.results.setdefault(asked.turn, []).append((place, result._replace(call_id=call_id)))


def whole_exchange(inputs: list[Turn], outputs: list[Turn]) -> ModelCall:
    """Return the single call that a run amounts to if no model call was recorded; outputs may repeat the inputs."""
    n = len(inputs)
    repeats = n and [turn.key for turn in outputs[:n]] == [turn.key for turn in inputs]
    return ModelCall(inputs, outputs[n:] if repeats else outputs)
