"""Convert a run to chat turns in which every result names its call; shared by the chat formats."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from quintain.datasets.messages import messages_of
from quintain.errors import InvalidInput
from quintain.records.dataset import DatasetRow, LabelledRow, PairRow, TextRow
from quintain.records.protocols import Message, tool_function
from quintain.records.trajectory import Action, ImagePart, Step, Trajectory, text_of

Losses = Counter[str]
"""Sentence about data that a format cannot represent -> count."""


PICTURES = "images are left out"
LOOSE = "results without a call become user turns"
EMPTY = "empty agent turns are left out"
THOUGHTS = "thoughts of the agent are lost"
REASONING = "thoughts are in `reasoning_content`: a chat template that does not read it drops them"
MASKS = "masked turns are trained on: the format has no loss mask"
WEIGHTS = "weights of rows are lost"
FAILED = "error flags of calls are lost: their results stay as text"
TRAILING = "results after the last agent turn are left out: nothing is trained after them"


class Call(NamedTuple):
    """An agent's call with an id unique in the run."""

    id: str
    tool: str
    args: dict[str, Any] | None
    """None if the model did not write a JSON object."""
    raw: str
    """Arguments as the model wrote them, else as JSON."""

    def arguments(self) -> dict[str, Any]:
        """Return the arguments as an object.

        Raises:
            InvalidInput: the model wrote no JSON object.
        """
        if self.args is None:
            raise InvalidInput("expected a JSON object as the arguments of a call")
        return self.args


class Turn(NamedTuple):
    """One message."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str
    step: Step | None = None
    """The agent's step, for agent turns only."""
    thought: str = ""
    calls: tuple[Call, ...] = ()
    answered: Call | None = None
    """The answered call, for tool turns only."""

    @property
    def trained(self) -> bool:
        """Whether this is a turn of the agent that may be trained on."""
        return self.step is not None and not self.step.is_masked


def turns_of(run: Trajectory, losses: Losses) -> list[Turn]:
    """Return the turns of a run; calls without an id of their own get one."""
    losses[FAILED] += sum(observation.is_error for step in run.steps for observation in step.observations)
    turns: list[Turn] = []
    ids: set[str] = set()
    waiting: list[tuple[Call, str | None]] = []
    for message, index in messages_of(run):
        text = _text(message, losses)
        if message.role == "assistant":
            calls = [_call(action, ids) for action in message.actions]
            waiting = [(call, action.call_id) for call, action in zip(calls, message.actions, strict=True)]
            if text or calls or message.thought:
                turns.append(
                    Turn("assistant", text, run.steps[index], thought=message.thought or "", calls=tuple(calls))
                )
            else:
                losses[EMPTY] += 1
        elif message.role == "tool":
            call = _answered(message.call_id, waiting)
            losses[LOOSE] += call is None
            turns.append(Turn("user", text) if call is None else Turn("tool", text, answered=call))
        elif text.strip():
            turns.append(Turn(message.role, text))
    return turns


def until_last_agent_turn(turns: Sequence[Turn], losses: Losses) -> list[Turn]:
    """Return the turns up to the last one of the agent."""
    last = max((i for i, turn in enumerate(turns) if turn.role == "assistant"), default=-1)
    losses[TRAILING] += len(turns) - last - 1
    return list(turns[: last + 1])


def prompt_turn_count(turns: Sequence[Turn]) -> int:
    """Return the number of turns before the agent's first."""
    return next((i for i, turn in enumerate(turns) if turn.role == "assistant"), len(turns))


def prompt_length(turns: Sequence[Turn]) -> int:
    """Return the number of turns before the agent's first.

    Raises:
        InvalidInput: it is 0.
    """
    if not (n := prompt_turn_count(turns)):
        raise InvalidInput("expected a message before the agent's first turn")
    return n


def split_pair(row: PairRow, losses: Losses) -> tuple[list[Turn], list[Turn], list[Turn]]:
    """Return the shared beginning of both runs of a pair, and the rest of each.

    Turns of the agent belong to the beginning while both runs share them and neither trains on them.

    Raises:
        InvalidInput: they begin with different messages or tools, or with none.
    """
    chosen, rejected = turns_of(row.chosen, losses), turns_of(row.rejected, losses)
    n = prompt_length(chosen)
    if _comparable(chosen[:n]) != _comparable(rejected[: prompt_turn_count(rejected)]):
        raise InvalidInput("the two runs of a pair begin with different messages")
    if row.chosen.tools != row.rejected.tools:
        raise InvalidInput("the two runs of a pair have different tools")
    while n + 1 < min(len(chosen), len(rejected)) and _is_shared(chosen[n], rejected[n]):
        n += 1
    return chosen[:n], chosen[n:], rejected[n:]


