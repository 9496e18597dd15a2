"""How good each step of a run was, for training a process reward model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from quintain.records.score import Score, StepScore
from quintain.records.trajectory import Actor, Step, Trajectory


class StepLabels(NamedTuple):
    """What is known of the agent's steps of a run, in order."""

    labels: tuple[float | None, ...]
    parts: tuple[dict[str, float] | None, ...] = ()
    """Part of the verdict on a step -> its value in 0..1; empty where no step has parts."""


def recorded_labels(run: Trajectory) -> tuple[float | None, ...]:
    """One label for each agent step, in order: its recorded reward; None where there is none or it may not be learned from."""
    return tuple(step.reward if _counts(step) else None for step in run.agent_steps)


def outcome_labels(run: Trajectory, value: float) -> tuple[float | None, ...]:
    """One label for each agent step, in order: the worth of the whole run, 1 for a success and 0 for a failure.

    The outcome traced back to every step is a weak label: good steps of failed runs are called bad.
    """
    return tuple(value if _counts(step) else None for step in run.agent_steps)


def score_labels(run: Trajectory, scores: Sequence[Score]) -> StepLabels:
    """What scorers said of each agent step: the mean over the raters, of each the newest score that speaks of steps.

    Args:
        run: The run.
        scores: Of this run, newest first.
    """
    newest: dict[str | None, Score] = {}
    for score in scores:
        if score.steps:
            newest.setdefault(score.rater, score)
    verdicts: defaultdict[int, list[StepScore]] = defaultdict(list)
    for score in newest.values():
        for verdict in score.steps:
            verdicts[verdict.step].append(verdict)
    labels, parts = list[float | None](), list[dict[str, float] | None]()
    for place, step in enumerate(run.agent_steps):
        given = verdicts[place] if _counts(step) else []
        values = [one.value for one in given if one.value is not None]
        labels.append(fmean(values) if values else None)
        names = dict.fromkeys(name for one in given for name in one.parts)
        parts.append({name: fmean(one.parts[name] for one in given if name in one.parts) for name in names} or None)
    return StepLabels(tuple(labels), tuple(parts) if any(parts) else ())


def reason_against(labels: tuple[float | None, ...]) -> str | None:
    """Why labels cannot be learned from; None: they can."""
    known = [label for label in labels if label is not None]
    if not known:
        return "no_step_labels"
    return None if all(0 <= label <= 1 for label in known) else "step_label_range"


def _counts(step: Step) -> bool:
    return step.actor is Actor.AGENT and step.train is not False and not step.copied_context
