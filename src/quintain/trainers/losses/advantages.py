"""Advantages of runs and of their steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quintain.trainers.losses.step_weights import finite_or_nan

EPSILON = 1e-4
"""Added to the standard deviation that advantages are divided by, as in TRL."""
_SPREAD = 0.5
"""Largest share of a run's advantage that its step rewards move from one step to others; below 1, so signs stay."""


def group_advantages(rewards: Sequence[float | None], *, scale: bool) -> NDArray[np.float64] | None:
    """Return the advantage of each run over the mean of its group (Shao et al. 2024, arXiv 2402.03300, section 4.1.2).

    (r - mean) / (std + 1e-4), with the sample standard deviation (n - 1): the paper leaves it open, TRL and verl take it,
    and it does not shrink the deviation of small groups. Dr. GRPO leaves the division out, for it favours tasks that are
    almost always or almost never solved (Liu et al. 2025, arXiv 2503.20783, section 3.1).

    Args:
        rewards: One a run; None where unknown. These runs stay out of mean and deviation and get 0.
        scale: Divide by the standard deviation.

    Returns:
        float64 [runs]; None where there is nothing to learn: fewer than two known rewards, or all the same.
    """
    known = finite_or_nan(rewards)
    scored = known[~np.isnan(known)]
    if len(scored) < 2 or np.ptp(scored) <= 1e-9 * np.abs(scored).max():
        return None
    advantages = np.nan_to_num(known - scored.mean(), nan=0.0)
    return advantages / (scored.std(ddof=1) + EPSILON) if scale else advantages


def overlong_penalty(length: int, longest: int, buffer: int) -> float:
    """Return the penalty of a run for its length, 0 to 1 (soft overlong punishment of DAPO, arXiv 2503.14476, eq. 13).

    0 up to longest - buffer, then linear, 1 above longest.

    Args:
        length: Tokens that the agent wrote.
        longest: Tokens from which the penalty is full.
        buffer: Tokens over which it rises, 1 to `longest`.
    """
    return min(max((length - (longest - buffer)) / buffer, 0.0), 1.0)


def step_advantages(advantage: float, step_rewards: Sequence[float | None]) -> list[float]:
    """Return a run's advantage A, spread over its steps by their rewards.

    A_j = A + s |A| u_j, with u_j = (r_j - mean r) / max_k |r_k - mean r| in [-1, 1] and s = 1/2. From this follows:

    - The mean over the steps is A, since the u_j sum to 0.
    - Every step has the sign of A, since |s u_j| < 1; its share lies between A / 2 and 3 A / 2.
    - A better step always has the larger A_j: more praise in a good run, less blame in a bad one. Multiplying A by
      r_j / mean(r) would blame the better steps of a bad run more.
    - Scale and offset of the step rewards do not matter, so they may be negative or sum to zero.

    Args:
        advantage: A of the run, finite.
        step_rewards: One a step; None where unknown. Such a step keeps A.

    Returns:
        One a step. All A where fewer than two rewards are known or all are equal.
    """
    deviation = group_advantages(step_rewards, scale=False)
    if deviation is None:
        return [advantage] * len(step_rewards)
    return [float(a) for a in advantage + _SPREAD * abs(advantage) * deviation / np.abs(deviation).max()]


def divergence_advantages(
    teacher: Sequence[NDArray[np.float32]], old: Sequence[NDArray[np.float32] | None]
) -> list[NDArray[np.float32]]:
    """Return the advantages of sampled tokens for the reverse KL divergence to a teacher.

    A_t = (log q(t) - log p_old(t)) - mean, with q the teacher, p_old the policy that sampled the tokens, and the mean over all
    tokens that are passed: a baseline, which lowers the variance of the gradient (Williams 1992, REINFORCE).

    Args:
        teacher: log q of each row's tokens, [n] each.
        old: log p_old of each row's tokens; None or not finite where unknown. These tokens get 0.

    Returns:
        float32 [n] for each row.
    """
    differences = [q.astype(np.float64) - (np.nan if p is None else p) for q, p in zip(teacher, old, strict=True)]
    known = [values[np.isfinite(values)] for values in differences]
    n = sum(map(len, known))
    mean = sum(float(values.sum()) for values in known) / n if n else 0.0
    return [np.where(np.isfinite(d), d - mean, 0.0).astype(np.float32) for d in differences]
