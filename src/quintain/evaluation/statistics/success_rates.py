"""Intervals and tests for success rates on shared tasks; scipy and numpy are loaded when a test is first asked for.

Nothing here knows of evaluations: counts and differences in, numbers out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from quintain.records.evaluation import Estimate, Rate

Z = 1.959963984540054
"""The 97.5 % quantile of the standard normal distribution: every interval here is a 95 % interval."""


class Interval(NamedTuple):
    """An estimate and its 95 % confidence interval."""

    value: float
    low: float
    high: float


def clopper_pearson(successes: int, n: int) -> Rate:
    """A success rate with its exact interval (Clopper & Pearson 1934, Biometrika 26:404-413); nulls where n is 0.

    It holds the true rate with at least 95 % at every rate and n. Wilson's interval, which is shorter, does so on average
    only: near rates of 0.02 its coverage falls below 84 %.
    """
    if n == 0:
        return Rate(successes=0, n=0, value=None, ci_low=None, ci_high=None)
    low, high = _exact_bounds(successes, n)
    return Rate(successes=successes, n=n, value=successes / n, ci_low=low, ci_high=high)


def rate_over_tasks(counts: Sequence[tuple[int, int]]) -> Rate:
    """The success rate of repeated tasks, with an interval for tasks as the unit (Korn & Graubard 1998).

    Repeats of a task are not independent: the exact interval is that of the effective number of episodes, p (1 - p) over
    the variance of the rate between tasks, lowered for few tasks. With one repeat it is `clopper_pearson`.
    Korn & Graubard 1998, Survey Methodology 24:193-201.

    Args:
        counts: (successes, episodes with a verdict) of each task.
    """
    kept = [(x, size) for x, size in counts if size]
    successes, n, m = sum(x for x, _ in kept), sum(size for _, size in kept), len(kept)
    if n == m:
        return clopper_pearson(successes, n)
    p = successes / n
    variance = m / (m - 1) * math.fsum((x - p * size) ** 2 for x, size in kept) / n**2 if m > 1 else 0.0
    low, high = _clustered_bounds(p, variance, m, n)
    return Rate(successes=successes, n=n, value=p, ci_low=low, ci_high=high)


def mean_share(shares: Sequence[float], episodes: int) -> Interval:
    """The mean of shares in 0..1, one a task, with the interval of `rate_over_tasks`.

    Args:
        shares: At least one.
        episodes: From which they were counted; as many independent ones is the most that they can be worth.
    """
    m = len(shares)
    p = min(max(math.fsum(shares) / m, 0.0), 1.0)
    variance = math.fsum((share - p) ** 2 for share in shares) / (m - 1) / m if m > 1 else 0.0
    return Interval(p, *_clustered_bounds(p, variance, m, episodes))


def mean_over_tasks(values: Sequence[float]) -> Estimate:
    """The mean of one number a task, with its t interval."""
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return Estimate(value=mean, ci_low=None, ci_high=None, n=1)
    from scipy.special import stdtrit

    half = float(stdtrit(n - 1, 0.975)) * math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1) / n)
    return Estimate(value=mean, ci_low=mean - half, ci_high=mean + half, n=n)


def _clustered_bounds(p: float, variance: float, tasks: int, episodes: int) -> tuple[float, float]:
    from scipy.special import stdtrit

    if not 0 < p < 1 or tasks == 1:  # no variance to be seen: each task tells as much as one episode
        effective = float(tasks)
    else:
        effective = min(p * (1 - p) / variance, episodes) if variance > 0 else float(episodes)
        effective *= float(stdtrit(episodes - 1, 0.975) / stdtrit(tasks - 1, 0.975)) ** 2
    return _exact_bounds(p * effective, effective)


def _exact_bounds(successes: float, n: float) -> tuple[float, float]:
    from scipy.special import betaincinv

    low = float(betaincinv(successes, n - successes + 1, 0.025)) if successes > 0 else 0.0
    return low, (float(betaincinv(successes + 1, n - successes, 0.975)) if successes < n else 1.0)


def _wilson_bounds(successes: int, n: int) -> tuple[float, float]:
    """The score interval (Wilson 1927, JASA 22:209-212), which Newcombe's is made of."""
    p, z2 = successes / n, Z * Z
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    # At the edges the bound is exactly 0 or 1; rounding would leave 1e-18 there.
    return (0.0 if successes == 0 else centre - half), (1.0 if successes == n else centre + half)


