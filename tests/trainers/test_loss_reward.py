"""Losses on the numbers of a value head, and the mix of its parts, against hand-derived values and plain float64 formulas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from quintain.errors import InvalidInput
from quintain.trainers.data.streams import Example, TokenRow, streams_of, token_row
from quintain.trainers.losses.loss_output import totals_of
from quintain.trainers.losses.prm import prm_loss
from quintain.trainers.losses.reward import reward_loss
from quintain.trainers.models.value_head import ValueHead, attach, read_head, save_head
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


PARTS = ("honest", "short")
NAN = math.nan


def side(*parts: float) -> TokenRow:
    """A member that is read at one token, with the values of its parts."""
    row = token_row([0, 0], [False, True])
    return replace(row, label=np.asarray([[NAN] * 3, [NAN, *parts]], np.float32))


def test_the_loss_adds_the_mean_cross_entropy_of_the_labelled_parts() -> None:
    """Chosen: logits ln 3 and 0 with labels 1 and 1/2, so -ln 3/4 and ln 2. Rejected: only `short` is labelled, 0 at logit 0: ln 2.

    The pair's rewards ln 3 and 0 cost -ln 3/4. With weight 2 the parts add 2 * ((-ln 3/4 + ln 2) / 2 + ln 2) / 2.
    """
    example = Example((side(1.0, 0.5), side(NAN, 0.0)), (0, 1), (0.0, 0.0), divisible=False)
    values = torch.tensor([[math.log(3), math.log(3), 0.0], [0.0, 5.0, 0.0]], dtype=torch.float64, requires_grad=True)
    output = reward_loss(values, streams_of([example]), totals_of([example]), parts_weight=2.0, heads=PARTS)
    output.loss.backward()
    of_parts = ((-math.log(0.75) + math.log(2)) / 2 + math.log(2)) / 2
    assert output.loss.item() == pytest.approx(-math.log(0.75) + 2 * of_parts)
    assert output.metrics["brier_honest"] == pytest.approx((0.0625, 1.0))
    assert output.metrics["brier_short"] == pytest.approx((0.25, 2.0))
    assert values.grad is not None
    # -(1 - 3/4); then 2 * 1/2 * 1/2 * (3/4 - 1) and 0; the unlabelled 5 has no gradient; 2 * 1/2 * (1/2 - 0).
    assert values.grad.tolist() == [pytest.approx([-0.25, -0.125, 0.0]), pytest.approx([0.25, 0.0, 0.5])]
    without = reward_loss(values.detach(), streams_of([example]), totals_of([example]), parts_weight=0.0, heads=PARTS)
    assert without.loss.item() == pytest.approx(-math.log(0.75))


def test_the_first_number_is_the_mix_of_the_others_and_survives_its_file(tmp_path: Path) -> None:
    """Parts 2 and 4 weigh 1/2 each: 3. With a share of 3/4 for the second and a scale of 2: 2 (2 + 3 * 4) / 4 = 7."""
    head = ValueHead(2, ("reward", *PARTS))
    with torch.no_grad():
        head.weight.copy_(torch.eye(2))
    states = torch.tensor([[2.0, 4.0]])
    assert head(states).tolist() == [[3.0, 2.0, 4.0]]
    with torch.no_grad():
        head.mix.copy_(torch.tensor([math.log(2), 0.0, math.log(3)]) / 10)
    assert head(states)[0].tolist() == pytest.approx([7.0, 2.0, 4.0])
    save_head(head.names, dict(head.named_parameters()), tmp_path)
    stored = read_head(tmp_path)
    assert stored is not None
    model = torch.nn.Module()
    model.get_input_embeddings = lambda: torch.nn.Embedding(1, 2)  # type: ignore[assignment]
    assert attach(model, head.names, stored)(states)[0].tolist() == pytest.approx([7.0, 2.0, 4.0])
    with pytest.raises(
        InvalidInput, match="expected a value head with reward on states of 2 numbers, got reward, honest"
    ):
        attach(model, ("reward",), stored)


def test_preferences_teach_the_mix_what_each_part_is_worth() -> None:
    """Two parts that states give away; raters follow the first alone, so its weight grows and the other's vanishes."""
    random = torch.Generator().manual_seed(0)
    states = torch.randn(64, 2, 2, generator=random)
    order = states[:, :, 0].argsort(dim=1, descending=True)  # the chosen member first
    states = torch.gather(states, 1, order[:, :, None].expand(-1, -1, 2))
    shares = torch.sigmoid(2 * states)
    examples = [
        Example(tuple(side(*member.tolist()) for member in pair), (0, 1), (0.0, 0.0), divisible=False)
        for pair in shares
    ]
    streams, totals = streams_of(examples), totals_of(examples)
    head = ValueHead(2, ("reward", *PARTS))
    optimizer = torch.optim.Adam(head.parameters(), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        output = reward_loss(head(states.flatten(0, 1)), streams, totals, heads=PARTS)
        output.loss.backward()
        optimizer.step()
    weights = head.mix_weights.detach()
    assert float(weights[0] / weights.sum()) > 0.95
    accuracy, brier = output.metrics["reward_accuracy"], output.metrics["brier_short"]
    assert accuracy[0] / accuracy[1] > 0.95
    assert brier[0] / brier[1] < 0.01  # the part that nobody prefers by is still what it is called
