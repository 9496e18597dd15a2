from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from quintain.trainers.data.streams import streams_of
from quintain.trainers.losses.dpo import dpo_loss, ranking_loss
from quintain.trainers.losses.loss_output import totals_of
from trainers.loss_runs import Group, Run, assert_same, result_of

LN2 = math.log(2)


def pair(chosen: Run, rejected: Run, weight: float = 1.0) -> Group:
    return Group([chosen, rejected], (1.0, -1.0), weight)


PAIR = pair(Run([-1.0, -2.0], reference=[-1.5, -2.5]), Run([-3.0], reference=[-2.0]))
"""Log-ratios: chosen 0.5 + 0.5 = 1, rejected -1; h = 2."""


def test_the_sigmoid_loss_and_its_metrics_by_hand() -> None:
    """h = 1 - (-1) = 2, beta = 0.5: -log sigma(1) = log(1 + e^-1) = 0.313262.

    Each chosen token's gradient is -beta sigma(-beta h) = -0.5 * 0.268941 = -0.134471; the rejected token's is the same
    with the other sign. Rewards beta r: 0.5 and -0.5; margin 1; the pair is in order.
    """
    result = result_of(dpo_loss, [PAIR], beta=0.5)
    assert result.loss == pytest.approx(0.313262, abs=1e-6)
    assert result.gradient == [pytest.approx([-0.134471] * 2, abs=1e-6), pytest.approx([0.134471], abs=1e-6)]
    assert result.metrics == {
        "chosen_reward": pytest.approx(0.5),
        "rejected_reward": pytest.approx(-0.5),
        "reward_margin": pytest.approx(1.0),
        "reward_accuracy": 1.0,
    }


def test_the_other_forms_by_hand() -> None:
    """Hinge: max(0, 1 - 0.25 * 2) = 0.5, and 0 with beta 1.

    - ipo averages over tokens: 1/2 - (-1/1) = 1.5; (1.5 - 1 / (2 * 0.5))^2 = 0.25.
    - sigmoid_norm takes the same means: log(1 + e^-0.75) = 0.386871.
    - Label smoothing takes a share of pairs as flipped: 0.9 * 0.313262 + 0.1 * log(1 + e^1) = 0.281936 + 0.131326.
    - Without a reference the log-probs are compared: h = (-1 - 2) - (-3) = 0, so log 2, though the rows have none.
    """
    assert result_of(dpo_loss, [PAIR], beta=0.25, loss="hinge").loss == pytest.approx(0.5)
    assert result_of(dpo_loss, [PAIR], beta=1.0, loss="hinge").loss == 0.0
    assert result_of(dpo_loss, [PAIR], beta=0.5, loss="ipo").loss == pytest.approx(0.25)
    assert result_of(dpo_loss, [PAIR], beta=0.5, loss="sigmoid_norm").loss == pytest.approx(0.386871, abs=1e-6)
    assert result_of(dpo_loss, [PAIR], beta=0.5, label_smoothing=0.1).loss == pytest.approx(0.413262, abs=1e-6)
    bare = pair(Run([-1.0, -2.0]), Run([-3.0]))
    assert result_of(dpo_loss, [bare], beta=0.5, reference_free=True).loss == pytest.approx(LN2)


@pytest.mark.parametrize(
    ("loss", "options", "expected"),
    [
        ("robust", {"label_smoothing": 0.1}, 0.188262),
        ("exo", {"label_smoothing": 0.1}, 0.114082),
        ("nca", {}, 1.198154),
        ("bco", {}, 0.948154),
        ("sppo", {}, 0.0),
        ("apo_zero", {}, 0.755081),
        ("apo_down", {}, 0.891401),
        ("discopop", {"discopop_tau": 0.5}, 0.361369),
    ],
)
def test_the_younger_forms_by_hand(loss: str, options: dict[str, float], expected: float) -> None:
    """beta 0.5: rewards a = 0.5 and b = -0.5, margin m = 1; sigma(0.5) = 0.622459, sigma(1) = 0.731059.

    - robust: (0.9 * 0.313262 - 0.1 * 1.313262) / 0.8.
    - exo: 0.731059 (log 0.731059 - log 0.9) + 0.268941 (log 0.268941 - log 0.1) = -0.151988 + 0.266070.
    - nca: -log sigma(0.5) - (log sigma(-0.5) + log sigma(0.5)) / 2 = 0.474077 + (0.974077 + 0.474077) / 2.
    - bco: -log sigma(0.5) - log sigma(0.5). sppo: the log-ratios 1 and -1 are where it wants them, at 1 / (2 * 0.5) and -1.
    - apo_zero: (1 - 0.622459) + 0.377541. apo_down: 0.622459 + (1 - 0.731059).
    - discopop: s = sigma(1 / 0.5) = 0.880797: 0.119203 * 0.313262 + 0.880797 * e^-1.
    """
    assert result_of(dpo_loss, [PAIR], beta=0.5, loss=loss, **options).loss == pytest.approx(expected, abs=2e-6)