def newcombe_paired(both: int, only_a: int, only_b: int, neither: int) -> Interval:
    """The difference of two paired success rates, b - a, with its square-and-add interval.

    Newcombe 1998, Statistics in Medicine 17:2635-2650, method 10: the two Wilson intervals are combined with the
    correlation phi of the pairs, whose numerator is reduced by n/2 (not below 0) where it is positive.

    Args:
        both: Tasks that both solved.
        only_a: Tasks that a alone solved.
        only_b: Tasks that b alone solved.
        neither: Tasks that none solved.
    """
    n = both + only_a + only_b + neither
    solved_a, solved_b = both + only_a, both + only_b
    a, b = solved_a / n, solved_b / n
    low_a, high_a = _wilson_bounds(solved_a, n)
    low_b, high_b = _wilson_bounds(solved_b, n)
    margins = solved_a * (n - solved_a) * solved_b * (n - solved_b)
    agreement: float = both * neither - only_a * only_b
    if agreement > 0:
        agreement = max(agreement - n / 2, 0.0)
    phi = agreement / math.sqrt(margins) if margins else 0.0
    below = _hypotenuse(b - low_b, high_a - a, phi)
    above = _hypotenuse(high_b - b, a - low_a, phi)
    return Interval(b - a, max(b - a - below, -1.0), min(b - a + above, 1.0))


def _hypotenuse(x: float, y: float, phi: float) -> float:
    return math.sqrt(max(x * x - 2 * phi * x * y + y * y, 0.0))


def mcnemar_exact(only_a: int, only_b: int) -> float:
    """Two-sided exact McNemar test: are the discordant tasks split as a fair coin would? 1 where there are none."""
    from scipy.stats import binomtest

    n = only_a + only_b
    return float(binomtest(only_a, n, 0.5).pvalue) if n else 1.0


def sign_flip_exact(differences: Sequence[int]) -> float:
    """Two-sided exact randomisation test that paired differences are symmetric around 0 (Fisher 1935, section 21).

    Under the null hypothesis each task's difference could as well have had the other sign; the p-value is the share
    of the 2^n sign patterns whose sum is at least as far from 0 as the observed one. With differences of -1, 0 and 1
    it is the exact McNemar test.

    Args:
        differences: One whole number a task, such as (successes of b) - (successes of a) over its repeats.
    """
    import numpy as np

    reach = sum(abs(d) for d in differences)
    shares = np.zeros(2 * reach + 1)  # shares[s + reach]: probability that the flipped sum is s
    shares[reach] = 1.0
    for size in (abs(d) for d in differences if d):
        shares = 0.5 * (np.roll(shares, size) + np.roll(shares, -size))
    extreme = np.abs(np.arange(-reach, reach + 1)) >= abs(sum(differences))
    return min(1.0, float(shares[extreme].sum()))


def clustered_difference(differences: Sequence[float]) -> Interval:
    """The mean of per-task differences with its t interval, tasks being the clusters (Miller 2024, arXiv 2411.00640).

    Args:
        differences: One number in -1..1 a task: mean success of b minus mean success of a over its repeats.
    """
    n = len(differences)
    mean = math.fsum(differences) / n
    if n == 1:
        return Interval(mean, -1.0, 1.0)
    from scipy.stats import t

    variance = math.fsum((d - mean) ** 2 for d in differences) / (n - 1)
    half = float(t.ppf(0.975, n - 1)) * math.sqrt(variance / n)
    return Interval(mean, max(mean - half, -1.0), min(mean + half, 1.0))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for how many there are, in the same order (Holm 1979, Scand. J. Statist. 6:65-70)."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = largest
    return corrected
