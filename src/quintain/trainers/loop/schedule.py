"""What each optimizer step does: which examples it sees, and at what learning rate.

Both are functions of the step alone (and of the seed), so a run can go on from any step, and the schedule is as long as
what really runs: an epoch of a curriculum that shows half of the examples counts for half of the steps.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Protocol

from quintain.records.hyperparameters import CurriculumConfig, TrainingConfig
from quintain.trainers.data.curriculum import epoch_indices, epoch_share, epoch_steps
from quintain.trainers.data.streams import Example


class ExampleSource(Protocol):
    """Where the loop takes its examples from."""

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the whole run."""

    def step(self, step: int) -> Sequence[Example]:
        """The examples of optimizer step `step`, counted from 0; none: the step changes nothing and is counted."""

    def ends_epoch(self, step: int) -> bool:
        """Is `step`, counted from 0, the last of an epoch or of the run? Then it is time to validate."""

    def metrics(self) -> dict[str, float | None]:
        """Figures of the source that belong to the newest step."""

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold for the source to go on: tensors, numbers and strings."""

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint's state."""


class EpochSource:
    """`ExampleSource` over a dataset: every example of an epoch once, in an order made of (seed, epoch).

    The last step of an epoch may hold fewer examples and is not dropped.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        config: TrainingConfig,
        seed: int,
        curriculum: tuple[CurriculumConfig, Sequence[float]] | None = None,
        figures_of: Callable[[Sequence[str]], dict[str, float | None]] = lambda keys: {},
    ) -> None:
        """Plan the run.

        Args:
            examples: What to learn from.
            config: Batch size, epochs and the bound of the steps.
            seed: Of the order.
            curriculum: How the share of the examples grows, and the difficulty of each example.
            figures_of: Figures of the examples of these keys.
        """
        self._figures_of, self._keys = figures_of, list[str]()
        self._examples, self._batch_size, self._seed = examples, config.batch_size, seed
        self._curriculum = curriculum
        shape = curriculum[0] if curriculum else None
        self._ends = list(accumulate(epoch_steps(len(examples), config.batch_size, config.epochs, shape)))
        total = self._ends[-1]
        self.total_steps = min(total, config.max_steps) if config.max_steps else total

    def step(self, step: int) -> list[Example]:
        """The examples of a step."""
        epoch = bisect_right(self._ends, step)
        place = step - (self._ends[epoch - 1] if epoch else 0)
        order = self._members(epoch)
        random.Random(f"order/{self._seed}/{epoch}").shuffle(order)
        chosen = order[place * self._batch_size : (place + 1) * self._batch_size]
        self._keys = [self._examples[i].key for i in chosen]
        return [self._examples[i] for i in chosen]

    def ends_epoch(self, step: int) -> bool:
        """Is it the last step of an epoch or of the run?"""
        return step + 1 in self._ends or step + 1 == self.total_steps

    def metrics(self) -> dict[str, float | None]:
        """What is told of the step's examples."""
        return self._figures_of(self._keys)

    def state(self) -> dict[str, Any]:
        """Nothing: the step says it all."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Nothing to do."""

    def _members(self, epoch: int) -> list[int]:
        if self._curriculum is None:
            return list(range(len(self._examples)))
        config, difficulties = self._curriculum
        return epoch_indices(difficulties, epoch_share(epoch, config.start_ratio, config.warmup_epochs))


def learning_rate(step: int, total: int, config: TrainingConfig) -> float:
    """Learning rate of optimizer step `step`, counted from 0: a linear rise, then the schedule, above 0 to the end."""
    warmup = math.ceil(config.warmup_ratio * total)
    if step < warmup:
        return config.learning_rate * (step + 1) / warmup
    done = (step - warmup) / max(total - warmup, 1)
    decay = {"cosine": (1 + math.cos(math.pi * done)) / 2, "linear": 1 - done, "constant": 1.0}
    return config.learning_rate * decay[config.schedule]
