"""Tests and effect sizes against scipy, and against hand-derived values where scipy has none."""

from __future__ import annotations

import math
import random
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from quintain.evaluation.statistics.significance import (
    benjamini_hochberg,
    bonferroni,
    cohens_dz,
    compact_letter_display,
    equivalence,
    paired_t,
    required_tasks,
    t_interval,
    wilcoxon,
)


def scores(n: int, seed: int, shift: float = 0.0, digits: int | None = None) -> list[float]:
    drawn = random.Random(seed)
    return [value if digits is None else round(value, digits) for value in (drawn.gauss(shift, 1) for _ in range(n))]


@pytest.mark.parametrize("n", [3, 5, 10, 30, 100])
@pytest.mark.parametrize("digits", [None, 1])
def test_every_test_gives_scipys_p_value_to_nine_digits(n: int, digits: int | None) -> None:
    a, b = scores(n, 1, digits=digits), scores(n, 2, shift=0.4, digits=digits)
    differences = [y - x for x, y in zip(a, b, strict=True)]
    assert paired_t(differences) == pytest.approx(stats.ttest_rel(b, a).pvalue, abs=1e-9)
    kept = [d for d in differences if d]
    tied = len({abs(d) for d in kept}) < len(kept)
    signed = "exact" if len(kept) <= 50 and not tied else "approx"
    assert wilcoxon(differences) == pytest.approx(stats.wilcoxon(kept, method=signed).pvalue, abs=1e-9)


def test_without_variance_a_difference_is_significant_and_none_is_not() -> None:
    assert paired_t([1.0, 1.0, 1.0]) == 0.0
    assert paired_t([0.0, 0.0, 0.0]) == 1.0
    assert wilcoxon([0.0, 0.0]) == 1.0
    assert t_interval([2.0, 2.0, 2.0]) == (2.0, 2.0, "no variance")


def test_equivalence_is_the_worse_of_two_one_sided_tests() -> None:
    differences = scores(40, 5)
    shifted = [d * 0.01 for d in differences]
    expected = max(
        stats.ttest_1samp(shifted, -0.05, alternative="greater").pvalue,
        stats.ttest_1samp(shifted, 0.05, alternative="less").pvalue,
    )
    assert equivalence(shifted, 0.05) == pytest.approx(expected, abs=1e-12)
    assert equivalence(shifted, 0.05) < 0.001
    assert equivalence([d + 1 for d in shifted], 0.05) > 0.99


def test_equivalence_without_a_task_that_differs_is_the_chance_to_see_none() -> None:
    """0.95^2 = 0.9025; 0.95^58 is still above 0.05 and 0.95^59 below. All 10 differ by 0.02: (0.95 / 0.98)^10. One of 40 differs
    by half: 0.95^40 + 40 x 0.05 x 0.95^39 = 0.1285 + 0.2706.
    """
    assert equivalence([0.0] * 2, 0.05) == pytest.approx(0.9025)
    assert equivalence([0.0] * 59, 0.05) < 0.05 < equivalence([0.0] * 58, 0.05)
    assert equivalence([0.02] * 10, 0.05) == pytest.approx((0.95 / 0.98) ** 10)
    assert equivalence([0.05] * 10, 0.05) == equivalence([0.5] * 10, 0.05) == 1.0
    assert equivalence([0.5] + [0.0] * 39, 0.05) == pytest.approx(0.1285 + 0.2706, abs=1e-4)
    assert equivalence([1.0] * 2, 0.05) > 0.9


