from __future__ import annotations

import math
from itertools import combinations, combinations_with_replacement, compress, product
from random import Random

import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import beta, binom, binomtest, multinomial, permutation_test, ttest_1samp

from evaluation.test_comparison import evaluated
from quintain.evaluation.statistics.significance import holm, mcnemar_exact, sign_flip_exact, sign_flip_interval
from quintain.evaluation.statistics.success_rates import (
    ClusteredMean,
    clopper_pearson,
    estimate_over_k,
    mcnemar_interval,
    mean_over_tasks,
    pass_at_k,
    pass_hat_k,
    rate_over_tasks,
)


@pytest.mark.parametrize("n", [1, 2, 17, 263])
def test_the_exact_interval_equals_scipys(n: int) -> None:
    for successes in range(0, n + 1, max(1, n // 7)):
        expected = binomtest(successes, n).proportion_ci(method="exact")
        rate = clopper_pearson(successes, n)
        assert (rate.ci_low, rate.ci_high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_no_episode_gives_no_rate_and_the_edges_stay_in_bounds() -> None:
    none = clopper_pearson(0, 0)
    assert (none.successes, none.n, none.value, none.ci_low, none.ci_high) == (0, 0, None, None, None)
    assert clopper_pearson(0, 5).ci_low == 0.0
    assert clopper_pearson(5, 5).ci_high == 1.0


def test_without_repeats_tasks_and_episodes_are_the_same() -> None:
    assert rate_over_tasks([(1, 1), (0, 1), (1, 1), (0, 0)]) == clopper_pearson(2, 3)


def test_repeats_that_always_agree_count_as_one() -> None:
    """4 of 10 tasks solved in each of 8 repeats: variance between tasks 0.4 * 0.6 * 10/9 / 10, so 9 episodes are left of 80,

    and t with 9 instead of 79 degrees of freedom takes (1.9905 / 2.2622)^2 of them: 6.968.
    """
    rate = rate_over_tasks([(8, 8)] * 4 + [(0, 8)] * 6)
    assert (rate.successes, rate.n, rate.value) == (32, 80, 0.4)
    assert rate.ci_low == pytest.approx(beta.ppf(0.025, 0.4 * 6.968, 0.6 * 6.968 + 1), abs=1e-4)
    assert rate.ci_high == pytest.approx(beta.ppf(0.975, 0.4 * 6.968 + 1, 0.6 * 6.968), abs=1e-4)
    alike = rate_over_tasks([(3, 8), (4, 8)] * 5)
    assert (alike.ci_high or 1) - (alike.ci_low or 0) < (rate.ci_high or 1) - (rate.ci_low or 0)


def test_repeats_without_any_success_count_as_their_tasks() -> None:
    assert rate_over_tasks([(0, 8)] * 10).ci_high == clopper_pearson(0, 10).ci_high
    assert rate_over_tasks([(3, 8)]).ci_high == pytest.approx(beta.ppf(0.975, 0.375 + 1, 1 - 0.375))


def test_a_mean_over_tasks_has_a_t_interval() -> None:
    """1, 2, 3: mean 2, standard error 1 / sqrt(3), t with 2 degrees of freedom 4.3027: 2 +- 2.4841."""
    found = mean_over_tasks([1, 2, 3])
    assert (found.value, found.ci_low, found.ci_high) == pytest.approx((2, 2 - 2.4841, 2 + 2.4841), abs=1e-4)
    assert mean_over_tasks([0.5]).ci_low is None


@pytest.mark.parametrize(("only_a", "only_b", "n"), [(1, 7, 21), (1, 7, 8), (300, 420, 10_000)])
def test_the_interval_of_a_paired_difference_is_the_melded_one_by_scipys_integration(
    only_a: int, only_b: int, n: int
) -> None:
    """P(t (2 f - 1) <= bound) = 0.025 with densities and adaptive integration (Fay & Lumbard 2021)."""

    def lower(lost: int, won: int) -> float:
        m, share = lost + won, beta(won, lost + 1)
        low, high = beta(m, n - m + 1), beta(m + 1, n - m) if m < n else None

        def excess(bound: float) -> float:
            of_all = low if bound > 0 else high
            if of_all is None:
                return share.cdf(0.5 + bound / 2) - 0.025
            found = quad(lambda t: share.cdf(0.5 + bound / (2 * t)) * of_all.pdf(t), 0, 1, limit=500, points=[m / n])
            return found[0] - 0.025

        return brentq(excess, *((1e-9, 1) if share.cdf(0.5) < 0.025 else (-1, -1e-9)), xtol=1e-7)

    found = mcnemar_interval(only_a, only_b, n)
    assert found == pytest.approx(((only_b - only_a) / n, lower(only_a, only_b), -lower(only_b, only_a)), abs=1e-5)
    assert mcnemar_interval(only_b, only_a, n) == pytest.approx((-found.value, -found.high, -found.low))


def test_the_interval_of_a_paired_difference_at_its_edges_by_hand() -> None:
    """No task differs: 1 - 0.025^(1/n). All differ for b: f alone counts, 2 * 0.025^(1/n) - 1 if t is 1, and here t is Beta(n, 1)."""
    assert mcnemar_interval(0, 0, 10) == pytest.approx((0, -(1 - 0.025**0.1), 1 - 0.025**0.1))
    whole = mcnemar_interval(0, 10, 10)
    assert whole.high == 1.0
    assert whole.low < 2 * 0.025**0.1 - 1
    assert mcnemar_interval(4, 0, 4).low == -1.0


def test_the_interval_of_a_paired_difference_leaves_out_zero_exactly_if_mcnemars_test_rejects() -> None:
    """5 of 8 against none has p = 2 / 2^5 = 0.0625: Newcombe's interval, 0.170 to 0.863, left out 0."""
    assert mcnemar_interval(0, 5, 8).low < 0 < mcnemar_interval(0, 5, 8).high
    for n, error in product((1, 5, 8, 13, 21), (0.05, 0.05 / 3)):
        for only_a, only_b in product(range(n + 1), repeat=2):
            if only_a + only_b <= n:
                found = mcnemar_interval(only_a, only_b, n, error)
                assert found.low <= found.value <= found.high
                assert (found.low > 0 or found.high < 0) == (mcnemar_exact(only_a, only_b) < error)


def test_the_interval_of_a_paired_difference_covers_it_by_exact_sums() -> None:
    n = 12
    tables = [(a, b) for a, b in product(range(n + 1), repeat=2) if a + b <= n]
    found = [mcnemar_interval(a, b, n) for a, b in tables]
    counts = [(a, b, n - a - b) for a, b in tables]
    for tenths_a, tenths_b in product(range(11), repeat=2):
        if (neither := 10 - tenths_a - tenths_b) >= 0:
            truth = (tenths_b - tenths_a) / 10
            shares = multinomial.pmf(counts, n, [tenths_a / 10, tenths_b / 10, neither / 10])
            held = [one.low - 1e-9 <= truth <= one.high + 1e-9 for one in found]
            assert sum(share for share, holds in zip(shares, held, strict=True) if holds) >= 0.95


def test_mcnemar_by_hand() -> None:
    """1 against 7: 2 * (C(8,0) + C(8,1)) / 2^8 = 18/256. 3 against none: 2/8. None at all: 1."""
    assert mcnemar_exact(1, 7) == mcnemar_exact(7, 1) == pytest.approx(18 / 256)
    assert mcnemar_exact(0, 3) == pytest.approx(0.25)
    assert mcnemar_exact(0, 0) == 1.0


@pytest.mark.parametrize(
    "differences", [[1] * 7 + [-1], [2, -1, 3, 0, 1], [0, 0], [4], [1, 1, 1], [-2, 5, -3, 1, 1, 2]]
)
def test_the_sign_flip_test_counts_every_pattern(differences: list[int]) -> None:
    """Against all 2^n sign patterns written out."""
    sums = [
        sum(s * d for s, d in zip(signs, differences, strict=True))
        for signs in product((1, -1), repeat=len(differences))
    ]
    expected = sum(abs(s) >= abs(sum(differences)) for s in sums) / len(sums)
    assert sign_flip_exact(differences) == pytest.approx(expected)


def test_the_sign_flip_test_is_mcnemars_for_single_outcomes_and_scipys_for_any() -> None:
    assert sign_flip_exact([1] * 9 + [-1] * 2 + [0] * 30) == pytest.approx(mcnemar_exact(2, 9))
    differences = [3, 1, -2, 2, 4, 0, 1, -1, 2, 3]
    expected = permutation_test(
        (differences,), lambda x, axis: x.mean(axis), permutation_type="samples", vectorized=True, n_resamples=math.inf
    )
    assert sign_flip_exact(differences) == pytest.approx(expected.pvalue)


def test_the_clustered_mean_of_single_members_equals_the_paired_t_interval() -> None:
    differences = [0.5, 0.25, -0.25, 0.75, 0.0, 0.5]
    expected = ttest_1samp(differences, 0).confidence_interval()
    assert ClusteredMean.of(differences, [1] * 6).interval()[1:] == pytest.approx((expected.low, expected.high))


def test_the_interval_of_the_sign_flip_test_leaves_out_0_exactly_where_the_test_rejects() -> None:
    """Every multiset of 8 differences of 2 repeats, and draws of clusters of up to 3 tasks."""
    rng = Random(3)
    studies = [(found, None) for found in combinations_with_replacement(range(-2, 3), 8)]
    for _ in range(100):
        sizes = [rng.randint(1, 3) for _ in range(rng.randint(4, 25))]
        studies.append((tuple(rng.randint(-2 * size, 2 * size) for size in sizes), sizes))
    found = [sign_flip_exact(differences) for differences, _ in studies]
    for error in (0.05, 0.01, 0.05 / 3):
        for (differences, clusters), p in zip(studies, found, strict=True):
            interval = sign_flip_interval(differences, 2, error, clusters)
            assert interval.low <= interval.value <= interval.high
            assert (interval.low <= 0 <= interval.high) == (p >= error), (differences, error)
        assert 0 < sum(p < error for p in found) < len(studies) / 2


def test_the_bounds_of_the_sign_flip_interval_are_where_scipys_p_crosses_the_level() -> None:
    """At a bound the shifted differences have p >= 5 %, a little beyond it less; also among all means of subsets."""

    def p(shift: float, sizes: list[int]) -> float:
        shifted = [d - shift * size for d, size in zip(differences, sizes, strict=True)]
        found = permutation_test(
            (shifted,), lambda x, axis: x.sum(axis), permutation_type="samples", vectorized=True, n_resamples=math.inf
        )
        return float(found.pvalue)

    rng = Random(5)
    for _ in range(12):
        n = rng.randint(7, 11)
        differences = [rng.choice((-2, -1, 1, 2, 3)) for _ in range(n)]
        sizes = [rng.randint(1, 3) for _ in range(n)]
        low, high = (bound * 4 for bound in sign_flip_interval(differences, 4, 0.05, sizes)[1:])
        subsets = [
            sum(compress(differences, chosen)) / sum(compress(sizes, chosen))
            for chosen in product((0, 1), repeat=n)
            if any(chosen)
        ]
        for bound, outside in ((low, -1e-6), (high, 1e-6)):
            assert bound == pytest.approx(min(subsets, key=lambda mean: abs(mean - bound)), abs=1e-12)
            assert p(bound + outside, sizes) < 0.05 <= p(bound - outside, sizes)


@pytest.mark.parametrize(("n", "least"), [(8, 0.93), (12, 0.93)])
def test_the_sign_flip_interval_covers_the_difference_over_all_outcomes_of_few_tasks(n: int, least: float) -> None:
    """Exact coverage: every outcome of n tasks with two repeats, weighed by its probability.

    Rates of 0.1 to 0.9, also mixed: half of the tasks that neither solves beside half that both do. Nothing is simulated.
    """
    outcomes = [c for c in product(range(n + 1), repeat=5) if sum(c) == n]
    intervals = [
        sign_flip_interval([d for d, k in zip(range(-2, 3), c, strict=True) for _ in range(k)], 2) for c in outcomes
    ]
    rates = (0.1, 0.3, 0.5, 0.7, 0.9)
    models = [[(1.0, a, b)] for a in rates for b in rates if abs(a - b) < 0.7]
    models += [
        [(0.5, 0.0, 0.05), (0.5, 0.9, 0.95)],
        [(0.7, 0.0, 0.0), (0.3, 0.5, 0.8)],
        [(0.5, 1.0, 1.0), (0.5, 0.4, 0.9)],
    ]
    for model in models:
        shares = [0.0] * 5
        for weight, a, b in model:
            for x, y in product(range(3), repeat=2):
                shares[y - x + 2] += weight * binom.pmf(x, 2, a) * binom.pmf(y, 2, b)
        true = sum(weight * (b - a) for weight, a, b in model)
        likely = multinomial.pmf(outcomes, n, shares)
        covered = sum(w for w, i in zip(likely, intervals, strict=True) if i.low - 1e-12 <= true <= i.high + 1e-12)
        assert covered >= least, model


def test_holm_by_hand() -> None:
    """Sorted 0.01, 0.02, 0.04 times 3, 2, 1: 0.03, 0.04, 0.04. A smaller product never overtakes: 0.04, 0.03 -> 0.06, 0.06."""
    assert holm([0.04, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.03, 0.04]) == pytest.approx([0.06, 0.06])
    assert holm([0.7, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_equal_agents_are_rarely_called_different_and_the_interval_covers() -> None:
    """A/A: 600 pairs of equal agents on 60 tasks of uneven difficulty; an exact test at 5 % errs in at most 5 %.

    Three standard errors of a 5 % rate over 600 trials are 2.7 points.
    """
    rng = Random(7)
    rejected = covered = flipped = 0
    for _ in range(600):
        rates = [rng.random() for _ in range(60)]
        outcomes = [(rng.random() < p, rng.random() < p) for p in rates]
        only_a = sum(a and not b for a, b in outcomes)
        only_b = sum(b and not a for a, b in outcomes)
        rejected += mcnemar_exact(only_a, only_b) < 0.05
        interval = mcnemar_interval(only_a, only_b, 60)
        covered += interval.low <= 0 <= interval.high
        repeats = [
            sum(rng.random() < p for _ in range(3)) - sum(rng.random() < p for _ in range(3)) for p in rates[:30]
        ]
        flipped += sign_flip_exact(repeats) < 0.05
    assert rejected / 600 <= 0.05 + 0.027
    assert 0.01 < flipped / 600 <= 0.05 + 0.027
    assert covered / 600 >= 0.95 - 0.027


@pytest.mark.parametrize("successes", range(7))
def test_pass_at_k_and_pass_hat_k_are_means_over_all_choices_of_k_attempts(successes: int) -> None:
    attempts = [1] * successes + [0] * (6 - successes)
    for k in range(1, 7):
        chosen = list(combinations(attempts, k))
        assert pass_at_k(6, successes, k) == pytest.approx(sum(any(c) for c in chosen) / len(chosen))
        assert pass_hat_k(6, successes, k) == pytest.approx(sum(all(c) for c in chosen) / len(chosen))


def test_an_evaluation_averages_pass_at_k_over_fully_judged_tasks() -> None:
    """Three repeats of four tasks, the last with an error: successes 3, 1, 0. pass@2 = (1 + 2/3 + 0) / 3, pass^2 = 1/3."""
    evaluation = evaluated("a", "1101", "100e", "1001")
    assert [found.k for found in evaluation.pass_at_k] == [1, 2, 3]
    assert [found.value for found in evaluation.pass_at_k] == pytest.approx([4 / 9, 5 / 9, 2 / 3])
    assert [found.value for found in evaluation.pass_hat_k] == pytest.approx([4 / 9, 1 / 3, 1 / 3])
    assert {found.n for found in evaluation.pass_hat_k} == {3}
    for found in (*evaluation.pass_at_k, *evaluation.pass_hat_k):
        assert 0 <= found.ci_low < found.value < found.ci_high <= 1


def test_without_repeats_there_is_no_pass_at_k() -> None:
    assert evaluated("a", "110").pass_at_k == ()
    assert estimate_over_k(pass_at_k, []) == ()


def test_a_rate_with_repeats_is_for_tasks() -> None:
    """Repeats that agree add episodes and no evidence: the interval stays about as wide as without them."""
    once, often = evaluated("a", "1100" * 5).rate, evaluated("a", *["1100" * 5] * 8).rate
    assert (once.n, often.n) == (20, 160)
    width = (once.ci_high or 1) - (once.ci_low or 0)
    assert width <= (often.ci_high or 1) - (often.ci_low or 0) < 1.2 * width
