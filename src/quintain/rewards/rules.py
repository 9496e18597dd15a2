"""The scorer `rules`: did the agent write calls that can be carried out, without repeating itself, without errors?

It knows nothing of the task and needs no outcome. Three components, each in 0..1, higher is better:

    format      = steps whose calls are all readable / agent steps that had to call
    repetition  = 1 - calls equal to the call before / (calls - 1)
    errors      = 1 - observations that are errors / observations

The value is the mean of the components that apply; a component with nothing to look at is left out, not set to 0 or 1.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from quintain.records.score import Component, Score
from quintain.records.trajectory import Action, Actor, Step, Trajectory, text_of


class RulesScorer:
    """Format compliance, repetition and errors; see the module's text for the formulas."""

    name = "rules"

    def score(self, trajectory: Trajectory) -> Score:
        """The mean of the components that apply; unscored where the run made no calls and none were due."""
        run = trajectory.identified().id or ""
        parts = (_format(trajectory), _repetition(trajectory), _errors(trajectory))
        values = [part.value for part in parts if part.value is not None]
        if not values:
            reason = "the run holds no tool calls, no observations and no step that had to call a tool"
            return Score(trajectory_id=run, scorer=self.name, status="unscored", reason=reason, components=parts)
        value = sum(values) / len(values)
        worst = min((part for part in parts if part.value is not None), key=lambda part: part.value or 0.0)
        return Score(
            trajectory_id=run,
            scorer=self.name,
            status="scored",
            value=value,
            components=parts,
            feedback=f"Weakest: {worst.name}. {worst.feedback}",
        )


def _component(name: str, value: float | None, feedback: str) -> Component:
    return Component(name=name, weight=1.0, value=value, feedback=feedback)


def _format(trajectory: Trajectory) -> Component:
    known = {_tool_name(tool) for tool in trajectory.tools}
    steps = list(trajectory.agent_steps)
    # The run's last word may be an answer in plain text; any other step without a call is one that failed to call.
    if _ends_with_an_answer(trajectory):
        steps.pop()
    if not known and not any(step.actions for step in steps):
        return _component("format", None, "No tools and no calls: nothing to check.")
    if not steps:
        return _component("format", None, "The agent answered at once: no step had to call a tool.")
    faults = [fault for step in steps if (fault := _fault(step, known))]
    first = f"; the first: {faults[0]}" if faults else ""
    names = "" if known else " (tool names unchecked: the run lists no tools)"
    good = len(steps) - len(faults)
    return _component("format", good / len(steps), f"{good} of {len(steps)} steps wrote readable calls{names}{first}.")


def _tool_name(tool: dict[str, Any]) -> str | None:
    function = tool.get("function", tool)
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else None


def _ends_with_an_answer(trajectory: Trajectory) -> bool:
    last = trajectory.steps[-1]
    return last.actor is Actor.AGENT and not last.actions and bool(text_of(last.message).strip())


def _fault(step: Step, known: set[str | None]) -> str | None:
    if not step.actions:
        return "a step without a readable call"
    for action in step.actions:
        if known and action.tool not in known:
            return f"unknown tool {action.tool[:60]!r}"
        if action.args is None:
            return f"arguments of {action.tool[:60]!r} that are not valid JSON"
    return None


def _repetition(trajectory: Trajectory) -> Component:
    calls = [_key(action) for step in trajectory.agent_steps for action in step.actions]
    if not calls:
        return _component("repetition", None, "No calls: nothing to repeat.")
    repeats = sum(before == after for before, after in pairwise(calls))
    value = 1.0 - repeats / (len(calls) - 1) if len(calls) > 1 else 1.0
    return _component("repetition", value, f"{repeats} of {len(calls)} calls repeat the call just before.")


def _key(action: Action) -> tuple[str, str]:
    args = action.raw_args or "" if action.args is None else json.dumps(action.args, sort_keys=True)
    return action.tool, args


def _errors(trajectory: Trajectory) -> Component:
    seen = [observation for step in trajectory.agent_steps for observation in step.observations]
    if not seen:
        return _component("errors", None, "No observations: no errors to count.")
    errors = sum(observation.is_error for observation in seen)
    return _component("errors", 1.0 - errors / len(seen), f"{errors} of {len(seen)} observations are errors.")
