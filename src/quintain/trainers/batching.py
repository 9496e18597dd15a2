"""Which rows an optimizer step sees, and how they become tensors.

The order is a function of (seed, epoch), so a run can go on in the middle of an epoch. Every row of an epoch is seen
once; the last step of an epoch may hold fewer rows and is not dropped.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch

from quintain.trainers.rendering import TokenRow


@dataclass(frozen=True)
class Batch:
    """Rows of one forward pass, padded on the right; N is the number of supervised tokens.

    Padding is marked by `attention_mask` alone, never guessed from ids: an end token may be the padding token too.
    """

    input_ids: torch.Tensor
    """int64 [B, T]"""
    attention_mask: torch.Tensor
    """int64 [B, T]; 1 where there is a token, 0 in the padding."""
    source: torch.Tensor
    """int64 [N]; place in the flattened [B * T] whose hidden state predicts the target."""
    target: torch.Tensor
    """int64 [N]; the supervised token ids."""
    weight: torch.Tensor
    """float32 [N]"""

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device."""
        return Batch(
            self.input_ids.to(device),
            self.attention_mask.to(device),
            self.source.to(device),
            self.target.to(device),
            self.weight.to(device),
        )


def steps_per_epoch(n_rows: int, batch_size: int) -> int:
    """Optimizer steps that see every row once."""
    return math.ceil(n_rows / batch_size)


def total_steps(n_rows: int, batch_size: int, epochs: float, max_steps: int | None = None) -> int:
    """Optimizer steps of a run; a fraction of an epoch is rounded up to whole steps."""
    # Fraction(str(...)): 0.1 epochs of 30 steps are 3 steps, not ceil(3.0000000000000004).
    steps = math.ceil(Fraction(str(epochs)) * steps_per_epoch(n_rows, batch_size))
    return min(steps, max_steps) if max_steps else steps


def step_rows(step: int, n_rows: int, batch_size: int, seed: int) -> list[int]:
    """Indices of the rows of optimizer step `step`, counted from 0."""
    epoch, place = divmod(step, steps_per_epoch(n_rows, batch_size))
    order = list(range(n_rows))
    random.Random(f"order/{seed}/{epoch}").shuffle(order)
    return order[place * batch_size : (place + 1) * batch_size]


def micro_batches(rows: Sequence[TokenRow], batch_tokens: int) -> list[list[TokenRow]]:
    """Split the rows of a step so that no forward pass has more than `batch_tokens` tokens, padding included.

    Rows of like length come together. A row that is longer than the budget is a batch of its own.
    """
    batches: list[list[TokenRow]] = []
    for row in sorted(rows, key=lambda r: -len(r.token_ids)):
        if batches and len(batches[-1][0].token_ids) * (len(batches[-1]) + 1) <= batch_tokens:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def collate(rows: Sequence[TokenRow]) -> Batch:
    """Rows as padded tensors."""
    width = max(len(row.token_ids) for row in rows)
    source, target, weight = list[int](), list[int](), list[float]()
    for place, row in enumerate(rows):
        for i in range(1, len(row.token_ids)):
            if row.supervised[i]:
                source.append(place * width + i - 1)
                target.append(row.token_ids[i])
                weight.append(row.weight[i])
    lengths = [len(row.token_ids) for row in rows]
    return Batch(
        input_ids=torch.tensor([row.token_ids + [0] * (width - n) for row, n in zip(rows, lengths, strict=True)]),
        attention_mask=torch.tensor([[1] * n + [0] * (width - n) for n in lengths]),
        source=torch.tensor(source, dtype=torch.long),
        target=torch.tensor(target, dtype=torch.long),
        weight=torch.tensor(weight, dtype=torch.float32),
    )
