"""Losses on the numbers of a value head, against hand-derived values and plain float64 formulas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from quintain.trainers.data.streams import Example, streams_of, token_row
from quintain.trainers.losses.loss_output import totals_of
from quintain.trainers.losses.prm import prm_loss
from trainers.loss_runs import Group, Run, result_of, valued_pairs

LN3 = math.log(3)


def pair(chosen: float, rejected: float, *, margin: float = 0.0, weight: float = 1.0) -> Group:
    return Group([Run([chosen]), Run([rejected])], (margin, 0.0), weight)


def test_the_loss_of_a_pair_by_hand() -> None:
    """sigma(ln 3) = 3/4, so the loss is -ln 3/4 and its gradient -(1 - 3/4) by the chosen reward.

    - A margin counts by its weight: ln 3 less twice ln 3 / 2 leaves 0, so ln 2; without a weight it changes nothing.
    - Centring at r_w = r_l = 3 with c = 0.5: ln 2 + 0.5 * 36; the gradient is -+1/2 + 0.5 * 2 * 6.
    - Weights 1 and 3 on losses -ln 3/4 and ln 2; the second pair is tied, which is not right.
    """
    plain = result_of(valued_pairs, [pair(LN3, 0.0)])
    assert plain.loss == pytest.approx(-math.log(0.75))
    assert plain.gradient == [pytest.approx([-0.25]), pytest.approx([0.25])]
    assert plain.metrics["reward_accuracy"] == 1.0
    assert plain.metrics["reward_margin"] == pytest.approx(LN3)

    close = pair(LN3, 0.0, margin=LN3 / 2)
    assert result_of(valued_pairs, [close], margin_weight=2.0).loss == pytest.approx(math.log(2))
    assert result_of(valued_pairs, [close]).loss == pytest.approx(-math.log(0.75))

    centred = result_of(valued_pairs, [pair(3.0, 3.0)], centring=0.5)
    assert centred.loss == pytest.approx(math.log(2) + 18)
    assert centred.gradient == [pytest.approx([5.5]), pytest.approx([6.5])]

    two = result_of(valued_pairs, [pair(LN3, 0.0), pair(1.0, 1.0, weight=3.0)])
    assert two.loss == pytest.approx((-math.log(0.75) + 3 * math.log(2)) / 4)
    assert two.metrics["reward_accuracy"] == 0.5


def test_the_loss_is_that_of_trls_reward_trainer() -> None:
    """TRL 1.16, RewardTrainer.compute_loss: means of -logsigmoid(w - l - margin) and of (w + l)^2, times its coefficient."""
    generator = torch.Generator().manual_seed(3)
    chosen, rejected, margins = torch.randn(3, 7, generator=generator, dtype=torch.float64)
    expected = -torch.nn.functional.logsigmoid(chosen - rejected - margins).mean()
    expected += 0.3 * torch.mean((chosen + rejected) ** 2)
    pairs = [pair(*map(float, row[:2]), margin=float(row[2])) for row in zip(chosen, rejected, margins, strict=True)]
    result = result_of(valued_pairs, pairs, margin_weight=1.0, centring=0.3)
    assert result.loss == pytest.approx(float(expected), rel=1e-6)


def labelled(*labels: Sequence[float]) -> Example:
    """A run that is read once for each of the labels."""
    n, heads = len(labels), np.asarray(labels, np.float32)
    row = token_row(range(n + 1), [False] + [True] * n)
    return Example((replace(row, label=np.vstack([heads[:1], heads])),), (0,))


def test_soft_labels_are_met_at_their_own_chance() -> None:
    """p = sigma(ln 3) = 3/4: for y = 3/4 the gradient p - y is 0 and the loss the entropy of 3/4."""
    example = labelled([0.75])
    values = torch.tensor([[LN3]], dtype=torch.float64, requires_grad=True)
    share = prm_loss(values, streams_of([example]), totals_of([example]))
    share.loss.backward()
    assert share.loss.item() == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))
    assert values.grad is not None
    assert float(values.grad) == pytest.approx(0, abs=1e-12)
    assert share.metrics["brier"] == pytest.approx((0.0, 1.0), abs=1e-12)


def test_an_unknown_label_adds_neither_loss_nor_weight() -> None:
    """Heads (value, relevance): step 0 has y = (1, -), step 1 y = (0, 1). At logits 0 every known label costs ln 2.

    With logits (ln 3, 9) at step 0 the 9 does not count: -ln 3/4; the mean over the two steps is (-ln 3/4 + ln 2) / 2.
    """
    nan = math.nan
    example = labelled([1.0, nan], [0.0, 1.0])
    values = torch.tensor([[LN3, 9.0], [0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    share = prm_loss(values, streams_of([example]), totals_of([example]), heads=("value", "relevance"))
    share.loss.backward()
    assert share.loss.item() == pytest.approx((-math.log(0.75) + math.log(2)) / 2)
    assert values.grad is not None
    assert values.grad.tolist() == [pytest.approx([-0.125, 0.0]), pytest.approx([0.125, -0.125])]
    assert share.metrics["brier"] == pytest.approx((0.0625 + 0.25, 2.0))
    assert share.metrics["brier_relevance"] == pytest.approx((0.25, 1.0))
    assert share.metrics["step_accuracy"] == (2.0, 2.0)  # 0.75 for 1, and 0.5, not above it, for 0


def test_a_label_of_one_half_is_on_no_side_and_runs_without_labels_are_refused() -> None:
    example = labelled([0.5])
    share = prm_loss(torch.zeros(1, 1), streams_of([example]), totals_of([example]))
    assert "step_accuracy" not in share.metrics
    example = Example((token_row([0, 1], [False, True]),), (0,))
    with pytest.raises(ValueError, match="'label'"):
        prm_loss(torch.zeros(1, 1), streams_of([example]), totals_of([example]))
