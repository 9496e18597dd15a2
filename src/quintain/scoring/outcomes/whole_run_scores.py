"""Shorthands for scores of whole runs."""

from __future__ import annotations

from collections.abc import Sequence

from quintain.records.score import CheckResult, Component, Score, StepScore
from quintain.records.trajectory import Trajectory


def scored(
    run: Trajectory,
    scorer: str,
    value: float,
    feedback: str = "",
    components: Sequence[Component] = (),
    steps: Sequence[StepScore] = (),
) -> Score:
    """Return a score with a value in 0..1, higher is better."""
    return Score(
        trajectory_id=run.identified().id or "",
        scorer=scorer,
        status="scored",
        value=value,
        components=tuple(components) or (Component(name=scorer, weight=1.0, value=value),),
        steps=tuple(steps),
        feedback=feedback,
    )


def unscored(
    run: Trajectory,
    scorer: str,
    reason: str,
    components: Sequence[Component] = (),
    steps: Sequence[StepScore] = (),
) -> Score:
    """Return a score without a value, with the reason."""
    return Score(
        trajectory_id=run.identified().id or "",
        scorer=scorer,
        status="unscored",
        reason=reason,
        components=tuple(components),
        steps=tuple(steps),
    )


def score_of_check(run: Trajectory, scorer: str, checked: CheckResult) -> Score:
    """Return the result of a check of the run's answer as a score."""
    if checked.value is None:
        return unscored(run, scorer, checked.reason)
    return scored(run, scorer, checked.value, checked.reason)
