"""Sequential statistics against numbers by hand and scipy's beta function; how often they fail is measured by `benchmarks.sequential`."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import beta

from evaluation.test_comparison import evaluated
from quintain.evaluation.comparison import compare, decide
from quintain.evaluation.reports.report import sequential_verdict
from quintain.evaluation.statistics.sequential import (
    capital_e_value,
    confidence_sequence,
    log_capitals,
    paired_e_value,
    sequential_test,
)
from quintain.evaluation.statistics.significance import mcnemar_mid_p


def test_the_e_value_is_a_product_of_predictions() -> None:
    """Each discordant task multiplies it by 2 (k + 1/2) / (n + 1), with k earlier tasks of its kind among n (Krichevsky-Trofimov)."""
    assert paired_e_value(0, 0) == pytest.approx(1.0)
    assert paired_e_value(0, 3) == pytest.approx((2 * 0.5) * (2 * 1.5 / 2) * (2 * 2.5 / 3))
    assert paired_e_value(1, 1) == pytest.approx(1 * (2 * 0.5 / 2))
    for a, b in ((2, 8), (0, 7), (40, 17)):
        assert paired_e_value(a, b) == pytest.approx(beta(a + 0.5, b + 0.5) / beta(0.5, 0.5) * 2 ** (a + b))
        assert paired_e_value(a, b) == pytest.approx(paired_e_value(b, a))
    assert paired_e_value(0, 5000) == math.inf


def test_capitals_grow_by_truncated_bets() -> None:
    """Outcomes 1, 1/2 against a mean of 1/4 at level 0.05.

    First bet: sqrt(2 log 40 / (1/4 * 1 * log 2)) = 6.525, truncated to 0.5 / 0.25 = 2 upward and 0.5 / 0.75 downward.
    Mean after one outcome (1/2 + 1) / 2 = 0.75, variance (1/4 + 0.25^2) / 2 = 0.15625.
    Second bet: sqrt(2 log 40 / (0.15625 * 2 * log 3)) = 4.636, truncated to the same.
    """
    up, down = log_capitals(np.array([1.0, 0.5]), np.array([0.25]))
    assert np.exp(up[:, 0]) == pytest.approx([1 + 2 * 0.75, (1 + 2 * 0.75) * (1 + 2 * 0.25)])
    assert np.exp(down[:, 0]) == pytest.approx([1 - 2 / 3 * 0.75, (1 - 2 / 3 * 0.75) * (1 - 2 / 3 * 0.25)])
    bet = math.sqrt(
        2 * math.log(40) / (0.25 / 30 * 30 * math.log(31))
    )  # 2.9, the 30th of equal outcomes: below 0.5 / 0.05
    up, _ = log_capitals(np.full(30, 0.5), np.array([0.05]))
    assert np.exp(up[29, 0] - up[28, 0]) == pytest.approx(1 + bet * 0.45)


def test_the_confidence_sequence_keeps_what_was_never_rejected_and_takes_fractions() -> None:
    assert confidence_sequence([]) == (0.0, -1.0, 1.0)
    rng = np.random.default_rng(0)
    differences = rng.choice([-1.0, -0.5, 0.0, 0.5, 1.0], p=[0.05, 0.1, 0.5, 0.2, 0.15], size=600).tolist()
    value, low, high = confidence_sequence(differences)
    assert low < 0.15 < high
    assert value == pytest.approx(np.mean(differences))
    _, earlier_low, earlier_high = confidence_sequence(differences[:300])
    assert earlier_low <= low < high <= earlier_high
    up, down = log_capitals((np.array(differences) + 1) / 2, (np.array([low, low + 0.003, high - 0.003, high]) + 1) / 2)
    kept = np.maximum(up, down).max(0) < math.log(40)
    assert kept.tolist() == [False, True, True, False], "bounds are the first rejected candidates"
    assert capital_e_value(differences) == pytest.approx(
        np.mean([np.exp(side[-1, 0]) for side in log_capitals((np.array(differences) + 1) / 2, np.array([0.5]))])
    )


@pytest.mark.parametrize(
    ("differences", "planned", "decision"),
    [
        ([1.0] * 7, 100, "difference"),  # E = 26.8; after six it is 14.4
        ([1.0] * 6, 100, "undecided"),
        ([1.0, -1.0] * 3 + [0.0] * 400, 5000, "equivalent"),
        ([1.0, -1.0] * 40 + [0.0] * 200, 300, "hopeless"),
        ([1.0] * 6, 6, "exhausted"),
    ],
)
def test_a_comparison_ends_when_it_is_sure_or_hopeless(differences: list[float], planned: int, decision: str) -> None:
    test = sequential_test(differences, planned, 0.05, is_binary=True)
    assert (test.decision, test.n_tasks, test.n_planned) == (decision, len(differences), planned)


def test_repeats_are_averaged_and_tasks_without_verdicts_left_out() -> None:
    """t0 differs by 1/2, t1 by -1, t2 has an error of b; t3 is not played yet."""
    a, b = evaluated("a", "011", "010").results, evaluated("b", "10e", "001").results
    test = decide(a, b, ["t0", "t1", "t2"], repeats=2, planned=4)
    assert (test.difference, test.n_tasks, test.n_planned) == (pytest.approx(-0.25), 2, 3)
    assert test.e_value == pytest.approx(capital_e_value([0.5, -1.0]))


def test_a_comparison_that_was_stopped_has_no_figures_of_a_fixed_size() -> None:
    a, b = evaluated("a", "0" * 10), evaluated("b", "1" * 10)
    test = decide(a.results, b.results, [f"t{i}" for i in range(10)], repeats=1, planned=50)
    (pair,) = compare([a, b], ["a", "b"], "cmp-1", None, sequential=test).comparisons
    assert (pair.p, pair.significant) == (pytest.approx(1 / paired_e_value(0, 10)), True)
    assert (pair.ci_low, pair.ci_high, pair.simultaneous_low) == (test.ci_low, test.ci_high, test.ci_low)
    assert (pair.p_mid, pair.reward, pair.p_equivalent, pair.tasks_for_5_points) == (None, None, None, None)
    (fixed,) = compare([a, b], ["a", "b"], "cmp-2", None).comparisons
    assert fixed.p_mid == pytest.approx(1 / 1024), "half of the exact one, 2 / 1024"


def test_a_verdict_whose_interval_contains_0_says_why() -> None:
    """Seven of seven: E = 26.8 decides, where the confidence sequence still contains 0; ten of ten take it out."""
    verdicts = []
    for n in (7, 10):
        a, b = evaluated("a", "0" * n), evaluated("b", "1" * n)
        test = decide(a.results, b.results, [f"t{i}" for i in range(n)], repeats=1, planned=50)
        assert test.ci_low == round(test.ci_low, 3)
        verdicts.append(sequential_verdict(compare([a, b], ["a", "b"], "cmp-1", None, sequential=test)))
    assert verdicts[0].startswith("b is better, decided after 7 tasks of 50: +100.0% [-")
    assert verdicts[0].endswith(
        "e-value 26.8. The interval comes from a separate test, which needs more tasks to exclude 0."
    )
    assert verdicts[1].endswith("e-value 180.")


def test_mid_p_halves_the_probability_of_the_observed_table() -> None:
    """1 against 7: 2 P(X = 0) + P(X = 1) = (2 + 8) / 256; 3 against 3 is as even as can be."""
    assert mcnemar_mid_p(1, 7) == mcnemar_mid_p(7, 1) == pytest.approx(10 / 256)
    assert mcnemar_mid_p(3, 3) == pytest.approx(1 - 20 / 64 / 2)
    assert mcnemar_mid_p(0, 0) == 1.0
