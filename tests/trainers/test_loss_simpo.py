from __future__ import annotations

import math

import pytest

from quintain.trainers.losses.simpo import simpo_loss
from trainers.loss_runs import Group, Run, result_of

PAIR = Group([Run([-0.5, -1.5]), Run([-2.0])])
"""Mean log-probs -1 and -2."""


def test_the_loss_and_its_metrics_by_hand() -> None:
    """beta 2, gamma 1: -log sigma(2 * (-1) - 2 * (-2) - 1) = -log sigma(1) = 0.313262.

    Gradient of each of the two chosen tokens: -sigma(-1) * 2 / 2 = -0.268941; of the rejected one 2 * 0.268941.
    """
    result = result_of(simpo_loss, [PAIR], beta=2.0, gamma=1.0)
    assert result.loss == pytest.approx(0.313262, abs=1e-6)
    assert result.gradient == [pytest.approx([-0.268941] * 2, abs=1e-6), pytest.approx([0.537883], abs=1e-6)]
    assert result.metrics == {
        "chosen_reward": pytest.approx(-2.0),
        "rejected_reward": pytest.approx(-4.0),
        "reward_margin": pytest.approx(2.0),
        "reward_accuracy": 1.0,
    }


@pytest.mark.parametrize("beta", [0.5, 2.0, 10.0])
def test_gamma_is_a_margin_of_rewards_not_of_log_probs(beta: float) -> None:
    """Means that differ by gamma / beta nats stand just at the margin: log 2 for every beta."""
    group = Group([Run([-1.0]), Run([-1.0 - 1.4 / beta])])
    assert result_of(simpo_loss, [group], beta=beta, gamma=1.4).loss == pytest.approx(math.log(2))


def test_token_weights_weigh_the_mean_and_equal_sides_give_log_two() -> None:
    """Chosen (3 * -0.5 + 1 * -1.5) / 4 = -0.75 instead of -1; beta 2: reward -1.5."""
    group = Group([Run([-0.5, -1.5], weight=[3.0, 1.0]), Run([-2.0])])
    assert result_of(simpo_loss, [group], beta=2.0, gamma=0.0).metrics["chosen_reward"] == pytest.approx(-1.5)
    equal = Group([Run([-1.0, -1.0]), Run([-1.0])])
    assert result_of(simpo_loss, [equal], beta=2.0, gamma=0.0).loss == pytest.approx(math.log(2))


def test_a_pair_with_an_empty_side_is_refused() -> None:
    with pytest.raises(ValueError, match="got 1 of 2 runs without"):
        result_of(simpo_loss, [Group([Run([-1.0], weight=0.0), Run([-1.0])])], beta=2.0, gamma=1.0)


@pytest.mark.parametrize("sides", [(-math.inf, -1.0), (-1.0, -math.inf), (-math.inf, -math.inf)])
def test_impossible_tokens_give_no_nan_gradient_under_a_finite_loss(sides: tuple[float, float]) -> None:
    """Only an impossible rejected run has a finite loss, -log sigma(inf) = 0, and nothing left to learn."""
    result = result_of(simpo_loss, [Group([Run([x]) for x in sides])], beta=2.0, gamma=1.0)
    if sides[0] == -1.0:
        assert result.loss == 0.0
        assert result.gradient == [[0.0], [0.0]]
    else:
        assert not math.isfinite(result.loss)
