"""Convert runs to plain text of `Thought`, `Action` and `Observation` steps."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from quintain.errors import InvalidInput
from quintain.exporters.chat_turns import Losses, Turn, prompt_turn_count, turns_of
from quintain.importers.harnesses.knowlyr_text import WrittenStep, parse_steps
from quintain.records.dataset import StepLabelRow

_ROUNDED = "labels between 0 and 1 are rounded to false or true, 0.5 to true"
_JOINED = "steps without a label are joined to the next labelled step"
_UNLABELLED = "steps after the last label are left out"
_TEXT_IN_THOUGHT = "the text of a turn is part of its Thought"
_PARALLEL = "calls of one turn become consecutive steps"
_BREAKS = "a turn or a result contains the marks of this format"


class _Step(NamedTuple):
    thought: str
    action: str
    observation: str | None


def judged_steps(row: StepLabelRow, losses: Losses) -> dict[str, Any]:
    """Build TRL's stepwise row: prompt, completions, labels.

    The label of a completion is learned at its end, so a completion contains the result before its step and earlier
    steps without a label.
    """
    turns = turns_of(row.trajectory, losses)
    n = prompt_turn_count(turns)
    labels = {id(step): label for step, label in zip(row.trajectory.agent_steps, row.labels, strict=True)}
    texts: list[str] = []
    known: list[bool] = []
    pending: list[str] = []
    for turn in turns[n:]:
        pending.append(_plain(turn))
        label = labels.get(id(turn.step))
        if label is not None:
            losses[_ROUNDED] += label not in {0, 1}
            texts.append("\n".join(pending))
            known.append(label >= 0.5)
            pending = []
        else:
            losses[_JOINED] += turn.step is not None
    losses[_UNLABELLED] += bool(pending)
    if not texts:
        raise InvalidInput("no step has a label")
    prompt = "\n\n".join(turn.text for turn in turns[:n])
    if not prompt:
        raise InvalidInput("the task has no prompt")
    return {"prompt": prompt, "completions": texts, "labels": known}


def flat_text(turns: Sequence[Turn], losses: Losses) -> tuple[str, int]:
    """Return knowlyr's text of the agent's steps and their number.

    Raises:
        InvalidInput: somebody else speaks in between, or the text could not be read back.
    """
    steps = [step for turn in _with_results(turns) for step in _steps(*turn, losses)]
    text = "\n\n".join(_written(number, step) for number, step in enumerate(steps, 1))
    if [_read(step) for step in parse_steps(text, len(steps))] != steps:
        raise InvalidInput(_BREAKS)
    return text, len(steps)


def _with_results(turns: Sequence[Turn]) -> Iterator[tuple[Turn, dict[str, str]]]:
    """Yield each agent turn with the results of its calls by id."""
    agent_turn: Turn | None = None
    results: dict[str, str] = {}
    for turn in turns:
        if turn.role == "tool" and turn.answered is not None:
            results[turn.answered.id] = turn.text
        elif turn.role == "assistant":
            if agent_turn is not None:
                yield agent_turn, results
            agent_turn, results = turn, {}
        else:
            raise InvalidInput("a user or system message inside the run is not supported")
    if agent_turn is not None:
        yield agent_turn, results


def _steps(turn: Turn, results: dict[str, str], losses: Losses) -> Iterator[_Step]:
    losses[_TEXT_IN_THOUGHT] += bool(turn.text)
    losses[_PARALLEL] += len(turn.calls) > 1
    thought = "\n\n".join(part.strip() for part in (turn.thought, turn.text) if part.strip())
    if not turn.calls:
        yield _Step(thought, "", None)
    for call in turn.calls:
        written = json.dumps(call.arguments(), ensure_ascii=False)
        yield _Step(thought, f"{call.tool}({written})", results.get(call.id))
        thought = ""


def _read(step: WrittenStep) -> _Step:
    return _Step(step.thought, f"{step.tool}({step.arguments})" if step.tool else step.message, step.observation)


def _written(number: int, step: _Step) -> str:
    lines = [f"Step {number}:", f"Thought: {step.thought}"]
    if step.action:
        lines.append(f"Action: {step.action}")
    if step.observation is not None:
        lines.append(f"Observation: {step.observation}")
    return "\n".join(lines)


def _plain(turn: Turn) -> str:
    if turn.role == "tool":
        return f"Observation: {turn.text}"
    if turn.role != "assistant":
        return f"{turn.role.capitalize()}: {turn.text}"
    calls = [f"Action: {call.tool} {call.raw}" for call in turn.calls]
    return "\n".join(part for part in (turn.thought, turn.text, *calls) if part)
