from __future__ import annotations

import math

import numpy as np
import pytest

from quintain.trainers.losses.dpo import dpo_loss
from quintain.trainers.losses.ranking import ranking_loss
from trainers.loss_runs import Group, Run, assert_same, result_of


def run(log_ratio: float) -> Run:
    return Run([-1.0, -2.0], reference=[-1.0 - log_ratio, -2.0])


RANKED = Group([run(0.5), run(0.0), run(-1.0)], (1.0, 0.5, 0.0), 3.0)


def test_the_loss_is_the_mean_over_all_pairs_of_different_value() -> None:
    """beta 1. h of pairs 01, 02, 12: 0.5, 1.5, 1: losses log(1 + e^-h) 0.474077, 0.201413, 0.313262; mean 0.329584.

    Margins 0.5 + 1.5 + 1 = 3, mean 1. Chosen rewards 0.5, 0.5, 0; rejected 0, -1, -1.
    The worst run's gradient: (sigma(-1.5) + sigma(-1)) / 3 = (0.182426 + 0.268941) / 3 = 0.150456 a token.
    """
    result = result_of(ranking_loss, [RANKED], beta=1.0)
    assert result.loss == pytest.approx(0.329584, abs=1e-6)
    assert result.gradient[2] == pytest.approx([0.150456] * 2, abs=1e-6)
    assert result.metrics == {
        "chosen_reward": pytest.approx(1 / 3),
        "rejected_reward": pytest.approx(-2 / 3),
        "reward_margin": pytest.approx(1.0),
        "reward_accuracy": 1.0,
    }


def test_the_order_of_members_does_not_matter() -> None:
    shuffled = Group([RANKED.runs[i] for i in (2, 0, 1)], (0.0, 1.0, 0.5), 3.0)
    one, other = (result_of(ranking_loss, [group], beta=0.3) for group in (RANKED, shuffled))
    assert other.loss == pytest.approx(one.loss)
    assert other.gradient == [pytest.approx(one.gradient[i]) for i in (2, 0, 1)]


def test_a_ranking_of_two_is_a_dpo_pair() -> None:
    group = Group([run(0.7), run(-0.2)], (1.0, 0.0))
    assert_same(result_of(ranking_loss, [group], beta=0.4), result_of(dpo_loss, [group], beta=0.4))


def test_every_pair_of_the_step_counts_the_same() -> None:
    """Three pairs with sum 0.988752 and one of h = 0 with log 2: (0.988752 + 0.693147) / 4 = 0.420475."""
    even = Group([run(0.0), run(0.0)], (1.0, 0.0), 1.0)
    assert result_of(ranking_loss, [RANKED, even], beta=1.0).loss == pytest.approx(0.420475, abs=1e-6)


def test_members_of_equal_or_unknown_value_make_no_pair() -> None:
    """Values 1, 1, 0, nan: pairs 02 and 12 only, h = 1.5 and 1: (0.201413 + 0.313262) / 2 = 0.257337."""
    group = Group([*RANKED.runs, run(5.0)], (1.0, 1.0, 0.0, math.nan), 2.0)
    result = result_of(ranking_loss, [group], beta=1.0)
    assert result.loss == pytest.approx(0.257337, abs=1e-6)
    assert result.gradient[3] == [0.0, 0.0]


def test_runs_of_different_examples_are_never_compared() -> None:
    """A group without differences adds nothing, whatever its runs are beside another group's; alone it has no metrics."""
    flat = Group([run(9.0), run(-9.0)], (0.7, 0.7), 0.0)
    result = result_of(ranking_loss, [RANKED, flat], beta=1.0)
    assert result.loss == pytest.approx(0.329584, abs=1e-6)
    assert result.gradient[3:] == [[0.0, 0.0], [0.0, 0.0]]
    assert result_of(ranking_loss, [flat], beta=1.0) == (0.0, [[0.0, 0.0], [0.0, 0.0]], {})


def test_unknown_reference_log_probs_are_refused_with_their_number() -> None:
    group = Group([Run([-1.0, -2.0], reference=[math.nan, math.inf]), run(1.0)], (1.0, 0.0))
    with pytest.raises(ValueError, match="2 of 4 values that are not finite"):
        result_of(ranking_loss, [group], beta=1.0)


@pytest.mark.parametrize("impossible", [0, 1])
def test_an_impossible_run_gives_no_nan_gradient_under_a_finite_loss(impossible: int) -> None:
    """As the better run its loss is infinite; as the worse one it is 0 with nothing left to learn."""
    runs = [run(0.0), run(0.0)]
    runs[impossible] = Run([-math.inf, -2.0], reference=[-1.0, -2.0])
    result = result_of(ranking_loss, [Group(runs, (1.0, 0.0))], beta=1.0)
    assert result.loss == (math.inf if impossible == 0 else 0.0)
    assert np.isfinite(np.concatenate(result.gradient)).all()
