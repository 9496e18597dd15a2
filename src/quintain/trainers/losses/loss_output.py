"""What all losses return, and the totals that they divide by.

A step's loss is a sum over its forward passes; each divides by the totals of the whole step, so that the result does not
depend on how the step was split, packed or padded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from quintain.trainers.data.streams import Example


class StepTotals(NamedTuple):
    """Sums over a whole optimizer step."""

    weight: float
    """Of the token weights."""
    tokens: int
    """Supervised tokens."""
    sequences: int
    """Members with a supervised token."""
    examples: float
    """Of the example weights."""


class LossOutput(NamedTuple):
    """What one forward pass adds to the step's loss."""

    loss: torch.Tensor
    """Scalar, float32 or float64."""
    metrics: dict[str, tuple[float, float]]
    """Name -> (sum, count): added up over the step, then divided. No entry where there was nothing to count."""


def totals_of(examples: Sequence[Example]) -> StepTotals:
    """The totals of a step."""
    rows = [row for example in examples for row in example.rows]
    return StepTotals(
        weight=math.fsum(math.fsum(row.weight[row.supervised].tolist()) for row in rows),
        tokens=sum(row.n_supervised for row in rows),
        sequences=sum(len({m for m, row in zip(e.member, e.rows, strict=True) if row.n_supervised}) for e in examples),
        examples=math.fsum(example.weight for example in examples),
    )
