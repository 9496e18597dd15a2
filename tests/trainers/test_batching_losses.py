from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from quintain.trainers.batching import collate, micro_batches, step_rows, steps_per_epoch, total_steps
from quintain.trainers.losses import lean_forward_agrees, sft_loss, supervised_logprobs
from quintain.trainers.rendering import TokenRow
from tiny_models import tiny_model, tiny_tokenizer


def row(length: int, *, supervised: int = 2, weight: float = 1.0, first: int = 3) -> TokenRow:
    inside = [i >= length - supervised for i in range(length)]
    ids = [first + i % 50 for i in range(length)]
    return TokenRow(ids, inside, [-1] * length, [weight if s else 0.0 for s in inside])


def test_every_epoch_sees_every_row_once_in_an_order_of_its_own() -> None:
    epochs = [[i for step in range(e * 3, e * 3 + 3) for i in step_rows(step, 7, 3, seed=5)] for e in range(2)]
    assert [sorted(order) for order in epochs] == [list(range(7))] * 2
    assert epochs[0] != epochs[1]
    assert len(step_rows(2, 7, 3, seed=5)) == 1
    assert step_rows(4, 7, 3, seed=5) == step_rows(4, 7, 3, seed=5)
    assert [step_rows(s, 7, 3, seed=6) for s in range(3)] != [step_rows(s, 7, 3, seed=5) for s in range(3)]


@pytest.mark.parametrize(
    ("rows", "batch", "epochs", "max_steps", "expected"),
    [
        (8, 4, 3, None, 6),
        (9, 4, 3, None, 9),
        (300, 10, 0.1, None, 3),
        (9, 4, 0.5, None, 2),
        (1, 16, 0.01, None, 1),
        (9, 4, 3, 2, 2),
    ],
)
def test_total_steps_are_exact(rows: int, batch: int, epochs: float, max_steps: int | None, expected: int) -> None:
    assert total_steps(rows, batch, epochs, max_steps) == expected
    assert steps_per_epoch(9, 4) == 3


def test_micro_batches_hold_every_row_within_the_budget() -> None:
    rows = [row(n) for n in (10, 30, 5, 30, 100, 8)]
    batches = micro_batches(rows, 64)
    assert sorted(len(r.token_ids) for b in batches for r in b) == [5, 8, 10, 30, 30, 100]
    assert [len(b) for b in batches if len(b[0].token_ids) == 100] == [1]
    assert all(len(b) * len(b[0].token_ids) <= 64 for b in batches if len(b) > 1)


def test_collate_pads_on_the_right_and_points_each_target_at_its_predictor() -> None:
    batch = collate([row(4, supervised=2, weight=0.5), row(3, supervised=1)])
    assert batch.input_ids.tolist() == [[3, 4, 5, 6], [3, 4, 5, 0]]
    assert batch.attention_mask.tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    assert batch.source.tolist() == [1, 2, 5]
    assert batch.target.tolist() == [5, 6, 5]
    assert batch.weight.tolist() == [0.5, 0.5, 1.0]


def test_the_loss_is_the_weighted_mean_of_negative_log_probabilities() -> None:
    """Weights 1, 2, 1 on chances 1/2, 1/4, 1/8: (1 ln2 + 2 * 2 ln2 + 3 ln2) / 4 = 2 ln2."""
    logprobs = torch.tensor([0.5, 0.25, 0.125]).log().requires_grad_()
    weight = torch.tensor([1.0, 2.0, 1.0])
    loss = sft_loss(logprobs, weight, 4.0)
    assert loss.item() == pytest.approx(2 * math.log(2))
    loss.backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [-0.25, -0.5, -0.25]


def test_padding_and_splitting_change_neither_loss_nor_gradient() -> None:
    tokenizer = tiny_tokenizer()
    rows = [row(9), row(40, supervised=7, weight=2.0), row(17, supervised=1, first=9)]
    total = math.fsum(w for r in rows for w in r.weight)
    results = []
    for split in ([rows], [[r] for r in rows], [rows[:2], rows[2:]]):
        model = tiny_model(tokenizer)
        loss = 0.0
        for part in split:
            batch = collate(part)
            value = sft_loss(supervised_logprobs(model, batch), batch.weight, total)
            value.backward()
            loss += value.item()
        results.append((loss, {n: p.grad for n, p in model.named_parameters()}))
    for loss, gradients in results[1:]:
        assert loss == pytest.approx(results[0][0], rel=1e-6)
        assert all(torch.allclose(g, results[0][1][n], atol=1e-6) for n, g in gradients.items() if g is not None)


def test_the_lean_forward_is_used_only_where_it_is_the_models_own() -> None:
    model: Any = tiny_model(tiny_tokenizer())
    batch = collate([row(12, supervised=11)])
    assert lean_forward_agrees(model, batch)
    assert model.training
    forward = model.forward

    def capped(**inputs: Any) -> Any:
        out = forward(**inputs)
        out.logits = torch.tanh(out.logits / 0.1) * 0.1
        return out

    model.forward = capped
    assert not lean_forward_agrees(model, batch)
    plain = supervised_logprobs(model, batch, lean=False)
    assert plain.min() > -math.log(len(tiny_tokenizer())) - 0.2