def last_turns(row: PairRow, losses: Losses) -> tuple[list[Turn], Turn, Turn]:
    """Return the turns that both runs of a pair share, and the last turn of each.

    Raises:
        InvalidInput: the runs differ in more than the last turn.
    """
    opened, chosen, rejected = split_pair(row, losses)
    chosen, rejected = until_last_agent_turn(chosen, losses), until_last_agent_turn(rejected, losses)
    if not chosen or not rejected:
        raise InvalidInput("a side of a pair has no agent turn")
    if _comparable(chosen[:-1]) != _comparable(rejected[:-1]):
        raise InvalidInput("the two runs of a pair differ in more than their last turn")
    return [*opened, *chosen[:-1]], chosen[-1], rejected[-1]


def count_weight(row: DatasetRow | PairRow | LabelledRow | TextRow, losses: Losses) -> None:
    """Count a weight, which no format can hold.

    Raises:
        InvalidInput: it is 0.
    """
    if row.weight == 0:
        raise InvalidInput("the row has weight 0")
    losses[WEIGHTS] += row.weight != 1


def count_lost_values(row: DatasetRow | PairRow | LabelledRow | TextRow, losses: Losses) -> None:
    """Count the weight, rewards and margin of a row, for formats that hold none of them.

    Raises:
        InvalidInput: the weight is 0.
    """
    count_weight(row, losses)
    if isinstance(row, PairRow):
        losses["margins of pairs are lost"] += row.margin is not None
    if isinstance(row, DatasetRow):
        known = row.reward is not None or any(step.reward is not None for step in row.trajectory.steps)
        losses["rewards are lost"] += known


def chat_message(turn: Turn, *, as_text: bool, thoughts: bool = True) -> dict[str, Any]:
    """Return a turn as a chat message of OpenAI's style, without empty keys.

    Args:
        turn: Any.
        as_text: Whether arguments are the JSON text that the model wrote; else they are an object.
        thoughts: Whether to write thoughts as `reasoning_content`.

    Raises:
        InvalidInput: the arguments are not an object.
    """
    message: dict[str, Any] = {"role": turn.role, "content": turn.text}
    if thoughts and turn.thought:
        message["reasoning_content"] = turn.thought
    if turn.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.tool, "arguments": call.raw if as_text else call.arguments()},
            }
            for call in turn.calls
        ]
    if turn.answered is not None:
        message |= {"tool_call_id": turn.answered.id, "name": turn.answered.tool}
    return message


def require_answers(turns: Sequence[Turn]) -> None:
    """Raise if a call inside a run has no result.

    Raises:
        InvalidInput: a call has no result, and the run goes on.
    """
    for place, turn in enumerate(turns):
        following = turns[place + 1 : place + 1 + len(turn.calls)]
        answered = {then.answered.id for then in following if then.answered}
        if turn.calls and place + 1 < len(turns) and answered != {call.id for call in turn.calls}:
            raise InvalidInput("a call inside the run has no result")


def tool_with_text_parameters(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool in OpenAI's form with its parameters as JSON text.

    Loaded as objects, the parameters of one tool would get the keys of others.
    """
    function = tool_function(tool)
    parameters = json.dumps(function.get("parameters") or {"type": "object", "properties": {}}, ensure_ascii=False)
    described = {"description": function["description"]} if function.get("description") else {}
    return {"type": "function", "function": {"name": function.get("name"), **described, "parameters": parameters}}


def count_masked(turns: Sequence[Turn]) -> int:
    """Return the number of agent turns that must not be trained on."""
    return sum(turn.role == "assistant" and not turn.trained for turn in turns)


def count_thoughts(turns: Sequence[Turn]) -> int:
    """Return the number of agent turns with a thought."""
    return sum(bool(turn.thought) for turn in turns)


def _is_shared(one: Turn, other: Turn) -> bool:
    return not (one.trained or other.trained) and _comparable([one]) == _comparable([other])


def _comparable(turns: Sequence[Turn]) -> list[Any]:
    """Return turns for comparison, without the ids of calls."""
    return [
        (turn.role, turn.text, turn.thought, [(call.tool, call.args, call.raw) for call in turn.calls])
        for turn in turns
    ]


def _text(message: Message, losses: Losses) -> str:
    if not isinstance(message.content, str):
        losses[PICTURES] += sum(isinstance(part, ImagePart) for part in message.content)
    return text_of(message.content)


def _call(action: Action, ids: set[str]) -> Call:
    name = action.call_id
    if not name or name in ids:
        name = next(fresh for fresh in _fresh(len(ids)) if fresh not in ids)
    ids.add(name)
    written = action.raw_args if action.raw_args is not None else json.dumps(action.args or {}, ensure_ascii=False)
    args = action.args if action.args is not None or action.raw_args is not None else {}
    # Some logs write no arguments as an empty text; templates and parsers expect an object.
    return Call(name, action.tool, args, written if written.strip() else "{}")


def _fresh(n: int) -> Iterator[str]:
    while True:
        yield f"call_{n}"
        n += 1


def _answered(call_id: str | None, waiting: list[tuple[Call, str | None]]) -> Call | None:
    """Remove and return the call that a result answers: by its id, else the first that waits."""
    for place, (call, named) in enumerate(waiting):
        if named == call_id:
            del waiting[place]
            return call
    if call_id is None and waiting:
        return waiting.pop(0)[0]
    return None
