"""Tests and intervals of a paired difference that stay valid however often and whenever they are looked at.

One pair of outcomes per task, in the order of play: d is the success of b minus that of a, each averaged over the repeats of the
task. With one repeat d is -1, 0 or 1, else a fraction.

- The e-value is the evidence against "no difference". The probability that it ever reaches 1 / level is at most the level (Ville
  1939), so a study may stop there.
- The confidence sequence contains the true mean of d at all times together with probability 1 - level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from quintain.evaluation.statistics.success_rates import Interval
from quintain.records.evaluation import SequentialDecision, SequentialTest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

LEVEL = 0.05
"""Probability of a false alarm at any time, and of an interval that ever misses the true difference."""

_TRUNCATION = 0.5
"""c of the bets: a bet never risks more than this share of the capital."""

_CANDIDATES = 1000
"""Candidate differences of the confidence sequence in 0..1, and as many below; its bounds are rounded outward to them."""


def paired_e_value(only_a: float, only_b: float) -> float:
    """Return the e-value of discordant tasks against an even split, B(a + 1/2, b + 1/2) / B(1/2, 1/2) * 2^(a + b).

    The likelihood ratio of a Beta(1/2, 1/2) mixture of the probability that a discordant task is won by b, against 1/2
    (Robbins 1970, Ann. Math. Statist. 41:1397-1409). 1 without discordant tasks. Infinity on overflow.

    Args:
        only_a: Tasks solved by a only.
        only_b: Tasks solved by b only.
    """
    log = (
        math.lgamma(only_a + 0.5)
        + math.lgamma(only_b + 0.5)
        - math.lgamma(only_a + only_b + 1)
        - math.log(math.pi)
        + (only_a + only_b) * math.log(2)
    )
    return math.exp(log) if log < 700 else math.inf


def log_capitals(outcomes: Array, means: Array) -> tuple[Array, Array]:
    """Return the log capitals of betting that the mean exceeds, and that it is below, each candidate.

    Hedged capital with predictable plug-in bets (Waudby-Smith & Ramdas 2024, JRSS B 86:1-27, eq. 26 and theorem 3):
    lambda_t = sqrt(2 log(2 / level) / (v_{t-1} t log(1 + t))), at most c / m upward and c / (1 - m) downward, where v is the
    variance of the outcomes so far with one imaginary outcome of mean and variance 1/2 and 1/4.

    Args:
        outcomes: Outcomes in 0..1, shape [..., time].
        means: Candidate means in (0, 1), shape [candidates].

    Returns:
        Two arrays of shape [..., time, candidates]. A candidate is rejected once half of one of its capitals reaches 1 / level.
    """
    import numpy as np

    t = np.arange(1, outcomes.shape[-1] + 1)
    mean = (0.5 + np.cumsum(outcomes, -1)) / (t + 1)
    variance = (0.25 + np.cumsum((outcomes - mean) ** 2, -1)) / (t + 1)
    before = np.concatenate([np.full_like(variance[..., :1], 0.25), variance[..., :-1]], -1)
    bets = np.sqrt(2 * math.log(2 / LEVEL) / (before * t * np.log1p(t)))[..., None]
    surplus = outcomes[..., None] - means
    up = np.cumsum(np.log1p(np.minimum(bets, _TRUNCATION / means) * surplus), -2)
    down = np.cumsum(np.log1p(-np.minimum(bets, _TRUNCATION / (1 - means)) * surplus), -2)
    return up, down


def confidence_sequence(differences: Sequence[float]) -> Interval:
    """Return the mean difference so far with its confidence sequence at this time, -1..1 without differences.

    The set of mean differences that the hedged capital has never rejected, intersected over time.

    Args:
        differences: Each in -1..1.
    """
    if not differences:
        return Interval(0.0, -1.0, 1.0)
    import numpy as np

    candidates = np.arange(1 - _CANDIDATES, _CANDIDATES) / _CANDIDATES
    up, down = log_capitals((np.asarray(differences) + 1) / 2, (candidates + 1) / 2)
    kept = np.maximum(up, down).max(0) < math.log(2 / LEVEL)
    mean = math.fsum(differences) / len(differences)
    if not kept.any():  # an event of probability below the level: the outcomes drifted
        return Interval(mean, mean, mean)
    first, last = np.flatnonzero(kept)[[0, -1]]
    low = -1.0 if first == 0 else float(candidates[first - 1])
    return Interval(mean, low, 1.0 if last == len(candidates) - 1 else float(candidates[last + 1]))


def capital_e_value(differences: Sequence[float]) -> float:
    """Return the e-value of fractional differences against a mean of 0: the mean of the two capitals at 0."""
    import numpy as np

    if not differences:
        return 1.0
    logs = log_capitals((np.asarray(differences, float) + 1) / 2, np.array([0.5]))
    return float(np.mean([np.exp(np.minimum(log[-1, 0], 700.0)) for log in logs]))


def sequential_test(differences: Sequence[float], planned: int, margin: float, *, is_binary: bool) -> SequentialTest:
    """Decide whether to stop after these tasks.

    - `difference`: the e-value has reached 1 / level.
    - `equivalent`: the confidence sequence is within -margin..margin, so a difference that matters is ruled out.
    - `hopeless`: even if the tasks left differ by the bound of the confidence sequence, in either direction, the e-value ends
      below 1 / level. Stopping there cannot cause a false alarm, since nothing is rejected.
    - `exhausted`: all planned tasks are played.

    Args:
        differences: b - a per task in the order of play, -1..1.
        planned: Tasks at most, at least `len(differences)`.
        margin: Smallest difference that matters.
        is_binary: Whether every task has one repeat. Fixed before the first outcome: the e-value of discordant tasks has more
            power, and that of the capital takes fractions.
    """
    found = confidence_sequence(differences)
    e_value = _e_value(differences, is_binary)
    left = planned - len(differences)
    decision: SequentialDecision = "undecided"
    if e_value >= 1 / LEVEL:
        decision = "difference"
    elif -margin < found.low and found.high < margin:
        decision = "equivalent"
    elif left == 0:
        decision = "exhausted"
    elif all(_projected(differences, left, bound, is_binary) < 1 / LEVEL for bound in (found.low, found.high)):
        decision = "hopeless"
    return SequentialTest(
        decision=decision,
        e_value=e_value,
        difference=found.value,
        ci_low=found.low,
        ci_high=found.high,
        n_tasks=len(differences),
        n_planned=planned,
    )


def _e_value(differences: Sequence[float], is_binary: bool) -> float:
    if is_binary:
        return paired_e_value(sum(d < 0 for d in differences), sum(d > 0 for d in differences))
    return capital_e_value(differences)


def _projected(differences: Sequence[float], left: int, bound: float, is_binary: bool) -> float:
    """Return the e-value at the end if the tasks left differ by `bound` on average, as often discordant as those before."""
    if not is_binary:
        return capital_e_value([*differences, *[bound] * left])
    only_a, only_b = sum(d < 0 for d in differences), sum(d > 0 for d in differences)
    discordant = max((only_a + only_b + 1) / (len(differences) + 1), abs(bound))
    return paired_e_value(only_a + left * (discordant - bound) / 2, only_b + left * (discordant + bound) / 2)
