"""Intervals and tests for success rates on shared tasks. scipy and numpy are loaded on first use.

Inputs are counts and differences, independent of evaluation records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from math import comb
from typing import Any, NamedTuple

from quintain.records.evaluation import AtK, Estimate, Rate

Z = 1.959963984540054
"""97.5 % quantile of the standard normal distribution. All intervals are 95 % intervals."""

_NODES = 128
"""Nodes of an integral: bounds differ by less than 1e-5 from those of adaptive integration."""


class Interval(NamedTuple):
    """An estimate and its 95 % confidence interval."""

    value: float
    low: float
    high: float


def clopper_pearson(successes: int, n: int) -> Rate:
    """Return a success rate with its exact interval (Clopper & Pearson 1934, Biometrika 26:404-413); nulls if n is 0.

    Its coverage is at least 95 % for every rate and n. The shorter Wilson interval has that coverage on average only:
    near rates of 0.02 it falls below 84 %.
    """
    if n == 0:
        return Rate(successes=0, n=0, value=None, ci_low=None, ci_high=None)
    low, high = clopper_pearson_bounds(successes, n)
    return Rate(successes=successes, n=n, value=successes / n, ci_low=low, ci_high=high)


def rate_over_tasks(counts: Sequence[tuple[int, int]]) -> Rate:
    """Return the success rate of repeated tasks, with an interval for tasks as the unit.

    Repeats of a task are not independent. The exact interval uses the effective number of episodes, p (1 - p) divided by
    the variance of the rate between tasks, reduced for few tasks. With one repeat it equals `clopper_pearson`.
    Source: Korn & Graubard 1998, Survey Methodology 24:193-201.

    Args:
        counts: (successes, episodes with a verdict) per task.
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
    """Return the mean of shares in 0..1, one per task, with the interval of `rate_over_tasks`.

    Args:
        shares: At least one.
        episodes: Number of episodes behind the shares, an upper bound of the effective number.
    """
    m = len(shares)
    p = min(max(math.fsum(shares) / m, 0.0), 1.0)
    variance = math.fsum((share - p) ** 2 for share in shares) / (m - 1) / m if m > 1 else 0.0
    return Interval(p, *_clustered_bounds(p, variance, m, episodes))


def mean_over_tasks(values: Sequence[float]) -> Estimate:
    """Return the mean of one value per task, with its t interval; nulls where the values show no spread."""
    n = len(values)
    mean = math.fsum(values) / n
    if len(set(values)) == 1:
        return Estimate(value=mean, ci_low=None, ci_high=None, n=n)
    from scipy.special import stdtrit

    half = float(stdtrit(n - 1, 0.975)) * math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1) / n)
    return Estimate(value=mean, ci_low=mean - half, ci_high=mean + half, n=n)


def _clustered_bounds(p: float, variance: float, tasks: int, episodes: int) -> tuple[float, float]:
    from scipy.special import stdtrit

    if not 0 < p < 1 or tasks == 1:  # without observable variance, each task counts as one episode
        effective = float(tasks)
    else:
        effective = min(p * (1 - p) / variance, episodes) if variance > 0 else float(episodes)
        effective *= float(stdtrit(episodes - 1, 0.975) / stdtrit(tasks - 1, 0.975)) ** 2
    return clopper_pearson_bounds(p * effective, effective)


def clopper_pearson_bounds(successes: float, n: float, error: float = 0.05) -> tuple[float, float]:
    """Return the exact bounds of a rate; `error` is 1 - confidence, and an effective number of trials may be a fraction."""
    from scipy.special import betaincinv

    low = float(betaincinv(successes, n - successes + 1, error / 2)) if successes > 0 else 0.0
    return low, (float(betaincinv(successes + 1, n - successes, 1 - error / 2)) if successes < n else 1.0)


@cache
def mcnemar_interval(only_a: int, only_b: int, n: int, error: float = 0.05) -> Interval:
    """Return the difference of two paired success rates, b - a, with the exact interval that belongs to McNemar's exact test.

    The interval leaves out 0 exactly if the test's p is below `error`, and its coverage is at least 1 - error for every n (Fay &
    Lumbard 2021, Statistics in Medicine 40:1147-1159). The difference is the share t of discordant tasks times 2 f - 1, with f the
    share of those that b solves. Each bound is a quantile of that product, t and f drawn from the confidence distributions behind
    the exact bounds of both shares (Clopper & Pearson 1934).

    Args:
        only_a: Tasks solved by a only.
        only_b: Tasks solved by b only.
        n: All tasks, at least 1.
        error: 1 - confidence.
    """
    low = _mcnemar_lower(only_a, only_b, n, error / 2)
    return Interval((only_b - only_a) / n, low, -_mcnemar_lower(only_b, only_a, n, error / 2))


