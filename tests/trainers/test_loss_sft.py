from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from quintain.trainers.losses.sft import dft_loss, sft_loss
from trainers.loss_runs import Group, Run, result_of

LN2 = math.log(2)


def test_the_loss_is_the_weighted_mean_of_negative_log_probs() -> None:
    """Weights 1, 2, 1 on chances 1/2, 1/4, 1/8: (1 ln2 + 2 * 2 ln2 + 1 * 3 ln2) / 4 = 2 ln2.

    The gradient is -w / sum w = -1/4, -2/4, -1/4. The metric is unweighted: (1 + 2 + 3) ln2 / 3 = 2 ln2.
    """
    result = result_of(sft_loss, [Group([Run([-LN2, -2 * LN2, -3 * LN2], weight=[1.0, 2.0, 1.0])])])
    assert result.loss == pytest.approx(2 * LN2)
    assert result.gradient == [[-0.25, -0.5, -0.25]]
    assert result.metrics == {"nll": pytest.approx(2 * LN2)}


def test_with_weights_of_one_it_is_the_cross_entropy_of_torch() -> None:
    """Both are the mean of -log softmax(z)[y] over 12 tokens."""
    torch.manual_seed(0)
    logits, target = torch.randn(12, 7), torch.randint(7, (12,))
    logprobs = logits.log_softmax(-1)[torch.arange(12), target].tolist()
    result = result_of(sft_loss, [Group([Run(logprobs[:5])]), Group([Run(logprobs[5:])])])
    assert result.loss == pytest.approx(F.cross_entropy(logits, target).item(), abs=1e-6)


def test_the_gradient_does_not_depend_on_the_log_probs() -> None:
    """The loss is linear: d/dlogp = -w / sum w = -1/3, whether the chances are near 1 or near 0."""
    gradients = [result_of(sft_loss, [Group([Run(p)])]).gradient[0] for p in ([-1e-6] * 3, [-50.0, -3.0, -0.1])]
    assert gradients[0] == gradients[1] == pytest.approx([-1 / 3] * 3)


def test_a_token_of_weight_zero_is_not_in_the_loss_even_if_it_is_impossible() -> None:
    """-inf under weight 0 adds nothing: (0 * inf taken as 0 + 1 * ln2) / 1 = ln2.

    With weight 1 the loss is -1/2 (log 0 + log 1/2) = inf; the gradient stays -1/2.
    """
    result = result_of(sft_loss, [Group([Run([-math.inf, -LN2], weight=[0.0, 1.0])])])
    assert result.loss == pytest.approx(LN2)
    assert result.gradient == [[0.0, -1.0]]
    counted = result_of(sft_loss, [Group([Run([-math.inf, -LN2])])])
    assert (counted.loss, counted.gradient) == (math.inf, [[-0.5, -0.5]])


def test_dynamic_fine_tuning_weighs_tokens_by_their_chance() -> None:
    """Chances 1/2, 1/4, 0 and weights 2, 1, 1: (2 ln2 / 2 + 2 ln2 / 4 + 0) / 4 = 3/8 ln2; gradients -w p / 4."""
    result = result_of(dft_loss, [Group([Run([-LN2, -2 * LN2, -math.inf], weight=[2.0, 1.0, 1.0])])])
    assert result.loss == pytest.approx(0.375 * LN2)
    assert result.gradient == [pytest.approx([-0.25, -0.0625, 0.0])]
    assert result.metrics["nll"] == math.inf


def test_a_step_in_which_every_weight_is_zero_has_loss_zero() -> None:
    """0 / 0 is taken as 0: nothing is learnt, and nothing becomes NaN."""
    result = result_of(sft_loss, [Group([Run([-1.0, -2.0], weight=0.0)])])
    assert result.loss == 0.0
    assert result.gradient == [[0.0, 0.0]]
