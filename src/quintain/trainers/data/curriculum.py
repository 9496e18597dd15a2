"""A curriculum: the first epochs show only the easiest examples, and a growing share of all (Bengio et al. 2009, ICML).

Everything here is arithmetic on numbers of examples, so the schedule can be sized for what really runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from quintain.errors import InvalidInput
from quintain.records.hyperparameters import CurriculumConfig


def difficulty(n_steps: int, reward: float | None) -> float:
    """Agent steps less reward: short, well-rewarded runs come first. An unknown reward counts as 0."""
    return n_steps - (reward or 0.0)


def epoch_share(epoch: int, start_ratio: float, warmup_epochs: int) -> float:
    """Share of the examples that epoch `epoch`, counted from 0, shows.

    It grows linearly from `start_ratio` in epoch 0 to 1 in epoch `warmup_epochs`, and stays there.
    """
    if epoch < 0 or not 0 < start_ratio <= 1 or warmup_epochs < 1:
        raise InvalidInput(
            f"epoch {epoch}, start_ratio {start_ratio} and warmup_epochs {warmup_epochs} make no curriculum; give an "
            "epoch from 0, a start_ratio above 0 and at most 1, and at least 1 warm-up epoch"
        )
    return min(1.0, start_ratio + (1 - start_ratio) * epoch / warmup_epochs)


def epoch_indices(difficulties: Sequence[float], share: float) -> list[int]:
    """The easiest `ceil(n * share)` of n examples, easiest first; equally easy ones keep their order.

    Args:
        difficulties: One number an example; larger is harder.
        share: From above 0 to 1.
    """
    if not 0 < share <= 1:
        raise InvalidInput(f"the share of an epoch is {share}; give a number above 0 and at most 1")
    if unknown := [i for i, d in enumerate(difficulties) if math.isnan(d)]:
        raise InvalidInput(f"the difficulty of example {unknown[0]} is not a number; count an unknown reward as 0")
    order = sorted(range(len(difficulties)), key=difficulties.__getitem__)
    return order[: _size(len(order), share)]


def epoch_sizes(n: int, epochs: float, config: CurriculumConfig | None) -> list[int]:
    """Examples of each whole epoch of `n`; a fractional last epoch is listed as if it ran to its end.

    Args:
        n: Examples that there are.
        epochs: Passes, above 0; 2.5 gives three sizes.
        config: Null: every epoch shows all.
    """
    if n < 0 or not 0 < epochs < math.inf:
        raise InvalidInput(f"{n} examples in {epochs} epochs cannot be planned; give 0 or more and a number above 0")
    shares = (
        1.0 if config is None else epoch_share(epoch, config.start_ratio, config.warmup_epochs)
        for epoch in range(math.ceil(epochs))
    )
    return [_size(n, share) for share in shares]


def epoch_steps(n: int, batch_size: int, epochs: float, config: CurriculumConfig | None) -> list[int]:
    """Optimizer steps of each epoch: the last batch of an epoch may be smaller and is a step all the same.

    A fractional last epoch takes its share of that epoch's steps, rounded up. The sum sizes the learning-rate schedule.
    """
    if batch_size < 1:
        raise InvalidInput(f"batch_size is {batch_size}; give at least 1")
    left = Fraction(str(epochs))  # decimal: 0.1 epochs of 30 steps are 3 steps, not ceil(3.0000000000000004)
    whole = [math.ceil(size / batch_size) for size in epoch_sizes(n, epochs, config)]
    return [math.ceil(min(left - epoch, Fraction(1)) * steps) for epoch, steps in enumerate(whole)]


def _size(n: int, share: float) -> int:
    return math.ceil(round(n * share, 9))  # rounded: 100 * 0.07 is 7.000000000000001
