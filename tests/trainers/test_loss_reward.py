"""Losses on the numbers of a value head, against hand-derived values and plain float64 formulas."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from quintain.trainers.data.streams import Example, TokenRow, streams_of, token_row
from quintain.trainers.losses.loss_output import LossOutput, totals_of
from quintain.trainers.losses.prm import prm_loss
from quintain.trainers.losses.reward import reward_loss

LN3 = math.log(3)


def read(n: int = 1, label: Sequence[Sequence[float]] | None = None) -> TokenRow:
    """A row that is read `n` times."""
    row = token_row(range(n + 1), [False] + [True] * n)
    if label is None:
        return row
    heads = np.asarray(label, np.float32)
    return TokenRow(row.token_ids, row.supervised, row.step_index, row.weight, label=np.vstack([heads[:1], heads]))


def pair(margin: float = 0.0, weight: float = 1.0) -> Example:
    return Example((read(), read()), (0, 1), (margin, 0.0), weight, divisible=False)


def of_pairs(values: list[float], pairs: list[Example], **options: float) -> tuple[LossOutput, list[float]]:
    given = torch.tensor(values, dtype=torch.float64)[:, None].requires_grad_()
    share = reward_loss(given, streams_of(pairs), totals_of(pairs), **options)
    share.loss.backward()
    assert given.grad is not None
    return share._replace(loss=share.loss.detach()), given.grad[:, 0].tolist()


def test_a_pair_costs_the_log_of_how_unlikely_its_preference_was() -> None:
    """sigma(ln 3) = 3/4, so the loss is -ln 3/4 and its gradient -(1 - 3/4) by the chosen reward."""
    share, gradient = of_pairs([LN3, 0.0], [pair()])
    assert float(share.loss) == pytest.approx(-math.log(0.75))
    assert gradient == pytest.approx([-0.25, 0.25])
    assert share.metrics["reward_accuracy"] == (1.0, 1.0)
    assert share.metrics["reward_margin"] == pytest.approx((LN3, 1.0))


def test_a_margin_must_be_won_by_and_counts_as_far_as_it_is_asked_for() -> None:
    """r_w - r_l = ln 3 less twice the margin of ln 3 / 2 leaves 0: the loss is ln 2."""
    assert float(of_pairs([LN3, 0.0], [pair(LN3 / 2)], margin_weight=2.0)[0].loss) == pytest.approx(math.log(2))
    assert float(of_pairs([LN3, 0.0], [pair(LN3 / 2)])[0].loss) == pytest.approx(-math.log(0.75))


def test_centring_costs_the_square_of_the_pairs_sum() -> None:
    """At r_w = r_l = 3 with c = 0.5: ln 2 + 0.5 * 36; the gradient is -+1/2 + 0.5 * 2 * 6."""
    share, gradient = of_pairs([3.0, 3.0], [pair()], centring=0.5)
    assert float(share.loss) == pytest.approx(math.log(2) + 18)
    assert gradient == pytest.approx([5.5, 6.5])


def test_pairs_weigh_what_their_rows_say_and_ties_are_not_right() -> None:
    """Weights 1 and 3 on losses -ln 3/4 and ln 2; the second pair is tied."""
    share, _ = of_pairs([LN3, 0.0, 1.0, 1.0], [pair(), pair(weight=3.0)])
    assert float(share.loss) == pytest.approx((-math.log(0.75) + 3 * math.log(2)) / 4)
    assert share.metrics["reward_accuracy"] == (1.0, 2.0)


def test_the_loss_is_that_of_trls_reward_trainer() -> None:
    """TRL 1.16, RewardTrainer.compute_loss: means of -logsigmoid(w - l - margin) and of (w + l)^2, times its coefficient."""
    generator = torch.Generator().manual_seed(3)
    chosen, rejected, margins = torch.randn(3, 7, generator=generator, dtype=torch.float64)
    expected = -torch.nn.functional.logsigmoid(chosen - rejected - margins.float().double()).mean()
    expected += 0.3 * torch.mean((chosen + rejected) ** 2)
    values = [float(v) for both in zip(chosen, rejected, strict=True) for v in both]
    pairs = [pair(float(np.float32(m))) for m in margins]
    share, _ = of_pairs(values, pairs, margin_weight=1.0, centring=0.3)
    assert float(share.loss) == pytest.approx(float(expected), rel=1e-6)


def test_soft_labels_are_met_at_their_own_chance() -> None:
    """p = sigma(ln 3) = 3/4: for y = 3/4 the gradient p - y is 0 and the loss the entropy of 3/4."""
    example = Example((read(1, [[0.75]]),), (0,))
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
    example = Example((read(2, [[1.0, nan], [0.0, 1.0]]),), (0,))
    values = torch.tensor([[LN3, 9.0], [0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    share = prm_loss(values, streams_of([example]), totals_of([example]), heads=("value", "relevance"))
    share.loss.backward()
    assert share.loss.item() == pytest.approx((-math.log(0.75) + math.log(2)) / 2)
    assert values.grad is not None
    assert values.grad.tolist() == [pytest.approx([-0.125, 0.0]), pytest.approx([0.125, -0.125])]
    assert share.metrics["brier"] == pytest.approx((0.0625 + 0.25, 2.0))
    assert share.metrics["brier_relevance"] == pytest.approx((0.25, 1.0))
    assert share.metrics["step_accuracy"] == (2.0, 2.0)  # 0.75 for 1, and 0.5, not above it, for 0


def test_a_label_of_one_half_is_on_no_side() -> None:
    example = Example((read(1, [[0.5]]),), (0,))
    share = prm_loss(torch.zeros(1, 1), streams_of([example]), totals_of([example]))
    assert "step_accuracy" not in share.metrics


def test_runs_without_labels_are_refused() -> None:
    example = Example((read(),), (0,))
    with pytest.raises(ValueError, match="'label'"):
        prm_loss(torch.zeros(1, 1), streams_of([example]), totals_of([example]))


@pytest.mark.parametrize("loss", [reward_loss, prm_loss])
def test_how_a_step_is_split_into_passes_changes_nothing(loss: object) -> None:
    rng = np.random.default_rng(5)
    examples = [
        Example((read(1, [[0.2]]), read(1, [[0.9]])), (0, 1), (0.0, 0.0), weight)
        for weight in rng.choice([0.5, 1.0, 2.0], 4)
    ]
    values = torch.from_numpy(rng.normal(size=(8, 1)))
    totals = totals_of(examples)
    whole = loss(values, streams_of(examples), totals).loss  # type: ignore[operator]
    parts = [loss(values[2 * i : 2 * i + 2], streams_of([e]), totals).loss for i, e in enumerate(examples)]  # type: ignore[operator]
    assert float(whole) == pytest.approx(float(sum(parts)))
