"""Examples and learning rate of each optimizer step.

Both are functions of step and seed alone, so that a run can resume at any step.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Protocol

from quintain.records.hyperparameters.epochs import epoch_size, epoch_steps
from quintain.records.hyperparameters.methods import CurriculumConfig, TrainingConfig
from quintain.trainers.data.streams import Example


def epoch_indices(difficulties: Sequence[float], epoch: int, config: CurriculumConfig) -> list[int]:
    """Return the easiest examples, which an epoch shows, easiest first; ties keep their order."""
    order = sorted(range(len(difficulties)), key=difficulties.__getitem__)
    return order[: epoch_size(len(order), epoch, config)]


class ExampleSource(Protocol):
    """Source of the loop's examples."""

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the whole run."""

    def step(self, step: int) -> Sequence[Example]:
        """Return the examples of a step, counted from 0; with none, the step counts but changes nothing."""

    def played(self) -> Sequence[Example]:
        """Return the examples of the whole rollout that the latest step used or used a part of; none on a dataset."""

    def ends_epoch(self, step: int) -> bool:
        """Whether `step`, counted from 0, is the last of an epoch or of the run; validation follows."""

    def metrics(self) -> dict[str, float | None]:
        """Return the source's figures of the latest step."""

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint: tensors, numbers and strings."""

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the state of a checkpoint."""


class EpochSource:
    """`ExampleSource` over a dataset: each example once an epoch, in an order seeded by (seed, epoch).

    The last step of an epoch may have fewer examples.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        config: TrainingConfig,
        seed: int,
        curriculum: tuple[CurriculumConfig, Sequence[float]] | None = None,
        figures_of: Callable[[Sequence[str]], dict[str, float | None]] = lambda keys: {},
    ) -> None:
        self._figures_of, self._keys = figures_of, list[str]()
        self._examples, self._batch_size, self._seed = examples, config.batch_size, seed
        self._curriculum = curriculum
        shape = curriculum[0] if curriculum else None
        self._ends = list(accumulate(epoch_steps(len(examples), config.batch_size, config.epochs, shape)))
        total = self._ends[-1]
        self.total_steps = min(total, config.max_steps) if config.max_steps else total

    def step(self, step: int) -> list[Example]:
        """Return the examples of a step."""
        epoch = bisect_right(self._ends, step)
        place = step - (self._ends[epoch - 1] if epoch else 0)
        order = self._members(epoch)
        random.Random(f"order/{self._seed}/{epoch}").shuffle(order)
        chosen = order[place * self._batch_size : (place + 1) * self._batch_size]
        self._keys = [self._examples[i].key for i in chosen]
        return [self._examples[i] for i in chosen]

    def ends_epoch(self, step: int) -> bool:
        """Whether it is the last step of an epoch or of the run."""
        return step + 1 in self._ends or step + 1 == self.total_steps

    def played(self) -> Sequence[Example]:
        """Return no examples, since they are those of a dataset."""
        return ()

    def metrics(self) -> dict[str, float | None]:
        """Return the figures of the latest step's examples."""
        return self._figures_of(self._keys)

    def state(self) -> dict[str, Any]:
        """Return an empty state: the step determines everything."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Do nothing."""

    def _members(self, epoch: int) -> list[int]:
        if self._curriculum is None:
            return list(range(len(self._examples)))
        config, difficulties = self._curriculum
        return epoch_indices(difficulties, epoch, config)


_TIMESCALE = 10_000
"""Steps in which the inverse square root of a run without warm-up falls by the root of two."""


def learning_rate(step: int, total: int, config: TrainingConfig) -> float:
    """Return the learning rate of a step, counted from 0: linear warm-up, then the schedule, above 0 up to the last step."""
    peak, warmup = config.learning_rate, config.warmup_steps
    warmup = math.ceil(config.warmup_ratio * total) if warmup is None else min(warmup, total)
    if peak is None:
        raise ValueError("expected a learning rate, got None; resolve it with records.learning_rates.default_rate")
    is_stable, floor = config.schedule == "warmup_stable_decay", config.min_rate_ratio
    if step < warmup:
        return peak * above_floor((step + 1) / warmup, floor) if is_stable else peak * (step + 1) / warmup
    if config.schedule == "constant":
        return peak
    if config.schedule == "inverse_sqrt":
        return peak * inverse_sqrt(step, warmup)
    return peak * above_floor(_decay(step - warmup, total - warmup, total, config), floor)


def _decay(step: int, steps: int, total: int, config: TrainingConfig) -> float:
    """Return a decay from 1 to 0 after the warm-up, as transformers' schedules of these names.

    Args:
        step: Step after the warm-up, counted from 0.
        steps: Number of these.
        total: Number of steps with those of the warm-up.
        config: Schedule and shape.
    """
    shape: str = config.schedule
    if config.schedule == "warmup_stable_decay":
        decaying = min(config.decay_steps or math.ceil(total / 10), steps)
        step, steps, shape = step - steps + decaying, decaying, config.decay_shape
    done = max(step, 0) / max(steps, 1) * config.cycles % 1
    if shape == "cosine":
        return (1 + math.cos(math.pi * done)) / 2
    return 1 - (math.sqrt(done) if shape == "1-sqrt" else done)


def above_floor(decay: float, floor: float) -> float:
    """Return a decay from 1 to 0 as one from 1 to a floor (`cosine_with_min_lr` of transformers)."""
    return floor + (1 - floor) * decay


def inverse_sqrt(step: int, warmup: int) -> float:
    """Return sqrt(t / (t + s)), for s steps after the warm-up of t (`inverse_sqrt` of transformers)."""
    timescale = warmup or _TIMESCALE
    return math.sqrt(timescale / (step - warmup + timescale))
