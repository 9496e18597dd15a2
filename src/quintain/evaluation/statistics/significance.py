"""Tests of differences between two agents' scores: scipy's, with answers where scipy has none.

Each says what it did. Numbers equal scipy's to rounding; what is added are the cases in which a test statistic does not
exist: no variance, nothing but zeros, too few values.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

from quintain.errors import InvalidInput

EXACT_PATTERNS = 2**13
"""Sign patterns or splits that a permutation test still tries one by one; above it draws as many."""
FEW = 5
"""Fewer tasks with a difference say too little of its variance for a t test of equivalence."""


class Test(NamedTuple):
    """A two-sided test of no difference."""

    p: float
    statistic: float | None
    """Positive where b is higher; None where the test has none."""
    method: str


def paired_t(differences: Sequence[float]) -> Test:
    """Student's paired t test (Student 1908) on b - a, one number a task.

    Where all differences are equal there is no variance to measure against: p is 0 for a difference, 1 for none.

    Raises:
        InvalidInput: fewer than two differences, or one that is not finite.
    """
    _require(differences, "differences", 2)
    if (flat := _without_variance(differences)) is not None:
        return flat._replace(method="paired t test, no variance")
    from scipy.stats import ttest_1samp

    result = ttest_1samp(differences, 0.0)
    return Test(float(result.pvalue), float(result.statistic), "paired t test")


def welch_t(a: Sequence[float], b: Sequence[float]) -> Test:
    """Welch's t test (Welch 1947, Biometrika 34:28-35) on unpaired scores, variances free.

    Raises:
        InvalidInput: fewer than two scores on a side, or one that is not finite.
    """
    _require(a, "scores of a", 2)
    _require(b, "scores of b", 2)
    if min(a) == max(a) and min(b) == max(b):
        flat = _without_variance([b[0] - a[0]] * 2)
        assert flat is not None
        return flat._replace(method="Welch's t test, no variance")
    from scipy.stats import ttest_ind

    result = ttest_ind(b, a, equal_var=False)
    return Test(float(result.pvalue), float(result.statistic), "Welch's t test")


def wilcoxon(differences: Sequence[float]) -> Test:
    """Wilcoxon's signed-rank test (Wilcoxon 1945) on b - a; zeros are left out, as he did.

    Exact up to 50 differences without ties, else by its normal approximation with tie correction.

    Raises:
        InvalidInput: no differences, or one that is not finite.
    """
    _require(differences, "differences", 1)
    kept = [d for d in differences if d]
    if not kept:
        return Test(1.0, None, "Wilcoxon's signed-rank test, no difference")
    from scipy.stats import wilcoxon as signed_rank

    ties = len({abs(d) for d in kept}) < len(kept)
    exact = len(kept) <= 50 and not ties
    result = signed_rank(kept, method="exact" if exact else "approx")
    above = sum(d > 0 for d in kept) - sum(d < 0 for d in kept)
    statistic = math.copysign(float(result.statistic), above) if above else float(result.statistic)
    return Test(float(result.pvalue), statistic, f"Wilcoxon's signed-rank test, {'exact' if exact else 'normal'}")


def mann_whitney(a: Sequence[float], b: Sequence[float]) -> Test:
    """The Mann-Whitney U test (Mann & Whitney 1947) on unpaired scores; exact for small sides without ties.

    Raises:
        InvalidInput: an empty side, or a score that is not finite.
    """
    _require(a, "scores of a", 1)
    _require(b, "scores of b", 1)
    if min(*a, *b) == max(*a, *b):
        return Test(1.0, None, "Mann-Whitney U test, no difference")
    from scipy.stats import mannwhitneyu

    exact = len(set(a) | set(b)) == len(a) + len(b) and min(len(a), len(b)) <= 8
    result = mannwhitneyu(b, a, method="exact" if exact else "asymptotic")
    kind = "exact" if exact else "normal with tie correction"
    return Test(float(result.pvalue), float(result.statistic), f"Mann-Whitney U test, {kind}")


def permutation(differences: Sequence[float], *, seed: int = 0) -> Test:
    """The sign-flip test on the mean of b - a (Fisher 1935, section 21): exact up to 13 tasks, else drawn by the seed.

    Raises:
        InvalidInput: no differences, or one that is not finite.
    """
    _require(differences, "differences", 1)
    mean = math.fsum(differences) / len(differences)
    import numpy as np
    from scipy.stats import permutation_test

    exact = 2 ** len(differences) <= EXACT_PATTERNS
    result = permutation_test(
        (np.asarray(differences, dtype=float),),
        lambda flipped, axis: np.mean(flipped, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf if exact else EXACT_PATTERNS,
        rng=np.random.default_rng(seed),
    )
    return Test(float(result.pvalue), mean, f"sign-flip permutation test, {'exact' if exact else 'drawn'}")


def equivalence(differences: Sequence[float], margin: float) -> Test:
    """Is the mean of b - a, one difference of success rates a task, within `margin` of 0? A small p says yes.

    The worse of two one-sided tests (Schuirmann 1987): Tango's score test (1998, Statistics in Medicine 17:891-908) where
    each task was solved or not, Student's t where repeats make shares of it. A mean difference of `margin` needs at least
    that share of tasks on which the two differ, so that the chance to see k of n or fewer is P(Binomial(n, margin) <= k) at
    most. No p is below that of k = 0, (1 - margin)^n, the bound of the rule of three (Hanley & Lippman-Hand 1983, JAMA
    249:1743-5), where tasks were solved or not; nor below that of the k seen, where it is less than 5 and they are shares.

    Args:
        differences: Each in -1..1.
        margin: Between 0 and 1, such as 0.05 for 5 points.

    Raises:
        InvalidInput: fewer than two differences, one that is not finite, or a margin that is not between 0 and 1.
    """
    _require(differences, "differences", 2)
    if not 0 < margin < 1:
        raise InvalidInput(f"the margin of equivalence is {margin}; it must be above 0 and below 1, such as 0.05")
    n, differ = len(differences), sum(d != 0 for d in differences)
    from scipy.stats import binom, ttest_1samp

    if set(differences) <= {-1, 0, 1}:
        plus, minus = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
        z = max(_tango(plus, minus, n, margin), _tango(minus, plus, n, margin))
        return Test(max((1 - margin) ** n, 0.5 * math.erfc(-z / math.sqrt(2))), z, "two one-sided score tests")
    if _without_variance(differences) is not None:
        rest = max(0.0, margin - abs(differences[0])) / (1 - min(abs(differences[0]), margin))
        return Test((1 - rest) ** n, None, "bound on the tasks that differ otherwise")
    above = ttest_1samp(differences, -margin, alternative="greater")
    below = ttest_1samp(differences, margin, alternative="less")
    worse = max((above, below), key=lambda one: float(one.pvalue))
    least = float(binom.cdf(differ, n, margin)) if differ < FEW else 0.0
    return Test(max(float(worse.pvalue), least), float(worse.statistic), "two one-sided t tests")


def _tango(plus: int, minus: int, n: int, margin: float) -> float:
    """Tango's z of `plus - minus` of n against a mean of `margin` or more; low where the mean is below it."""
    b = margin * (2 * n - plus + minus) - plus - minus
    fewer = (math.sqrt(b * b + 8 * n * minus * margin * (1 - margin)) - b) / (4 * n)  # the likeliest share of minus
    return (plus - minus - n * margin) / math.sqrt(n * (2 * fewer + margin * (1 - margin)))


