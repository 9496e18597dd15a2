"""The Lagrange multiplier of a constraint on costs, and the advantages that it combines."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def next_multiplier(multiplier: float, cost: float, *, limit: float, rate: float, most: float) -> float:
    """Return max(0, lambda + rate (cost - limit)), at most `most`: gradient ascent on the dual of max J_r subject to J_c <= limit.

    Ray, Achiam and Amodei 2019, "Benchmarking Safe Exploration in Deep Reinforcement Learning", section 5; Dai et al. 2023, arXiv
    2310.12773, section 3.3.

    Args:
        multiplier: lambda.
        cost: Mean cost of the newest runs.
        limit: Highest mean cost.
        rate: Step size.
        most: Highest multiplier.
    """
    return min(most, max(0.0, multiplier + rate * (cost - limit)))


def constrained_advantages(
    rewards: NDArray[np.floating], costs: NDArray[np.floating] | float, multiplier: float
) -> NDArray[np.floating]:
    """Return (A_r - lambda A_c) / (1 + lambda), whose scale does not grow with lambda (arXiv 2310.12773, eq. 12).

    Args:
        rewards: A_r, advantages of the rewards.
        costs: A_c, advantages of the costs, normalised by themselves.
        multiplier: lambda, at least 0.
    """
    return (rewards - multiplier * costs) / (1 + multiplier)
