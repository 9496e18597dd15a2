"""The output of losses, and the totals by which they divide.

A step's loss is a sum over its forward passes. Each pass divides by totals of the whole step, so that the result does not depend
on how the step is split, packed or padded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from quintain.trainers.data.streams import Example, rows_of


class StepTotals(NamedTuple):
    """Sums over a whole optimizer step."""

    weight: float
    """Sum of the token weights."""
    sequences: int
    """Number of members with a supervised token."""
    examples: float
    """Sum of the example weights."""
    labels: int = 0
    """Number of supervised tokens with a label."""
    reward_deviation: float = 0.0
    """Sample standard deviation of the members' values, over the whole rollout where there is one; 0 for fewer than two."""


class LossOutput(NamedTuple):
    """The part of a step's loss that one forward pass computes."""

    loss: torch.Tensor
    """Scalar, float32 or float64."""
    metrics: dict[str, tuple[float, float]]
    """Name -> (sum, count), added over the step and then divided. Names without observations are missing."""


def totals_of(examples: Sequence[Example], played: Sequence[Example] = ()) -> StepTotals:
    """Return the totals of a step, which may use a part of the examples that were played for it and for others."""
    rows = rows_of(examples)
    return StepTotals(
        weight=math.fsum(math.fsum(row.weight[row.supervised].tolist()) for row in rows),
        sequences=sum(any(row.n_supervised for row in rows) for e in examples for rows in e.by_member),
        examples=math.fsum(example.weight for example in examples),
        labels=sum(int(np.isfinite(r.label[r.supervised]).any(-1).sum()) for r in rows if r.label is not None),
        reward_deviation=_deviation([value for example in played or examples for value in example.value]),
    )


def _deviation(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
