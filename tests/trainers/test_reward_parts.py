"""Reward models with parts: the loss by hand, the mix of the head, its file, and weights that preferences teach."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from quintain.errors import InvalidInput
from quintain.trainers.data.streams import Example, TokenRow, streams_of, token_row
from quintain.trainers.losses.loss_output import totals_of
from quintain.trainers.losses.reward import reward_loss
from quintain.trainers.value_head import ValueHead, attach
from quintain.trainers.value_head_files import read_head, save_head

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
