from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from quintain.trainers.losses.reference_free import log_odds, orpo_loss, simpo_loss
from trainers.loss_runs import Group, Run, result_of

LN2 = math.log(2)


def pair(chosen: list[float], rejected: list[float], **streams: Any) -> Group:
    return Group([Run(chosen, **streams), Run(rejected)])


def test_orpo_its_metrics_and_gradient_by_hand() -> None:
    """Chosen: mean of log 1/2 and log 1/2, odds 1. Rejected: chance 1/4, odds (1/4) / (3/4) = 1/3.

    Log odds ratio log 3; -log sigma(log 3) = log(4/3) = 0.287682. With beta 0.5: log 2 + 0.5 * 0.287682 = 0.836988.
    d log odds / dm = 1 / (1 - p): 2 for the chosen run, 4/3 for the rejected one; sigma(-log 3) = 1/4.
    Chosen, each of 2 tokens: (-1 - 0.5 * 1/4 * 2) / 2 = -0.625. Rejected: 0.5 * 1/4 * 4/3 = 1/6.
    Token weights 3 and 1 weigh the mean: (3 * log 1/2 + 1 * log 1/8) / 4 = -(3 + 3) / 4 ln2 = -1.5 ln2.
    """
    result = result_of(orpo_loss, [pair([-LN2, -LN2], [-2 * LN2])], beta=0.5)
    assert result.loss == pytest.approx(0.836988, abs=1e-6)
    assert result.metrics["log_odds_ratio"] == pytest.approx(math.log(3))
    assert result.metrics["chosen_nll"] == pytest.approx(LN2)
    assert result.metrics["reward_margin"] == pytest.approx(0.5 * LN2)
    assert result.metrics["reward_accuracy"] == 1.0
    assert result.gradient == [pytest.approx([-0.625] * 2), pytest.approx([1 / 6])]
    weighted = result_of(orpo_loss, [pair([-LN2, -3 * LN2], [-LN2], weight=[3.0, 1.0])], beta=0.5)
    assert weighted.metrics["chosen_nll"] == pytest.approx(1.5 * LN2)


@pytest.mark.parametrize("logprob", [-1e-6, -1e-3, -0.1, -0.7, -5.0, -40.0, -700.0])
def test_log_odds_are_accurate_from_certain_to_impossible(logprob: float) -> None:
    """Reference: x - log(1 - e^x) by math.expm1, whose relative error is below 1e-15."""
    found = log_odds(torch.tensor(logprob, dtype=torch.float64)).item()
    assert found == pytest.approx(logprob - math.log(-math.expm1(logprob)), rel=1e-12)


def test_a_certain_run_has_finite_odds_and_gradient() -> None:
    """log p = 0 counts as -1e-7: log odds log(1e7) = 16.118; against chance 1/2 the loss is log(1 + e^-16.118) = 1e-7."""
    result = result_of(orpo_loss, [pair([0.0, 0.0], [-LN2])], beta=1.0, dtype=torch.float32)
    assert result.metrics["log_odds_ratio"] == pytest.approx(16.118, abs=1e-3)
    assert result.loss == pytest.approx(1e-7, rel=1e-3)
    assert np.isfinite(np.concatenate(result.gradient)).all()
    swapped = result_of(orpo_loss, [pair([-LN2], [0.0, 0.0])], beta=1.0)
    assert swapped.loss == pytest.approx(LN2 + 16.118, abs=1e-3)
    assert np.isfinite(np.concatenate(swapped.gradient)).all()


def test_equal_sides_leave_the_sft_loss_and_log_two() -> None:
    """Equal odds: ln2 + beta ln2 = 1.5 ln2."""
    assert result_of(orpo_loss, [pair([-LN2], [-LN2, -LN2])], beta=0.5).loss == pytest.approx(1.5 * LN2)


@pytest.mark.parametrize("sides", [([], [-1.0]), ([-1.0], [])])
def test_a_pair_with_an_empty_side_is_refused(sides: tuple[list[float], list[float]]) -> None:
    with pytest.raises(ValueError, match="got 1 of 4 runs without"):
        result_of(orpo_loss, [pair(*sides), pair([-1.0], [-1.0])], beta=0.5)


MEANS = Group([Run([-0.5, -1.5]), Run([-2.0])])
"""Mean log-probs -1 and -2."""


def test_simpo_and_its_metrics_by_hand() -> None:
    """beta 2, gamma 1: -log sigma(2 * (-1) - 2 * (-2) - 1) = -log sigma(1) = 0.313262.

    Gradient of each of the two chosen tokens: -sigma(-1) * 2 / 2 = -0.268941; of the rejected one 2 * 0.268941.
    """
    result = result_of(simpo_loss, [MEANS], beta=2.0, gamma=1.0)
    assert result.loss == pytest.approx(0.313262, abs=1e-6)
    assert result.gradient == [pytest.approx([-0.268941] * 2, abs=1e-6), pytest.approx([0.537883], abs=1e-6)]
    assert result.metrics == {
        "chosen_reward": pytest.approx(-2.0),
        "rejected_reward": pytest.approx(-4.0),
        "reward_margin": pytest.approx(2.0),
        "reward_accuracy": 1.0,
    }


@pytest.mark.parametrize("beta", [0.5, 2.0, 10.0])
def test_gamma_of_simpo_is_a_margin_of_rewards_not_of_log_probs(beta: float) -> None:
    """Means that differ by gamma / beta nats stand just at the margin: log 2 for every beta."""
    group = Group([Run([-1.0]), Run([-1.0 - 1.4 / beta])])
    assert result_of(simpo_loss, [group], beta=beta, gamma=1.4).loss == pytest.approx(math.log(2))


def test_token_weights_weigh_the_mean_of_simpo_and_equal_sides_give_log_two() -> None:
    """Chosen (3 * -0.5 + 1 * -1.5) / 4 = -0.75 instead of -1; beta 2: reward -1.5."""
    group = Group([Run([-0.5, -1.5], weight=[3.0, 1.0]), Run([-2.0])])
    assert result_of(simpo_loss, [group], beta=2.0, gamma=0.0).metrics["chosen_reward"] == pytest.approx(-1.5)
    equal = Group([Run([-1.0, -1.0]), Run([-1.0])])
    assert result_of(simpo_loss, [equal], beta=2.0, gamma=0.0).loss == pytest.approx(math.log(2))
