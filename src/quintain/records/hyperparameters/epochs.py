"""Optimizer steps of a training's epochs: those that a plan counts and those that really run.

An epoch of a curriculum (Bengio et al. 2009, ICML) over half of the examples has half of the steps.
"""

from __future__ import annotations

import math
from fractions import Fraction

from quintain.records.hyperparameters.methods import CurriculumConfig, MethodConfig, OnlineConfig, SFTConfig


def epoch_size(n: int, epoch: int, config: CurriculumConfig | None) -> int:
    """Return how many of n examples an epoch shows, counted from 0; without a curriculum all.

    Their share grows linearly from `start_ratio` in epoch 0 to 1 in epoch `warmup_epochs`, and stays there.
    """
    if config is None:
        return n
    share = min(1.0, config.start_ratio + (1 - config.start_ratio) * epoch / config.warmup_epochs)
    return math.ceil(round(n * share, 9))  # rounded: 100 * 0.07 is 7.000000000000001


def epoch_steps(n: int, batch_size: int, epochs: float, config: CurriculumConfig | None) -> list[int]:
    """Return the optimizer steps of each epoch; the last batch of an epoch may be smaller.

    A fractional last epoch has its share of that epoch's steps, rounded up. The sum is the length of the learning-rate schedule.
    """
    left = Fraction(str(epochs))  # decimal: 0.1 epochs of 30 steps are 3 steps, not ceil(3.0000000000000004)
    whole = [math.ceil(epoch_size(n, epoch, config) / batch_size) for epoch in range(math.ceil(epochs))]
    return [math.ceil(min(left - epoch, Fraction(1)) * steps) for epoch, steps in enumerate(whole)]


def optimizer_steps(config: MethodConfig, rows: int, *, acts: bool) -> int:
    """Return the optimizer steps of a training on `rows` rows, or in an environment, as known before the data is rendered."""
    if acts and isinstance(config, OnlineConfig):
        steps = config.rollouts * config.updates_per_rollout
    else:
        curriculum = None
        if isinstance(config, SFTConfig):
            curriculum = config.curriculum
            rows = rows if config.coreset is None else min(rows, config.coreset.size)
        steps = sum(epoch_steps(rows, config.batch_size, config.epochs, curriculum))
    return min(steps, config.max_steps or steps)
