"""Scores of stored runs by reward models and step models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from quintain.records.agent import Agent
from quintain.records.score import Component, Score
from quintain.records.trajectory import Trajectory
from quintain.trainers.reward_models import RewardModel, RunValue, UnreadableRun

_TOGETHER = 64
"""Runs that are read together, to share the prefixes of a task."""


def score_runs(
    agent: Agent, runs: Iterable[Trajectory], should_stop: Callable[[], bool] = lambda: False
) -> Iterator[Score]:
    """Score runs by a reward model or a step model, in their order; stop early on request.

    A reward model's value is sigma(r). It has learnt only the order of runs of one task and differences between their rewards, so a
    single value has no meaning until fit_calibration has related it to human labels. A step model's value is the mean over its steps:
    unlike the product or the minimum, it does not fall with the number of steps.

    Args:
        agent: Agent of role `reward_model` or `step_model`.
        runs: Runs to score; one that cannot be read is unscored, with the reason.
        should_stop: Called between batches.

    Raises:
        InvalidInput: The agent has no value head.
    """
    model, stream = RewardModel.of(agent), iter(runs)
    name = agent.id or agent.name
    while not should_stop() and (chunk := list(islice(stream, _TOGETHER))):
        for run, valued in zip(chunk, model.read(chunk), strict=True):
            yield _score(run.id or run.identity, name, valued, model.shares)


def _score(trajectory_id: str, name: str, valued: RunValue | UnreadableRun, shares: Mapping[str, float]) -> Score:
    if isinstance(valued, UnreadableRun):
        return Score(trajectory_id=trajectory_id, scorer=name, status="unscored", reason=valued.reason, rater=name)
    if valued.reward is not None:
        feedback = f"reward {valued.reward:+.3f}; only differences between runs of a task mean something"
    else:
        weakest = min(valued.steps, key=lambda step: step.value or 0.0)
        feedback = f"weakest is step {weakest.step} with {weakest.value:.2f}, of {len(valued.steps)}"
    return Score(
        trajectory_id=trajectory_id,
        scorer=name,
        status="scored",
        value=valued.value,
        components=tuple(
            Component(name=part, weight=shares[part], value=value) for part, value in valued.parts.items()
        ),
        feedback=feedback,
        steps=valued.steps,
        rater=name,
    )