def _mcnemar_lower(only_a: int, only_b: int, n: int, tail: float) -> float:
    """Return the lower bound of b - a that is missed with a probability of at most `tail`."""
    from scipy.optimize import brentq
    from scipy.special import betainc, betaincinv

    discordant = only_a + only_b
    if only_b == 0:
        return -float(betaincinv(discordant + 1, n - discordant, 1 - tail)) if discordant < n else -1.0
    nodes, weights = _gauss_legendre()
    above = float(betainc(only_b, only_a + 1, 0.5)) <= tail
    if above:
        shares = betaincinv(discordant, n - discordant + 1, nodes)
    else:
        shares = betaincinv(discordant + 1, n - discordant, nodes) if discordant < n else 1.0 + 0.0 * nodes

    def excess(difference: float) -> float:
        bounds = (0.5 + difference / (2 * shares)).clip(0.0, 1.0)
        return float(weights @ betainc(only_b, only_a + 1, bounds)) - tail

    return float(brentq(excess, 0.0, 1.0) if above else brentq(excess, -1.0, 0.0))


@cache
def _gauss_legendre() -> tuple[Any, Any]:
    """Return nodes and weights of an integral over 0..1."""
    import numpy as np

    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return (nodes + 1) / 2, weights / 2


class ClusteredMean(NamedTuple):
    """A mean over the members of clusters, with its standard error over the clusters (Miller 2024, arXiv 2411.00640, section 2.2).

    With d_c the sum over cluster c, n_c its members and m clusters of n members, the mean is sum d_c / n and its variance
    m / (m - 1) sum (d_c - mean n_c)^2 / n^2, with m - 1 degrees of freedom.
    """

    value: float
    standard_error: float
    n_clusters: int

    @classmethod
    def of(cls, sums: Sequence[float], sizes: Sequence[int]) -> ClusteredMean:
        """Return the mean from the sum and the size of each of two or more clusters."""
        m, n = len(sums), sum(sizes)
        mean = math.fsum(sums) / n
        squares = math.fsum((total - mean * size) ** 2 for total, size in zip(sums, sizes, strict=True))
        return cls(mean, math.sqrt(m / (m - 1) * squares) / n, m)

    def interval(self, error: float = 0.05) -> Interval:
        """Return the t interval; `error` is 1 - confidence."""
        from scipy.special import stdtrit

        half = float(stdtrit(self.n_clusters - 1, 1 - error / 2)) * self.standard_error
        return Interval(self.value, self.value - half, self.value + half)

    def p(self) -> float:
        """Return the two-sided p-value of Student's t test of a mean of 0."""
        from scipy.special import stdtr

        if self.standard_error == 0:
            return float(self.value == 0)
        return 2 * float(stdtr(self.n_clusters - 1, -abs(self.value) / self.standard_error))


def pass_at_k(n: int, successes: int, k: int) -> float:
    """Return the unbiased estimate of P(at least one of k attempts succeeds) from n >= k attempts.

    1 - C(n - c, k) / C(n, k) with c successes (Chen et al. 2021, arXiv 2107.03374, equation 1).
    """
    return 1.0 - comb(n - successes, k) / comb(n, k)


def pass_hat_k(n: int, successes: int, k: int) -> float:
    """Return the unbiased estimate of P(all of k attempts succeed) from n >= k attempts.

    C(c, k) / C(n, k) with c successes (Yao et al. 2024, tau-bench, arXiv 2406.12045, section 4).
    """
    return comb(successes, k) / comb(n, k)


def estimate_over_k(estimator: Callable[[int, int, int], float], counts: Sequence[tuple[int, int]]) -> tuple[AtK, ...]:
    """Average an estimator over tasks, for k = 1, 2, 4, ... and the most attempts. Empty without repeats.

    Args:
        estimator: `pass_at_k` or `pass_hat_k`.
        counts: Successes and attempts with a verdict of each task; those with fewer than k attempts are left out.
    """
    most = max((n for _, n in counts), default=0)
    if most < 2:
        return ()
    powers = [2**i for i in range(most.bit_length()) if 2**i < most]
    found = []
    for k in (*powers, most):
        tried = [(c, n) for c, n in counts if n >= k]
        value, low, high = mean_share([estimator(n, c, k) for c, n in tried], sum(n for _, n in tried))
        found.append(AtK(k=k, value=value, ci_low=low, ci_high=high, n=len(tried)))
    return tuple(found)
