"""Values of reward models and step models for runs and steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import torch

from quintain.errors import InvalidInput
from quintain.records.agent import Agent
from quintain.records.score import Component, Score, StepScore
from quintain.records.trajectory import Trajectory
from quintain.trainers.data.streams import Example, TokenRow, rows_of
from quintain.trainers.data.value_positions import Reading, read_run, read_steps
from quintain.trainers.engine.forward import Engine
from quintain.trainers.engine.packing import micro_batches
from quintain.trainers.models.loading import eval_mode, load_model, stored_heads
from quintain.trainers.models.value_head import ValueHead, head_of
from quintain.trainers.rendering.renderer import Renderer

_BATCH_TOKENS = 8192

_WHY_NOT = {
    "nothing_written": "the agent wrote nothing in this run",
    "too_long": "the run is longer than the {limit} tokens that {agent} reads, and its end would be missing",
    "template_refused": "the chat template of {agent} refuses the messages of this run",
}


class UnreadableRun(NamedTuple):
    """A run that could not be valued."""

    reason: str


class RunValue(NamedTuple):
    """Values of a run."""

    value: float
    """0..1: sigma(r) of a reward model, the mean over the steps of a step model."""
    reward: float | None
    """r, of a reward model."""
    steps: tuple[StepScore, ...]
    """Of a step model: the head `value`, or the mean of all heads if there is none of that name, and the further heads."""
    parts: dict[str, float]
    """Of a reward model with parts: 0..1, sigma of each."""
    states: torch.Tensor
    """float [n, h], what the head read: one row, or one for each of `steps`."""


@dataclass(frozen=True)
class RewardModel:
    """A loaded reward model or step model."""

    agent: Agent
    engine: Engine
    renderer: Renderer
    head: ValueHead
    max_length: int

    @staticmethod
    def of(agent: Agent) -> RewardModel:
        """Load an agent that values runs.

        Raises:
            InvalidInput: It has no value head, or its files are damaged.
            NotFound: Its files are missing.
        """
        heads = stored_heads(agent.model)
        if not heads:
            raise InvalidInput(
                f"expected an agent with a value head, got {agent.id_or_name} without; name one that "
                "was trained by method 'reward' or 'prm'",
                code="not_a_reward_model",
            )
        loaded = load_model(agent.model, heads=heads)
        head = head_of(loaded.model)
        assert head is not None
        renderer = Renderer.of(loaded.tokenizer, agent.template)
        return RewardModel(agent, Engine.of(loaded.model), renderer, head, loaded.context_tokens)

    @property
    def values_steps(self) -> bool:
        """Whether it values single steps."""
        return self.agent.role == "step_model"

    @property
    def shares(self) -> dict[str, float]:
        """Share of each part in the reward of a model with parts; empty of others."""
        if not self.head.is_mixed:
            return {}
        weights = self.head.mix_weights.detach()
        return dict(zip(self.head.names[1:], (weights / weights.sum()).tolist(), strict=True))

    @torch.no_grad()
    def read(self, runs: Sequence[Trajectory]) -> list[RunValue | UnreadableRun]:
        """Return the values of each run; runs are read together and share prefixes."""
        readings = [self._reading(run) for run in runs]
        examples = [
            Example(reading.rows, (0,) * len(reading.rows)) for reading in readings if isinstance(reading, Reading)
        ]
        states: dict[TokenRow, torch.Tensor] = {}
        with eval_mode(self.engine.model):
            for batch in micro_batches(examples, _BATCH_TOKENS, share=self.engine.shares):
                rows = rows_of(batch)
                states |= zip(rows, self.engine.states(rows).split([row.n_supervised for row in rows]), strict=True)
            return [
                reading
                if isinstance(reading, UnreadableRun)
                else self._valued(run, reading, torch.cat([states[row] for row in reading.rows]))
                for run, reading in zip(runs, readings, strict=True)
            ]

    def _reading(self, run: Trajectory) -> Reading | UnreadableRun:
        try:
            reading = (read_steps if self.values_steps else read_run)(self.renderer, run, self.max_length)
        except InvalidInput as error:
            return UnreadableRun(error.message)
        if reading.dropped:
            why = _WHY_NOT[reading.dropped]
            return UnreadableRun(why.format(limit=self.max_length, agent=self.agent.id_or_name))
        return reading

    def _valued(self, run: Trajectory, reading: Reading, states: torch.Tensor) -> RunValue | UnreadableRun:
        numbers = self.head(states).double()
        if not bool(torch.isfinite(numbers).all()):
            return UnreadableRun("the model's values are not finite; its weights are damaged")
        if not self.values_steps:
            value, *parts = torch.sigmoid(numbers[0]).tolist()
            by_name = dict(zip(self.head.names[1:], parts, strict=True))
            return RunValue(value, float(numbers[0, 0]), (), by_name, states)
        of_place = {place: n for n, place in enumerate(run.agent_places)}
        places = [int(row.step_index[place]) for row in reading.rows for place in row.places]
        heads = [dict(zip(self.head.names, chances, strict=True)) for chances in torch.sigmoid(numbers).tolist()]
        values = [by_head.get("value", sum(by_head.values()) / len(by_head)) for by_head in heads]
        steps = tuple(
            StepScore(step=of_place[place], value=value, parts={n: v for n, v in by_head.items() if n != "value"})
            for place, value, by_head in zip(places, values, heads, strict=True)
        )
        return RunValue(sum(values) / len(values), None, steps, {}, states)


_TOGETHER = 64
"""Runs that are read together, to share the prefixes of a task."""


def score_runs(
    agent: Agent, runs: Iterable[Trajectory], should_stop: Callable[[], bool] = lambda: False
) -> Iterator[Score]:
    """Score runs by a reward model or a step model, in their order; stop early on request.

    A reward model's value is sigma(r). It has learnt only the order of runs of one task and differences between their rewards, so a
    single value has no meaning until fit_calibration has related it to human labels. A step model's value is the mean over its steps:
    unlike the product or the minimum, it does not fall with the number of steps.

    Raises:
        InvalidInput: The agent has no value head.
    """
    model, stream = RewardModel.of(agent), iter(runs)
    name = agent.id_or_name
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
