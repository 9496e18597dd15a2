"""Measure what a judge pays for nothing: the same question about the run without the agent's words, asked twice.

A run gets no credit that its control gets too. The control's credit of a criterion is the smaller of its two values, and the
judge's noise is their difference: what one of two askings alone gives is noise, and takes nothing from a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from quintain.records.labels.judging import JudgeControl, JudgingMode, Rubric, Verdict
from quintain.records.trajectory import Actor, Step, Trajectory
from quintain.scoring.judges.answer_parsing import read_verdict
from quintain.scoring.judges.shown_run import ShownRun

ASKED = 2
"""Times that a control is asked about."""


@dataclass(frozen=True)
class Credit:
    """Mark of a judge for the control by one criterion."""

    value: float
    """In 0..1, the smaller of two values."""
    noise: float
    """Their difference."""


@dataclass(frozen=True)
class Control:
    """Marks of a judge for the run without the agent's words."""

    run: Mapping[str, Credit] = field(default_factory=dict)
    """Criterion -> credit of the whole run."""
    steps: Mapping[int, Mapping[str, Credit]] = field(default_factory=dict)
    """Step -> criterion -> credit."""
    of_task: bool = False
    """Whether one empty step represents every step."""
    failed: str | None = None
    """Why the control has no values."""

    def at(self, step: int) -> Mapping[str, Credit]:
        """Return the credit by criterion that is taken off a step."""
        return self.steps.get(0 if self.of_task else step, {})


def control_of(run: Trajectory, scope: JudgeControl) -> Trajectory:
    """Return the run without the agent's words.

    By the scope `task` that is the task with all that comes before the agent's first step, and one empty step, which is the same
    for every run of the task; by `run` every step of this run with its observations, without thoughts, messages and calls.
    """
    if scope == "task":
        opening = tuple(takewhile(lambda step: step.actor is not Actor.AGENT, run.steps))
        return run.model_copy(update={"steps": (*opening, Step(actor=Actor.AGENT))})
    blank = {"thought": None, "message": "", "actions": ()}
    steps = (step.model_copy(update=blank) if step.actor is Actor.AGENT else step for step in run.steps)
    return run.model_copy(update={"steps": tuple(steps)})


def read_control(
    answers: Sequence[str], rubric: Rubric, mode: JudgingMode, view: ShownRun, scope: JudgeControl
) -> Control:
    """Read the two answers about a control. Their quotes are not checked: what the judge wants to pay is measured."""
    read = [
        read_verdict(answer, rubric, view.n_steps, mode=mode, steps=view.steps, purpose="control") for answer in answers
    ]
    if failed := next((verdict.failed for verdict in read if verdict.failed), None):
        return Control(failed=failed)
    first, second = read
    names = [criterion.name for criterion in rubric.criteria]
    steps = {step: _credits(_of_step(first, step, names), _of_step(second, step, names)) for step in view.steps}
    return Control(
        run=_credits(first.scores, second.scores),
        steps=steps if mode == "steps" else {},
        of_task=scope == "task",
    )


def _of_step(verdict: Verdict, step: int, names: Sequence[str]) -> Mapping[str, float]:
    """The values of a step; a step with nothing to judge gets no credit."""
    return verdict.steps.get(step) or dict.fromkeys(names, 0.0)


def _credits(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, Credit]:
    return {
        name: Credit(min(value, second[name]), round(abs(value - second[name]), 12))
        for name, value in first.items()
        if name in second
    }