def bonferroni(p_values: Sequence[float]) -> list[float]:
    """P-values times how many there are, at most 1 (Dunn 1961); bounds the chance of any false finding."""
    return [min(1.0, p * len(p_values)) for p in p_values]


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """P-values by which the expected share of false findings is bounded (Benjamini & Hochberg 1995)."""
    if not p_values:
        return []
    from scipy.stats import false_discovery_control

    return [float(p) for p in false_discovery_control(list(p_values), method="bh")]


def bootstrap_mean(values: Sequence[float], *, seed: int = 0, resamples: int = 9999) -> tuple[float, float, str]:
    """A 95 % interval of the mean and how it was made: BCa bootstrap (Efron 1987) from 10 values, else Student's t.

    Raises:
        InvalidInput: fewer than two values, or one that is not finite.
    """
    _require(values, "values", 2)
    n, mean = len(values), math.fsum(values) / len(values)
    if min(values) == max(values):
        return mean, mean, "no variance"
    import numpy as np
    from scipy import stats

    if n >= 10:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of degenerate resamples, which are answered below
            found: Any = stats.bootstrap(
                (np.asarray(values, dtype=float),),
                np.mean,
                n_resamples=resamples,
                method="BCa",
                vectorized=True,
                rng=np.random.default_rng(seed),
            ).confidence_interval
        if math.isfinite(found.low) and math.isfinite(found.high):
            return float(found.low), float(found.high), "BCa bootstrap"
    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1) / n)
    half = float(stats.t.ppf(0.975, n - 1)) * spread
    return mean - half, mean + half, "t interval"


def _without_variance(differences: Sequence[float]) -> Test | None:
    if min(differences) != max(differences):
        return None
    return Test(1.0 if differences[0] == 0 else 0.0, None, "")


def _require(values: Sequence[float], what: str, least: int) -> None:
    if len(values) < least:
        raise InvalidInput(f"{len(values)} {what}; this test needs at least {least}: evaluate on more tasks")
    if not all(map(math.isfinite, values)):
        raise InvalidInput(f"the {what} hold a number that is not finite; leave episodes without a score out")