def test_the_mean_of_the_robust_loss_over_flipped_labels_is_the_loss_of_the_true_ones() -> None:
    """A fifth of the labels flipped: 0.8 l(pair) + 0.2 l(flipped pair) is the plain loss of the pair."""
    flipped = Group(PAIR.runs[::-1], PAIR.value)
    losses = [
        result_of(dpo_loss, [group], beta=0.5, loss="robust", label_smoothing=0.2).loss for group in (PAIR, flipped)
    ]
    assert 0.8 * losses[0] + 0.2 * losses[1] == pytest.approx(0.313262, abs=1e-6)


def test_discopop_is_finite_where_its_exponential_alone_overflows() -> None:
    """m = -2000: e^2000 is infinite and its share 0, so the loss is that of DPO, 2000."""
    group = pair(Run([-2001.0], reference=[-1.0]), Run([-1.0], reference=[-1.0]))
    result = result_of(dpo_loss, [group], beta=1.0, loss="discopop")
    assert result.loss == pytest.approx(2000.0)
    assert result.gradient == [pytest.approx([-1.0]), pytest.approx([1.0])]


def test_tokens_behind_the_shorter_runs_length_weigh_alpha() -> None:
    """Chosen 0.5 + alpha 0.5, rejected -1, beta 0.5: alpha 0.5 gives m = 0.875, alpha 0 gives m = 0.75.

    log(1 + e^-0.875) = 0.348445 and log(1 + e^-0.75) = 0.386871; with 0 the second token has no gradient.
    """
    half, none = (result_of(dpo_loss, [PAIR], beta=0.5, ld_alpha=alpha) for alpha in (0.5, 0.0))
    assert (half.loss, none.loss) == pytest.approx((0.348445, 0.386871), abs=1e-6)
    first, second = half.gradient[0]
    assert second == pytest.approx(first / 2)
    assert none.gradient[0][1] == 0.0


def test_policy_weights_by_hand() -> None:
    """w = e^((0 - 1) / 2) of the chosen run and e^-1 of the rejected one: 0.313262 * 0.606531 * 0.367879 = 0.069898.

    The weight has no gradient: that of a token is 0.223130 times the unweighted one.
    """
    chosen, rejected = PAIR.runs
    group = pair(replace(chosen, collision=[-1.0, -1.0]), replace(rejected, collision=[-2.0]))
    result = result_of(dpo_loss, [group], beta=0.5, policy_weighting=True)
    assert result.loss == pytest.approx(0.069898, abs=1e-6)
    assert result.gradient[0] == pytest.approx([-0.134471 * 0.223130] * 2, abs=1e-6)
    assert result.metrics["policy_weight"] == pytest.approx(0.223130, abs=1e-6)
    with pytest.raises(ValueError, match="expected the stream 'collision'"):
        result_of(dpo_loss, [PAIR], beta=0.5, policy_weighting=True)


def test_a_pair_of_the_likeliest_tokens_weighs_no_more_than_the_policys_own() -> None:
    """Tokens of 0.6 beside one of 0.4: w = 0.6 / (0.36 + 0.16) = 1.1538 for each run, whose product 1.3314 counts as 1."""
    chosen, rejected = (
        Run(logs := [math.log(0.6)] * n, reference=logs, collision=[math.log(0.52)] * n) for n in (3, 2)
    )
    result = result_of(dpo_loss, [pair(chosen, rejected)], beta=0.5, policy_weighting=True)
    assert result.metrics["policy_weight"] == 1.0
    assert result.loss == pytest.approx(LN2)


def test_the_sft_term_is_the_mean_over_each_chosen_runs_tokens() -> None:
    """0.313262 + 0.2 * (1 + 2) / 2 = 0.613262; the rejected run has no such term, so its gradient does not change."""
    result = result_of(dpo_loss, [PAIR], beta=0.5, sft_weight=0.2)
    assert result.loss == pytest.approx(0.613262, abs=1e-6)
    assert result.gradient[0] == pytest.approx([-0.134471 - 0.1] * 2, abs=1e-6)
    assert result.gradient[1] == pytest.approx([0.134471], abs=1e-6)