def test_equivalence_of_solved_tasks_is_tangos_score_test() -> None:
    """5 of 200 for b alone: at a mean of 0.05 no loss is likeliest, so z = (5 - 10) / sqrt(200 x 0.05 x 0.95). With 5 against
    4 of 150: 300 q^2 + (0.05 x 299 - 9) q - 4 x 0.05 x 0.95 = 0, q = 0.017133, z = -6.5 / sqrt(150 x (2 q + 0.0475)).
    """
    one_sided = equivalence([1] * 5 + [0] * 195, 0.05)
    assert one_sided == pytest.approx(stats.norm.cdf(-5 / math.sqrt(9.5)))
    assert one_sided == equivalence([-1] * 5 + [0] * 195, 0.05)
    assert equivalence([1] * 5 + [-1] * 4 + [0] * 141, 0.05) == pytest.approx(
        stats.norm.cdf(-6.5 / math.sqrt(150 * (2 * 0.017133 + 0.0475))), abs=1e-5
    )


@pytest.mark.parametrize("losses", [0.0, 0.02, 0.1])
@pytest.mark.parametrize("n", [2, 20, 59, 100, 200])
def test_agents_that_differ_by_the_margin_are_called_equivalent_in_one_of_twenty_at_most(n: int, losses: float) -> None:
    """1,000 draws at a rate of 0.05 deviate by 0.0069: three of these."""
    drawn = np.random.default_rng(n).multinomial(n, [losses + 0.05, losses, 0.95 - 2 * losses], size=1000)
    counts, times = np.unique(drawn, axis=0, return_counts=True)
    found = [equivalence([1] * a + [-1] * b + [0] * c, 0.05) < 0.05 for a, b, c in counts.tolist()]
    assert times[found].sum() <= 1000 * (0.05 + 3 * 0.0069)


def test_corrections_equal_hand_derived_numbers() -> None:
    """Benjamini-Hochberg of (0.01, 0.04, 0.03): sorted 0.01 x 3/1, 0.03 x 3/2, 0.04 x 3/3, then the least from above."""
    assert bonferroni([0.01, 0.04, 0.5]) == pytest.approx([0.03, 0.12, 1.0])
    assert benjamini_hochberg([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.04, 0.04])
    assert benjamini_hochberg([]) == []


def test_the_interval_of_a_mean_is_students_and_agrees_with_the_paired_t_test() -> None:
    values = scores(12, 7)
    t = stats.t.interval(0.95, 11, loc=np.mean(values), scale=stats.sem(values))
    assert t_interval(values) == (pytest.approx(t[0]), pytest.approx(t[1]), "t interval")
    for wins in range(10):
        differences = [1.0] * wins + [0.0] * (10 - wins)
        low, _, _ = t_interval(differences)
        assert (low > 0) == (paired_t(differences) < 0.05), wins


def test_effect_sizes_equal_hand_derived_numbers_and_keep_their_sign() -> None:
    """Differences 1, 2, 3: mean 2, deviation 1."""
    assert cohens_dz([1, 2, 3]) == pytest.approx(2.0)
    assert cohens_dz([-1, -2, -3]) == pytest.approx(-2.0)
    assert cohens_dz([1, 1]) is None


def test_the_number_of_tasks_is_connors_and_has_the_power_that_it_promises() -> None:
    """psi 0.2, d 0.05: (1.95996 x 0.44721 + 0.84162 x 0.44441)^2 / 0.0025 = 625.6."""
    n = required_tasks(0.05, 0.2)
    assert n == 626
    assert required_tasks(-0.05, 0.2) == n
    drawn = np.random.default_rng(0)
    counts = drawn.multinomial(n, [0.125, 0.075, 0.8], size=1000)
    found = {(b, c): stats.binomtest(b, b + c).pvalue < 0.05 for b, c in {(b, c) for b, c, _ in counts.tolist()}}
    assert np.mean([found[b, c] for b, c, _ in counts.tolist()]) == pytest.approx(0.8, abs=0.05)


@given(st.integers(1, 7), st.data())
def test_two_agents_share_a_letter_exactly_where_they_do_not_differ(n: int, data: st.DataObject) -> None:
    names = [f"agent-{i}" for i in range(n)]
    pairs = list(combinations(names, 2))
    different = data.draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    shown = compact_letter_display(names, different)
    assert all(shown.values())
    assert {pair for pair in pairs if not set(shown[pair[0]]) & set(shown[pair[1]])} == set(different)
