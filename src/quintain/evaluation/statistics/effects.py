"""Effect size, and the number of tasks needed to detect a difference."""

from __future__ import annotations

import math
from collections.abc import Sequence


def cohens_dz(differences: Sequence[float]) -> float | None:
    """Return mean / standard deviation of paired differences (Cohen 1988), or None without variance."""
    n = len(differences)
    if n < 2:
        return None
    mean = math.fsum(differences) / n
    deviation = math.sqrt(math.fsum((d - mean) ** 2 for d in differences) / (n - 1))
    return mean / deviation if deviation > 0 else None


def required_tasks(difference: float, discordant: float, *, power: float = 0.8, alpha: float = 0.05) -> int:
    """Return the paired tasks McNemar's test needs to detect a difference (Connor 1987, Biometrics 43:207-211).

    n = (z_{1-alpha/2} sqrt(psi) + z_power sqrt(psi - d^2))^2 / d^2, psi being the share of discordant tasks.

    Args:
        difference: Difference of the success rates, not 0.
        discordant: Share of tasks that exactly one agent solves; raised to |difference|, its lower bound.
        power: Probability of detecting the difference.
        alpha: Two-sided level.
    """
    from scipy.stats import norm

    d, psi = abs(difference), max(discordant, abs(difference))
    root = norm.ppf(1 - alpha / 2) * math.sqrt(psi) + norm.ppf(power) * math.sqrt(max(psi - d * d, 0.0))
    return math.ceil(float(root / d) ** 2)
