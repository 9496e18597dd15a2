"""How large a difference is, with its sign (positive: b is higher), and how many tasks it takes to show one."""

from __future__ import annotations

import math
from collections.abc import Sequence


def cohens_dz(differences: Sequence[float]) -> float | None:
    """Mean over standard deviation of paired differences (Cohen 1988); None where there is no variance."""
    n = len(differences)
    if n < 2:
        return None
    mean = math.fsum(differences) / n
    deviation = math.sqrt(math.fsum((d - mean) ** 2 for d in differences) / (n - 1))
    return mean / deviation if deviation > 0 else None


def hedges_g(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Difference of means over the pooled standard deviation, corrected for small samples (Hedges 1981).

    g = d (1 - 3 / (4 (n_a + n_b) - 9)); None where there is no variance or a side has fewer than two values.
    """
    if min(len(a), len(b)) < 2:
        return None
    mean_a, mean_b = math.fsum(a) / len(a), math.fsum(b) / len(b)
    within = math.fsum((x - mean_a) ** 2 for x in a) + math.fsum((x - mean_b) ** 2 for x in b)
    if within <= 0:
        return None
    d = (mean_b - mean_a) / math.sqrt(within / (len(a) + len(b) - 2))
    return d * (1 - 3 / (4 * (len(a) + len(b)) - 9))


def rank_biserial(differences: Sequence[float]) -> float | None:
    """Matched-pairs rank-biserial correlation: (sum of positive ranks - negative) / all (Kerby 2014); zeros left out."""
    kept = [d for d in differences if d]
    if not kept:
        return None
    from scipy.stats import rankdata

    ranks = rankdata([abs(d) for d in kept])
    return float(math.fsum(math.copysign(r, d) for r, d in zip(ranks, kept, strict=True)) / math.fsum(ranks))


def cliffs_delta(a: Sequence[float], b: Sequence[float]) -> float | None:
    """P(b > a) - P(b < a) over all pairs of unpaired scores (Cliff 1993); None where a side is empty."""
    if not a or not b:
        return None
    from scipy.stats import rankdata

    ranks = rankdata([*a, *b])
    u = math.fsum(ranks[len(a) :]) - len(b) * (len(b) + 1) / 2
    return float(2 * u / (len(a) * len(b)) - 1)


def tasks_to_show(difference: float, discordant: float, *, power: float = 0.8, alpha: float = 0.05) -> int:
    """Paired tasks that McNemar's test needs to show a difference of success rates (Connor 1987, Biometrics 43:207-211).

    n = (z_{1-alpha/2} sqrt(psi) + z_power sqrt(psi - d^2))^2 / d^2, psi being the share of discordant tasks.

    Args:
        difference: Of the success rates, not 0.
        discordant: Share of tasks that exactly one agent solves; taken as at least |difference|, which it cannot be below.
        power: Chance of finding the difference if it is there.
        alpha: Two-sided level.
    """
    from scipy.stats import norm

    d, psi = abs(difference), max(discordant, abs(difference))
    root = norm.ppf(1 - alpha / 2) * math.sqrt(psi) + norm.ppf(power) * math.sqrt(max(psi - d * d, 0.0))
    return math.ceil(float(root / d) ** 2)