def test_step_weights_weigh_log_ratios_and_zero_takes_a_shared_step_out() -> None:
    """Chosen 3 * 0.5 + 0 * 0.5 = 1.5, rejected -1: h = 2.5, beta 0.4: log(1 + e^-1) = 0.313262.

    Gradient of the first chosen token: -beta w sigma(-1) = -0.4 * 3 * 0.268941 = -0.322730; the second has none.
    """
    group = pair(Run([-1.0, -2.0], reference=[-1.5, -2.5], weight=[3.0, 0.0]), Run([-3.0], reference=[-2.0]))
    result = result_of(dpo_loss, [group], beta=0.4)
    assert result.loss == pytest.approx(0.313262, abs=1e-6)
    assert result.gradient[0] == pytest.approx([-0.322730, 0.0], abs=1e-6)


def test_an_impossible_token_of_weight_zero_does_not_count() -> None:
    """Without the -inf the pair is PAIR's rejected run against half of its chosen one: h = 0.5 + 1, beta 1."""
    group = pair(Run([-1.0, -math.inf], reference=[-1.5, -2.5], weight=[1.0, 0.0]), PAIR.runs[1])
    result = result_of(dpo_loss, [group], beta=1.0)
    assert result.loss == pytest.approx(math.log1p(math.exp(-1.5)))
    assert result.gradient[0][1] == 0.0


def test_pair_weights_make_a_weighted_mean() -> None:
    """Weights 3 and 1 on losses 0.313262 and log 2: (3 * 0.313262 + 0.693147) / 4 = 0.408233."""
    even = pair(Run([-1.0], reference=[-1.0]), Run([-2.0], reference=[-2.0]))
    heavy = Group(PAIR.runs, PAIR.value, 3.0)
    assert result_of(dpo_loss, [heavy, even], beta=0.5).loss == pytest.approx(0.408233, abs=1e-6)


@pytest.mark.parametrize("loss", ["sigmoid", "hinge", "ipo"])
def test_a_pair_with_equal_sides_teaches_nothing(loss: Any) -> None:
    """Both sides are the same log-probs, as where prefixes are shared: h = 0, so the loss is log 2, 1 or 1 / (2 beta)^2,
    and what a token gains as chosen it loses as rejected.
    """
    run = Run([-1.0, -2.0], reference=[-1.2, -1.9])
    examples = [pair(run, run).example()]
    logprobs = torch.tensor(run.logprobs, dtype=torch.float64, requires_grad=True)
    share = dpo_loss(torch.cat([logprobs, logprobs]), streams_of(examples), totals_of(examples), beta=0.5, loss=loss)
    share.loss.backward()
    assert share.loss.item() == pytest.approx({"sigmoid": LN2, "hinge": 1.0, "ipo": 1.0}[loss])
    assert logprobs.grad is not None
    assert logprobs.grad.abs().max() < 1e-12
    assert share.metrics["reward_accuracy"] == (0.0, 1.0)


@pytest.mark.parametrize("loss", ["sigmoid", "hinge", "ipo"])
def test_an_empty_run_counts_as_the_empty_sequence(loss: Any) -> None:
    """Its log-ratio is 0, so h = 1 is the chosen run's alone; averaged over 2 tokens (ipo) it is 1/2.

    beta 0.5: log(1 + e^-0.5) = 0.474077; 1 - 0.5 = 0.5; (0.5 - 1)^2 = 0.25.
    """
    result = result_of(dpo_loss, [pair(PAIR.runs[0], Run([], reference=[]))], beta=0.5, loss=loss)
    assert result.loss == pytest.approx({"sigmoid": 0.474077, "hinge": 0.5, "ipo": 0.25}[loss], abs=1e-6)


