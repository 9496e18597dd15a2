from __future__ import annotations

from itertools import combinations

import pytest

from evaluation.test_comparison import evaluated
from quintain.evaluation.statistics.success_rates import estimate_over_k, pass_at_k, pass_hat_k


@pytest.mark.parametrize("successes", range(7))
def test_they_are_means_over_all_choices_of_k_attempts(successes: int) -> None:
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


def test_without_repeats_there_is_nothing_to_say() -> None:
    assert evaluated("a", "110").pass_at_k == ()
    assert estimate_over_k(pass_at_k, [], 4) == ()


def test_a_rate_with_repeats_is_for_tasks() -> None:
    """Repeats that agree add episodes and no evidence: the interval stays about as wide as without them."""
    once, often = evaluated("a", "1100" * 5).rate, evaluated("a", *["1100" * 5] * 8).rate
    assert (once.n, often.n) == (20, 160)
    width = (once.ci_high or 1) - (once.ci_low or 0)
    assert width <= (often.ci_high or 1) - (often.ci_low or 0) < 1.2 * width
