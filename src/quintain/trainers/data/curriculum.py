"""Curriculum learning: epochs start with the easiest examples and grow to all of them (Bengio et al. 2009, ICML).

The functions compute numbers of examples, so that the learning-rate schedule fits the steps that really run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from quintain.errors import InvalidInput
from quintain.records.hyperparameters import CurriculumConfig


def difficulty(n_steps: int, reward: float | None) -> float:
    """Return agent steps minus reward: short, well-rewarded runs come first. An unknown reward counts as 0."""
    return n_steps - (reward or 0.0)


def epoch_share(epoch: int, start_ratio: float, warmup_epochs: int) -> float:
    """Return the share of the examples in an epoch, counted from 0.

    It grows linearly from `start_ratio` in epoch 0 to 1 in epoch `warmup_epochs`, and stays there.
    """
    if epoch < 0 or not 0 < start_ratio <= 1 or warmup_epochs < 1:
        raise InvalidInput(
            "expected an epoch from 0, a start_ratio above 0 and at most 1, and at least 1 warm-up epoch; got epoch "
            f"{epoch}, start_ratio {start_ratio} and warmup_epochs {warmup_epochs}"
        )
    return min(1.0, start_ratio + (1 - start_ratio) * epoch / warmup_epochs)


def epoch_indices(difficulties: Sequence[float], share: float) -> list[int]:
    """Return the easiest `ceil(n * share)` of n examples, easiest first; ties keep their order.

    Args:
        difficulties: One number an example; larger is harder.
        share: From above 0 to 1.
    """
    if not 0 < share <= 1:
        raise InvalidInput(f"expected a share above 0 and at most 1, got {share}")
    if unknown := [i for i, d in enumerate(difficulties) if math.isnan(d)]:
        raise InvalidInput(
            f"expected a number as difficulty of example {unknown[0]}, got NaN; count an unknown reward as 0"
        )
    order = sorted(range(len(difficulties)), key=difficulties.__getitem__)
    return order[: _size(len(order), share)]


def epoch_sizes(n: int, epochs: float, config: CurriculumConfig | None) -> list[int]:
    """Return the number of examples of each epoch; a fractional last epoch counts as a whole one.

    Args:
        n: Number of examples.
        epochs: Passes, above 0; 2.5 gives three sizes.
        config: Null: every epoch shows all.
    """
    if n < 0 or not 0 < epochs < math.inf:
        raise InvalidInput(f"expected 0 or more examples and more than 0 epochs, got {n} and {epochs}")
    shares = (
        1.0 if config is None else epoch_share(epoch, config.start_ratio, config.warmup_epochs)
        for epoch in range(math.ceil(epochs))
    )
    return [_size(n, share) for share in shares]


def epoch_steps(n: int, batch_size: int, epochs: float, config: CurriculumConfig | None) -> list[int]:
    """Return the optimizer steps of each epoch; the last batch of an epoch may be smaller.

    A fractional last epoch has its share of that epoch's steps, rounded up. The sum is the length of the learning-rate schedule.
    """
    if batch_size < 1:
        raise InvalidInput(f"expected a batch_size of at least 1, got {batch_size}")
    left = Fraction(str(epochs))  # decimal: 0.1 epochs of 30 steps are 3 steps, not ceil(3.0000000000000004)
    whole = [math.ceil(size / batch_size) for size in epoch_sizes(n, epochs, config)]
    return [math.ceil(min(left - epoch, Fraction(1)) * steps) for epoch, steps in enumerate(whole)]


def _size(n: int, share: float) -> int:
    return math.ceil(round(n * share, 9))  # rounded: 100 * 0.07 is 7.000000000000001