def test_long_runs_do_not_lose_their_signal_to_rounding() -> None:
    """4,000 tokens of about -1.3 nats: sums of -5000 have a float32 spacing of 5e-4 nats.

    Reference: the same float32 numbers, subtracted and summed by math.fsum. Ours agrees to 1e-9; subtracting two float32
    sums does not agree to 1e-5.
    """
    rng = np.random.default_rng(3)
    runs, exact, rough = [], [], []
    for _ in range(2):
        policy = rng.uniform(-2.6, -0.01, 4000).astype(np.float32)
        reference = (policy + rng.normal(0, 0.01, 4000)).astype(np.float32)
        runs.append(Run(policy.tolist(), reference=reference.tolist()))
        exact.append(math.fsum((policy.astype(np.float64) - reference).tolist()))
        rough.append(float(torch.tensor(policy).cumsum(0)[-1] - torch.tensor(reference).cumsum(0)[-1]))
    expected = math.log1p(math.exp(-(exact[0] - exact[1])))
    loss = result_of(dpo_loss, [pair(*runs)], beta=1.0, dtype=torch.float32).loss
    assert loss == pytest.approx(expected, abs=1e-9)
    assert abs(math.log1p(math.exp(-(rough[0] - rough[1]))) - expected) > 1e-5


def test_unknown_reference_log_probs_and_examples_that_are_not_pairs_are_refused() -> None:
    group = pair(Run([-1.0, -2.0], reference=[math.nan, -2.5]), Run([-3.0], reference=[math.nan]))
    with pytest.raises(ValueError, match="2 of 3 values that are not finite"):
        result_of(dpo_loss, [group], beta=0.5)
    with pytest.raises(ValueError, match="expected the stream 'ref_logprob'"):
        result_of(dpo_loss, [pair(Run([-1.0]), Run([-3.0]))], beta=0.5)
    run = PAIR.runs[0]
    with pytest.raises(ValueError, match="3 members in 1 examples"):
        result_of(dpo_loss, [Group([run] * 3)], beta=0.5)
    with pytest.raises(ValueError, match="4 members in 2 examples"):
        result_of(dpo_loss, [Group([run]), Group([run] * 3)], beta=0.5)


def ranked(log_ratio: float) -> Run:
    return Run([-1.0, -2.0], reference=[-1.0 - log_ratio, -2.0])


RANKED = Group([ranked(0.5), ranked(0.0), ranked(-1.0)], (1.0, 0.5, 0.0), 3.0)


def test_the_loss_of_a_ranking_is_the_mean_over_all_pairs_of_different_value() -> None:
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


def test_the_order_of_a_rankings_members_does_not_matter() -> None:
    shuffled = Group([RANKED.runs[i] for i in (2, 0, 1)], (0.0, 1.0, 0.5), 3.0)
    one, other = (result_of(ranking_loss, [group], beta=0.3) for group in (RANKED, shuffled))
    assert other.loss == pytest.approx(one.loss)
    assert other.gradient == [pytest.approx(one.gradient[i]) for i in (2, 0, 1)]


def test_a_ranking_of_two_is_a_dpo_pair() -> None:
    group = Group([ranked(0.7), ranked(-0.2)], (1.0, 0.0))
    assert_same(result_of(ranking_loss, [group], beta=0.4), result_of(dpo_loss, [group], beta=0.4))


def test_every_pair_of_the_step_counts_the_same() -> None:
    """Three pairs with sum 0.988752 and one of h = 0 with log 2: (0.988752 + 0.693147) / 4 = 0.420475."""
    even = Group([ranked(0.0), ranked(0.0)], (1.0, 0.0), 1.0)
    assert result_of(ranking_loss, [RANKED, even], beta=1.0).loss == pytest.approx(0.420475, abs=1e-6)


def test_members_of_equal_or_unknown_value_make_no_pair() -> None:
    """Values 1, 1, 0, nan: pairs 02 and 12 only, h = 1.5 and 1: (0.201413 + 0.313262) / 2 = 0.257337."""
    group = Group([*RANKED.runs, ranked(5.0)], (1.0, 1.0, 0.0, math.nan), 2.0)
    result = result_of(ranking_loss, [group], beta=1.0)
    assert result.loss == pytest.approx(0.257337, abs=1e-6)
    assert result.gradient[3] == [0.0, 0.0]


def test_runs_of_different_examples_are_never_compared() -> None:
    """A group without differences adds nothing, whatever its runs are beside another group's; alone it has no metrics."""
    flat = Group([ranked(9.0), ranked(-9.0)], (0.7, 0.7), 0.0)
    result = result_of(ranking_loss, [RANKED, flat], beta=1.0)
    assert result.loss == pytest.approx(0.329584, abs=1e-6)
    assert result.gradient[3:] == [[0.0, 0.0], [0.0, 0.0]]
    assert result_of(ranking_loss, [flat], beta=1.0) == (0.0, [[0.0, 0.0], [0.0, 0.0]], {})
