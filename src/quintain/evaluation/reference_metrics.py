"""Metrics of a run relative to its task's references: tools, plan, steps, timing, forbidden calls."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from quintain.records.trajectory import OutcomeStatus, Trajectory
from quintain.scoring.rules.references import reference_steps, steps_taken, target_tools

SHARES = frozenset({"tool_selection_f1", "plan_success", "step_efficiency", "timing", "end_to_end"})
"""The metrics of `reference_metrics`, each in 0..1. Those of environments can have any range."""

_MAX_METRICS, _MAX_NAME_CHARS = 50, 100
"""Maximum number of metrics that an environment can return, and of characters in a name."""


def reference_metrics(run: Trajectory) -> dict[str, float]:
    """Return the metrics that the task's metadata supports, each in 0..1, higher is better. Empty without references.

    tool_selection_f1: F1 of the called tools and `target_tools`, as sets.
    plan_success: 1 if the called tools equal `plan`, in order.
    step_efficiency: `optimal_steps` (or `reference_steps`) divided by the steps taken, at most 1. Solved episodes only,
        because failing early is not efficient.
    timing: Share of calls that do not repeat an earlier call with the same result. Needs any reference.
    end_to_end: 1 if the episode is solved and every target tool was called.
    """
    metadata, status = run.task.metadata, run.outcome.status
    called = [action.tool for step in run.agent_steps for action in step.actions]
    found: dict[str, float] = {}
    targets, plan, optimal = target_tools(metadata), _names(metadata.get("plan")), reference_steps(metadata)[0]
    judged = status not in {OutcomeStatus.UNKNOWN, OutcomeStatus.ERROR}
    if targets:
        hits = len(set(called) & set(targets))
        found["tool_selection_f1"] = 2 * hits / (len(set(called)) + len(set(targets)))
        if judged:
            found["end_to_end"] = float(status is OutcomeStatus.SUCCESS and hits == len(set(targets)))
    if plan:
        found["plan_success"] = float(tuple(called) == plan)
    if optimal is not None and status is OutcomeStatus.SUCCESS:
        found["step_efficiency"] = min(1.0, optimal / max(steps_taken(run), 1))
    if called and (targets or plan or optimal is not None):
        found["timing"] = 1 - _count_repeated_calls(run) / len(called)
    return found


def forbidden_calls(run: Trajectory, also: Sequence[str] = ()) -> int | None:
    """Count calls of tools in the task's `forbidden` or in `also`. None if nothing is forbidden."""
    names = {*(_names(run.task.metadata.get("forbidden")) or ()), *also}
    if not names:
        return None
    return sum(action.tool in names for step in run.agent_steps for action in step.actions)


def read_metrics(info: Mapping[str, Any]) -> dict[str, float]:
    """Return the valid `metrics` of an environment's step info, without values that are not finite numbers."""
    metrics = info.get("metrics")
    if not isinstance(metrics, Mapping):
        return {}
    kept = {
        name: float(value)
        for name, value in metrics.items()
        if isinstance(name, str) and 0 < len(name) <= _MAX_NAME_CHARS
        if isinstance(value, int | float) and -1e308 < value < 1e308
    }
    return dict(list(kept.items())[:_MAX_METRICS])


def _names(value: Any) -> tuple[str, ...] | None:
    if isinstance(value, list | tuple) and value and all(isinstance(name, str) for name in value):
        return tuple(value)
    return None


def _count_repeated_calls(run: Trajectory) -> int:
    seen, repeated = set[tuple[str, str]](), 0
    for step in run.agent_steps:
        for action, result in step.calls_with_results:
            called = json.dumps([action.tool, action.args, action.raw_args], sort_keys=True, default=str)
            call = called, str(result and result.content)
            repeated += call in seen
            seen.add(call)
    return repeated
