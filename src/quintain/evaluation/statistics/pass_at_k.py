"""Success over repeated attempts at a task: at least one of k (pass@k), or all of k (pass^k)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import comb

from quintain.evaluation.statistics.success_rates import mean_share
from quintain.records.evaluation import AtK


def pass_at_k(n: int, successes: int, k: int) -> float:
    """Return the unbiased estimate of P(at least one of k attempts succeeds) from n >= k attempts.

    1 - C(n - c, k) / C(n, k) with c successes (Chen et al. 2021, arXiv 2107.03374, equation 1).
    """
    return 1.0 - comb(n - successes, k) / comb(n, k)


def pass_hat_k(n: int, successes: int, k: int) -> float:
    """Return the unbiased estimate of P(all of k attempts succeed) from n >= k attempts.

    C(c, k) / C(n, k) with c successes (Yao et al. 2024, tau-bench, arXiv 2406.12045, section 4).
    """
    return comb(successes, k) / comb(n, k)


def estimate_over_k(
    estimator: Callable[[int, int, int], float], successes: Sequence[int], repeats: int
) -> tuple[AtK, ...]:
    """Average an estimator over tasks, for k = 1, 2, 4, ... and all repeats. Empty without repeats.

    Args:
        estimator: `pass_at_k` or `pass_hat_k`.
        successes: Successes of each task with a verdict in every repeat.
        repeats: Attempts per task.
    """
    if repeats < 2 or not successes:
        return ()
    powers = [2**i for i in range(repeats.bit_length()) if 2**i < repeats]
    found = []
    for k in (*powers, repeats):
        value, low, high = mean_share([estimator(repeats, c, k) for c in successes], repeats * len(successes))
        found.append(AtK(k=k, value=value, ci_low=low, ci_high=high, n=len(successes)))
    return tuple(found)
