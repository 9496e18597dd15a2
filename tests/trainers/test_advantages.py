from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from quintain.trainers.losses.advantages import group_advantages, step_advantages
from quintain.trainers.losses.grpo import grpo_loss
from quintain.trainers.losses.step_weights import cloning_weights, step_weights
from trainers.loss_runs import Group, Run, result_of

rewards = st.floats(-1e6, 1e6, allow_subnormal=False)


@pytest.mark.parametrize(
    ("given_rewards", "expected"),
    [
        ([0.2, 0.8, 0.5], [0.4, 1.6, 1.0]),  # over their mean, 0.5
        ([-1.0, 2.0, 2.0], [0.0, 1.5, 1.5]),  # of mean 1 > 0; kept 0, 2, 2 with mean 4/3
        ([0.2, 0.8, None], [0.4, 1.6, 1.0]),  # a step of unknown reward has factor 1, the others share theirs
        ([None, -1.0, 3.0, math.inf], [1.0, 0.0, 2.0, 1.0]),
    ],
)
def test_step_weights_are_rewards_over_their_mean_and_never_negative(
    given_rewards: list[float | None], expected: list[float]
) -> None:
    assert step_weights(given_rewards) == pytest.approx(expected)


def test_rewards_that_do_not_rank_steps_weigh_all_alike() -> None:
    """Missing, not finite, or mean not above 0: never all weights 0, which would train on nothing."""
    nan, inf = math.nan, math.inf
    for rewards in ([0.0, 0.0], [1.0, None], [None, None], [1.0, nan], [1.0, inf], [-1.0, 0.5], [-2.0, -1.0]):
        assert step_weights(rewards) == [1.0, 1.0]
    assert step_weights([]) == []


@settings(max_examples=25)
@given(st.lists(rewards | st.none(), min_size=1, max_size=20))
def test_step_weights_are_never_negative_and_have_mean_one(given_rewards: list[float | None]) -> None:
    factors = np.asarray(step_weights(given_rewards))
    assert (factors >= 0).all()
    assert factors.mean() == pytest.approx(1.0)


def test_group_advantages_by_hand() -> None:
    """Rewards 1, 0, 0, 1: mean 0.5, deviations 0.5; sample std sqrt(4 * 0.25 / 3) = 0.577350; 0.5 / 0.577450 = 0.865876."""
    assert group_advantages([1, 0, 0, 1], scale=False) == pytest.approx([0.5, -0.5, -0.5, 0.5])
    scaled = group_advantages([1, 0, 0, 1], scale=True)
    assert scaled == pytest.approx([0.865876, -0.865876, -0.865876, 0.865876], abs=1e-6)


def test_group_advantages_take_the_deviation_that_torch_std_takes() -> None:
    """TRL: (r - mean) / (torch.std(r) + 1e-4), with Bessel's correction."""
    values = torch.tensor([0.3, 0.9, 0.1, 0.35, 0.2], dtype=torch.float64)
    expected = (values - values.mean()) / (values.std() + 1e-4)
    assert group_advantages(values.tolist(), scale=True) == pytest.approx(expected.tolist())


def test_a_group_without_differences_has_no_advantages() -> None:
    """0.1 + 0.2 is 0.3 up to rounding, which is not a difference of reward."""
    for flat in ([], [1.0], [0.3, 0.3, 0.3], [0.1 + 0.2, 0.3], [1.0, None], [0.0, 0.0]):
        assert group_advantages(flat, scale=True) is None
        assert group_advantages(flat, scale=False) is None


def test_a_run_without_reward_stays_out_of_the_mean_and_gets_zero() -> None:
    """Known 1 and 0: mean 0.5. A missing reward taken as 0 would have made it 1/3."""
    assert group_advantages([1.0, None, 0.0], scale=False) == pytest.approx([0.5, 0.0, -0.5])


def test_step_advantages_by_hand() -> None:
    """r = 0, 1, 2: mean 1, u = -1, 0, 1; A = 2: 2 + 0.5 * 2 * u = 1, 2, 3.

    The same steps with A = -2: -2 + 0.5 * 2 * u = -3, -2, -1: a bad run blames its better steps less. A r / mean(r) would
    give 0, -2, -4: the wrong way round. A step of unknown reward keeps A: known 0 and 4, u = -1 and 1; A = 1: 0.5, 1, 1.5.
    """
    assert step_advantages(2.0, [0.0, 1.0, 2.0]) == pytest.approx([1.0, 2.0, 3.0])
    assert step_advantages(-2.0, [0.0, 1.0, 2.0]) == pytest.approx([-3.0, -2.0, -1.0])
    assert step_advantages(1.0, [0.0, None, 4.0]) == pytest.approx([0.5, 1.0, 1.5])


def test_without_different_step_rewards_all_steps_get_the_same() -> None:
    for rewards in ([None, None], [0.0, 0.0], [3.0, None], [math.nan, 2.0], [-1.0, -1.0]):
        assert step_advantages(0.7, rewards) == [0.7, 0.7]
    assert step_advantages(1.5, [9.0]) == [1.5]
    assert step_advantages(1.5, []) == []
    assert step_advantages(0.0, [1.0, 2.0]) == [0.0, 0.0]


@settings(max_examples=25)
@given(
    advantage=st.floats(-100, 100).filter(lambda a: abs(a) > 1e-6),
    step_rewards=st.lists(rewards | st.none(), min_size=1, max_size=12),
)
def test_step_advantages_keep_mean_sign_and_order(advantage: float, step_rewards: list[float | None]) -> None:
    """The mean is A, no step changes sides, and a better step never gets less than a worse one."""
    spread = np.asarray(step_advantages(advantage, step_rewards))
    assert spread.mean() == pytest.approx(advantage, rel=1e-9)
    assert (np.sign(spread) == math.copysign(1, advantage)).all()
    assert (np.abs(spread) <= 1.5 * abs(advantage) * (1 + 1e-9)).all()
    known = [(r, a) for r, a in zip(step_rewards, spread, strict=True) if r is not None]
    assert all(a >= b - 1e-12 * abs(advantage) for r, a in known for s, b in known if r > s)


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_step_advantages_do_not_cancel_in_the_gradient(advantage: float) -> None:
    """Averaged over a run before the loss, step credit is A again and nothing is gained. Token by token it is not:
    steps of one token each with rewards 0 and 1, on-policy: gradients -A_j / 2, so for A = 1 -0.25 and -0.75, and for
    A = -1 0.75 and 0.25. In both, the better step's token ends up likelier than under a uniform advantage.
    """
    spread = step_advantages(advantage, [0.0, 1.0])
    run = Run([-1.0, -1.0], advantage=spread)
    gradient = result_of(grpo_loss, [Group([run])], clip_low=0.2, clip_high=0.2).gradient[0]
    assert gradient == pytest.approx([-0.25, -0.75] if advantage > 0 else [0.75, 0.25])


def test_cloning_weights_by_hand() -> None:
    """T = 1 / ln2, so e^(r/T) = 2^r: rewards 0, 1, 2 give 1, 2, 4 of 7, times 3."""
    assert cloning_weights([0.0, 1.0, 2.0], 1 / math.log(2)) == pytest.approx([3 / 7, 6 / 7, 12 / 7])


def test_cloning_weights_are_finite_at_the_ends_of_temperature() -> None:
    """Rewards 1,000 temperatures apart: the best run takes all. A huge temperature: all alike."""
    assert cloning_weights([0.0, 1.0], 1e-3) == pytest.approx([0.0, 2.0])
    assert cloning_weights([-5e8, 5e8], 1e12) == pytest.approx([1.0, 1.0], rel=1e-3)
