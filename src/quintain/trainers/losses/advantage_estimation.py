"""Returns and advantages of actions in sequence, their whitening, and the controller of the KL penalty."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_EPSILON = 1e-8
"""Added to the variance that advantages are divided by, as in TRL and verl."""
_STEP = 0.2
"""Largest relative error of the KL divergence that counts in one update of its coefficient."""


def generalized_advantages(rewards: Array, values: Array, *, gamma: float, lam: float) -> Array:
    """Return A_t = delta_t + gamma lam A_{t+1} with delta_t = r_t + gamma V_{t+1} - V_t, and V = A = 0 after the last action.

    Generalized advantage estimation (Schulman et al. 2016, arXiv 1506.02438, eq. 11, 12 and 16). A + V is the return by which
    values are fitted. The actions are those of the agent alone: what the environment writes between two of them neither
    discounts nor bootstraps.

    Args:
        rewards: float64 [n, ...], one an action, in order.
        values: float64 [n, ...], expected returns before each action.
        gamma: Discount for each action, 0..1.
        lam: 0: one-step errors; 1: returns less values.

    Returns:
        float64 [n, ...].
    """
    following = np.concatenate([values[1:], np.zeros_like(values[:1])])
    errors = rewards + gamma * following - values
    return discounted_sums(errors, gamma * lam)


def discounted_sums(rewards: Array, gamma: float) -> Array:
    """Return G_t = r_t + gamma G_{t+1}, float64 [n, ...]."""
    sums = np.array(rewards, np.float64)
    for place in range(len(sums) - 2, -1, -1):
        sums[place] += gamma * sums[place + 1]
    return sums


def baselines(returns: Sequence[Array], *, leave_one_out: bool) -> Array:
    """Return the baseline of each run of a task: the mean of the runs' returns, or of those of the other runs.

    The mean of the others is independent of the run itself, so the gradient stays unbiased (RLOO: Kool et al. 2019; Ahmadian et
    al. 2024, arXiv 2402.14740, section 2.3).

    Returns:
        float64 [runs, ...].
    """
    known = np.asarray(returns, np.float64)
    if not leave_one_out:
        return np.broadcast_to(known.mean(0), known.shape)
    others: Array = (known.sum(0) - known) / (len(known) - 1)
    return others


def whiten(values: Array) -> Array:
    """Return (x - mean) / sqrt(variance + 1e-8) over the first axis of [n, ...], with the sample variance (n - 1), as in TRL and verl.

    A single value becomes 0, for there is no other to be better than.
    """
    if len(values) < 2:
        return np.zeros_like(values)
    whitened: Array = (values - values.mean(0)) / np.sqrt(values.var(0, ddof=1) + _EPSILON)
    return whitened


def next_kl_coefficient(coefficient: float, kl: float, *, target: float, n: int, horizon: int) -> float:
    """Return the coefficient of the KL penalty after a rollout: beta (1 + clip(kl / target - 1, -0.2, 0.2) n / horizon).

    The proportional controller of Ziegler et al. 2019 (arXiv 1909.08593, section 2.2), as in TRL, verl and OpenRLHF.

    Args:
        coefficient: beta.
        kl: KL divergence of the rollout from the start model.
        target: KL divergence to aim at, in the same unit, above 0.
        n: Episodes of the rollout.
        horizon: Episodes over which the coefficient adapts.
    """
    error = float(np.clip(kl / target - 1, -_STEP, _STEP))
    return coefficient * (1 + error * n / horizon)
