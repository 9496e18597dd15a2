"""Tests of differences between two agents' scores, their corrections, effect sizes, and significance groups.

Statistics come from scipy. Added are the cases in which a test statistic does not exist: no variance, only zeros, too
few values.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any

from quintain.evaluation.statistics.success_rates import Interval, clopper_pearson_bounds

MIN_DIFFERING_TASKS = 5
"""Fewer tasks with a difference are too few to estimate its variance."""


def paired_t(differences: Sequence[float]) -> float:
    """Return the two-sided p of Student's paired t test (Student 1908) on b - a, one value per task.

    If all differences are equal, there is no variance: p is 0 for a nonzero difference, else 1.

    Args:
        differences: At least two.
    """
    if min(differences) == max(differences):
        return float(differences[0] == 0)
    from scipy.stats import ttest_1samp

    return float(ttest_1samp(differences, 0.0).pvalue)


def wilcoxon(differences: Sequence[float]) -> float:
    """Return the two-sided p of Wilcoxon's signed-rank test (Wilcoxon 1945) on b - a. Zeros are dropped as in the original.

    Exact up to 50 differences without ties, else the normal approximation with tie correction.
    """
    kept = [d for d in differences if d]
    if not kept:
        return 1.0
    from scipy.stats import wilcoxon as signed_rank

    ties = len({abs(d) for d in kept}) < len(kept)
    exact = len(kept) <= 50 and not ties
    return float(signed_rank(kept, method="exact" if exact else "approx").pvalue)


def mcnemar_exact(only_a: int, only_b: int) -> float:
    """Two-sided exact McNemar test of an equal split of discordant tasks. Returns 1 without discordant tasks."""
    from scipy.special import bdtr

    n, k = only_a + only_b, min(only_a, only_b)
    return min(1.0, 2 * float(bdtr(k, n, 0.5)))


def mcnemar_mid_p(only_a: int, only_b: int) -> float:
    """Two-sided mid-p McNemar test: twice P(X < k) + P(X = k) / 2, with k the smaller count of a fair split.

    Of equal counts 1 - P(X = k) / 2, and 1 without discordant tasks.

    Fagerland, Lydersen & Laake 2013, BMC Med. Res. Methodol. 13:91: it rejects about as often as its level where the exact test
    rejects far less often, at the price of slightly exceeding the level for some sizes.
    """
    from scipy.special import bdtr

    n, k = only_a + only_b, min(only_a, only_b)
    up_to, less = float(bdtr(k, n, 0.5)), float(bdtr(k - 1, n, 0.5)) if k else 0.0
    if only_a != only_b:
        return up_to + less
    return 1 - (up_to - less) / 2 if n else 1.0


def equivalence(differences: Sequence[float], margin: float) -> float:
    """Return the p of the mean of b - a being outside of `margin` around 0. A small p supports equivalence.

    The worse of two one-sided tests (Schuirmann 1987): Tango's score test (1998, Statistics in Medicine 17:891-908) for
    binary outcomes, Student's t for shares of repeats. A mean difference of `margin` needs at least that share of tasks to
    differ, so the probability of k or fewer of n is at most P(Binomial(n, margin) <= k). For binary outcomes p is at least
    its value at k = 0, (1 - margin)^n, the bound of the rule of three (Hanley & Lippman-Hand 1983, JAMA 249:1743-5). For
    shares p is at least its value at the observed k if k < 5.

    Args:
        differences: Differences of success rates in -1..1, one per task, at least two.
        margin: In (0, 1), such as 0.05 for 5 points.
    """
    n, differ = len(differences), sum(d != 0 for d in differences)
    if set(differences) <= {-1, 0, 1}:
        plus, minus = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
        z = max(_tango(plus, minus, n, margin), _tango(minus, plus, n, margin))
        return max((1 - margin) ** n, 0.5 * math.erfc(-z / math.sqrt(2)))
    if min(differences) == max(differences):
        rest = max(0.0, margin - abs(differences[0])) / (1 - min(abs(differences[0]), margin))
        return float((1 - rest) ** n)
    from scipy.stats import binom, ttest_1samp

    above = ttest_1samp(differences, -margin, alternative="greater")
    below = ttest_1samp(differences, margin, alternative="less")
    least = float(binom.cdf(differ, n, margin)) if differ < MIN_DIFFERING_TASKS else 0.0
    return max(float(above.pvalue), float(below.pvalue), least)


def _tango(plus: int, minus: int, n: int, margin: float) -> float:
    """Return Tango's z for `plus - minus` of n against a mean of `margin` or more."""
    b = margin * (2 * n - plus + minus) - plus - minus
    fewer = (math.sqrt(b * b + 8 * n * minus * margin * (1 - margin)) - b) / (4 * n)  # the likeliest share of minus
    return (plus - minus - n * margin) / math.sqrt(n * (2 * fewer + margin * (1 - margin)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values to bound the family-wise error rate (Holm 1979, Scand. J. Statist. 6:65-70); keeps their order."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = largest
    return corrected


def bonferroni(p_values: Sequence[float]) -> list[float]:
    """Multiply p-values by their number, capped at 1 (Dunn 1961). Bounds the family-wise error rate."""
    return [min(1.0, p * len(p_values)) for p in p_values]


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values to bound the false discovery rate (Benjamini & Hochberg 1995)."""
    if not p_values:
        return []
    from scipy.stats import false_discovery_control

    return [float(p) for p in false_discovery_control(list(p_values), method="bh")]


def t_interval(values: Sequence[float]) -> tuple[float, float, str]:
    """Return a 95 % interval of the mean of two or more values, which excludes 0 exactly if `paired_t` is below 0.05, and its method."""
    n, mean = len(values), math.fsum(values) / len(values)
    if min(values) == max(values):
        return mean, mean, "no variance"
    from scipy.stats import t

    half = float(t.ppf(0.975, n - 1)) * statistics.stdev(values) / math.sqrt(n)
    return mean - half, mean + half, "t interval"


def compact_letter_display(names: Sequence[str], different: Collection[tuple[str, str]]) -> dict[str, str]:
    """Return agent -> letters such that agents differ significantly exactly if they share none.

    Uses insert and absorb (Piepho 2004, JCGS 13:456-466). An agent can have several letters, because the absence of a
    significant difference is not transitive.

    Args:
        names: Agents, best first. The best gets the letter a.
        different: Pairs that differ significantly, in either order.
    """
    columns: list[frozenset[str]] = [frozenset(names)]
    for one, other in different:
        split: list[frozenset[str]] = []
        for column in columns:
            split += [column - {one}, column - {other}] if {one, other} <= column else [column]
        columns = _absorb(split)
    place = {name: i for i, name in enumerate(names)}
    columns.sort(key=lambda column: sorted(place[name] for name in column))
    return {name: "".join(_letter(i) for i, column in enumerate(columns) if name in column) for name in names}


def _absorb(columns: Sequence[frozenset[str]]) -> list[frozenset[str]]:
    distinct = list(dict.fromkeys(columns))
    return [column for column in distinct if not any(column < other for other in distinct)]


def _letter(i: int) -> str:
    return chr(ord("a") + i) if i < 26 else f"({i + 1})"


def cohens_dz(differences: Sequence[float]) -> float | None:
    """Return mean / standard deviation of paired differences (Cohen 1988), or None without variance."""
    deviation = statistics.stdev(differences) if len(differences) > 1 else 0.0
    return statistics.fmean(differences) / deviation if deviation else None


def required_tasks(difference: float, discordant: float) -> int:
    """Return the paired tasks McNemar's test needs to detect a difference (Connor 1987, Biometrics 43:207-211).

    n = (z_0.975 sqrt(psi) + z_0.8 sqrt(psi - d^2))^2 / d^2 at a power of 80 % and a two-sided level of 5 %, psi being
    the share of discordant tasks.

    Args:
        difference: Difference of the success rates, not 0.
        discordant: Share of tasks that exactly one agent solves; raised to |difference|, its lower bound.
    """
    from scipy.special import ndtri

    d, psi = abs(difference), max(discordant, abs(difference))
    root = ndtri(0.975) * math.sqrt(psi) + ndtri(0.8) * math.sqrt(max(psi - d * d, 0.0))
    return math.ceil(float(root / d) ** 2)


_DEVIATIONS = 20
"""Width of the grid in standard deviations of a sum; what is outside weighs less than 1e-20."""
_ROUNDING = 1e-17
"""Largest share of a cell that is rounding of the Fourier transform alone."""


def sign_flip_exact(differences: Sequence[int]) -> float:
    """Two-sided exact randomization test for symmetry of paired differences around 0 (Fisher 1935, section 21).

    Under the null hypothesis the sign of each task's difference is random. The p-value is the share of the 2^n sign
    patterns whose sum is at least as far from 0 as the observed one. With differences of -1, 0 and 1 it equals the exact
    McNemar test.

    Args:
        differences: One integer per task, such as (successes of b) - (successes of a) over its repeats.
    """
    import numpy as np

    reach = sum(abs(d) for d in differences)
    shares = np.zeros(2 * reach + 1)  # shares[s + reach]: probability that the flipped sum is s
    shares[reach] = 1.0
    for size in (abs(d) for d in differences if d):
        shares = 0.5 * (np.roll(shares, size) + np.roll(shares, -size))
    extreme = np.abs(np.arange(-reach, reach + 1)) >= abs(sum(differences))
    return min(1.0, float(shares[extreme].sum()))


def sign_flip_interval(
    differences: Sequence[int], repeats: int, error: float = 0.05, sizes: Sequence[int] | None = None
) -> Interval:
    """Return the mean difference of success rates with the interval that inverts the sign-flip test.

    It contains the shifts d at which the test of differences minus d has p >= error, so it leaves out 0 exactly if
    `sign_flip_exact` is below `error`. p is twice the smaller share of subsets of tasks (none included) whose mean is at most, or
    at least, d. So each bound is an order statistic of the means of all 2^n - 1 subsets (Tritchler 1984, JASA 79:200-207).

    Where fewer than `MIN_DIFFERING_TASKS` tasks differ, which never leaves out 0, it is also at least as wide as the exact bounds
    of the shares of tasks in which b, or a, is ahead: a mean difference of d needs at least that share.

    Args:
        differences: Per task or cluster of tasks.
        repeats: Episodes of each agent per task.
        error: 1 - confidence.
        sizes: Tasks of each cluster; None: one.
    """
    n, sizes = len(differences), sizes or [1] * len(differences)
    means, shares = _subset_means(tuple(sorted(Counter(zip(sizes, differences, strict=True)).items())))
    empty = 0.5**n
    low = _quantile(means, shares, empty, error / 2) / repeats
    high = -_quantile(-means[::-1], shares[::-1], empty, error / 2) / repeats
    if sum(map(bool, differences)) < MIN_DIFFERING_TASKS:
        ahead, behind = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
        low = min(low, -clopper_pearson_bounds(behind, n, error)[1])
        high = max(high, clopper_pearson_bounds(ahead, n, error)[1])
    return Interval(sum(differences) / sum(sizes) / repeats, max(low, -1.0), min(high, 1.0))


def _quantile(means: Any, shares: Any, below: float, tail: float) -> float:
    """Return the smallest of sorted means up to which the shares, with `below`, reach `tail`; -infinity if `below` does."""
    import numpy as np

    if below >= tail:
        return -math.inf
    return float(means[np.searchsorted(below + np.cumsum(shares), tail)])


@lru_cache(maxsize=4)
def _subset_means(counts: tuple[tuple[tuple[int, int], int], ...]) -> tuple[Any, Any]:
    """Return the means of all subsets of values with sizes, sorted, and the share of subsets with each.

    The distribution of (size, sum) of a random subset is a product of characteristic functions, transformed back on a grid.

    Args:
        counts: ((size, value), number of such values), each once.
    """
    import numpy as np

    sizes, sums = (_grid((pair[axis], n) for pair, n in counts) for axis in (0, 1))
    turns = np.exp(-2j * np.pi * np.arange(len(sizes)) / len(sizes))[:, None]
    other = np.exp(-2j * np.pi * np.arange(len(sums) // 2 + 1) / len(sums))[None, :]
    product = np.ones((len(sizes), len(sums) // 2 + 1), complex)
    for (size, value), n in counts:
        product *= (0.5 + 0.5 * turns**size * other**value) ** n
    shares = np.fft.irfft2(product, s=(len(sizes), len(sums)))
    kept = (shares > _ROUNDING) & (sizes > 0)[:, None]
    means = (sums[None, :] / np.maximum(sizes, 1)[:, None])[kept]
    order = np.argsort(means, kind="stable")
    return means[order], shares[kept][order]


def _grid(values: Iterable[tuple[int, int]]) -> Any:
    """Return the values of a random subset's sum, each at its remainder by their number."""
    import numpy as np

    listed = list(values)
    deviation = 0.5 * math.sqrt(sum(n * value**2 for value, n in listed))
    least = sum(n * min(value, 0) for value, n in listed)
    length, narrow = 1 + sum(n * abs(value) for value, n in listed), 3 + math.ceil(_DEVIATIONS * deviation)
    if narrow < length:
        least, length = math.floor(0.5 * sum(n * value for value, n in listed) - narrow / 2), narrow
    return least + (np.arange(length) - least) % length
