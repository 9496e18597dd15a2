"""Strengths of players from paired comparisons (Bradley and Terry 1952, Biometrika 39:324-345)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

from quintain.errors import InvalidInput

if TYPE_CHECKING:
    import numpy as np

ELO_SCALE = 400 / math.log(10)
"""Elo points of one unit of strength: 400 points are odds of 10 to 1 (Elo 1978)."""

PRIOR = 0.5
"""Virtual wins and losses of each player where the likelihood has no maximum."""

_NEWTON_STEPS = 100
_SMALLEST_STEP = 1e-10
_TOLERANCE = 1e-10


@dataclass(frozen=True)
class BradleyTerry:
    """Fitted strengths of n players: P(i beats j) = 1 / (1 + exp(strengths[j] - strengths[i]))."""

    strengths: np.ndarray
    """[n] natural-log odds, with mean 0."""
    intervals: np.ndarray
    """[n, 2] Wald intervals of the strengths, from the observed information."""
    covariance: np.ndarray
    """[n, n] covariance of the strengths. Each row sums to 0, as the strengths do."""
    prior: float
    """Virtual wins and losses of each player against one of strength 0. 0: the maximum of the likelihood."""
    confidence: float
    """Coverage of the intervals, such as 0.95."""

    def elo(self, mean: float = 1500.0) -> np.ndarray:
        """Return the strengths [n] in Elo points with this mean; intervals scale by `ELO_SCALE` alike."""
        return mean + ELO_SCALE * self.strengths

    def win_probability(self, i: int, j: int) -> float:
        """Return the probability that player i beats player j."""
        return 1 / (1 + math.exp(float(self.strengths[j] - self.strengths[i])))

    def difference(self, i: int, j: int) -> tuple[float, float, float]:
        """Return strength i minus strength j and its interval; the intervals of two players do not give it."""
        found = float(self.strengths[i] - self.strengths[j])
        variance = float(self.covariance[i, i] + self.covariance[j, j] - 2 * self.covariance[i, j])
        half = _quantile(self.confidence) * math.sqrt(max(0.0, variance))
        return found, found - half, found + half


def fit_bradley_terry(wins: np.ndarray, *, prior: float | None = None, confidence: float = 0.95) -> BradleyTerry:
    """Fit strengths to the results of paired comparisons by maximum likelihood, with Newton's method.

    The maximum exists if and only if every player can be reached from every other along wins (Ford 1957, Amer. Math.
    Monthly 64:28-33). It does not where a player, or a group, has only wins or only losses. The fit is then penalized by
    `PRIOR` virtual wins and as many losses of each player against one of strength 0, and `BradleyTerry.prior` reports it.

    Args:
        wins: [n, n] number of wins of row over column, at least 0; a tie is half a win of each. The diagonal is 0.
        prior: Virtual wins and losses of each player; None: 0 where the maximum exists, else `PRIOR`.
        confidence: Coverage of the intervals.

    Raises:
        InvalidInput: Not such a matrix; players that no chain of comparisons connects; or `prior=0` where the maximum
            does not exist.
    """
    import numpy as np

    wins = _checked(np.asarray(wins, dtype=float), prior, confidence)
    prior = _prior(wins, prior)
    n, games = len(wins), wins + wins.T
    strengths = np.zeros(n)
    for _ in range(_NEWTON_STEPS):
        gradient, information = _derivatives(wins, games, strengths, prior)
        step = np.linalg.solve(information, gradient)
        size, before = 1.0, _log_likelihood(wins, strengths, prior)
        while size > _SMALLEST_STEP and _log_likelihood(wins, strengths + size * step, prior) < before:
            size /= 2
        if size <= _SMALLEST_STEP:
            break
        strengths = strengths + size * step
        if np.abs(size * step).max() < _TOLERANCE:
            break
    _, information = _derivatives(wins, games, strengths, prior)
    centring = np.eye(n) - 1 / n
    covariance = centring @ np.linalg.inv(information) @ centring
    strengths = strengths - strengths.mean()
    half = _quantile(confidence) * np.sqrt(np.clip(np.diag(covariance), 0, None))
    intervals = np.stack([strengths - half, strengths + half], axis=1)
    return BradleyTerry(strengths, intervals, covariance, prior, confidence)


def _derivatives(
    wins: np.ndarray, games: np.ndarray, strengths: np.ndarray, prior: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return gradient [n] and information [n, n] of the log-likelihood.

    Without a prior the likelihood is constant along the vector of ones. The added 1/n there makes the information
    regular, keeps the sum of the strengths at 0, and vanishes from the centred covariance.
    """
    import numpy as np

    n = len(wins)
    expected = _logistic(strengths[:, None] - strengths[None, :])
    against_prior = _logistic(strengths)
    gradient = (wins - games * expected).sum(axis=1) + prior * (1 - 2 * against_prior)
    weights = games * expected * (1 - expected)
    diagonal = weights.sum(axis=1) + 2 * prior * against_prior * (1 - against_prior)
    information = np.diag(diagonal) - weights
    return gradient, information if prior else information + 1 / n


def _log_likelihood(wins: np.ndarray, strengths: np.ndarray, prior: float) -> float:
    import numpy as np

    differences = strengths[:, None] - strengths[None, :]
    virtual = np.logaddexp(0, -strengths) + np.logaddexp(0, strengths)
    return -float((wins * np.logaddexp(0, -differences)).sum() + prior * virtual.sum())


def _logistic(x: np.ndarray) -> np.ndarray:
    import numpy as np

    found: np.ndarray = np.exp(-np.logaddexp(0, -x))
    return found


def _checked(wins: np.ndarray, prior: float | None, confidence: float) -> np.ndarray:
    import numpy as np

    if wins.ndim != 2 or wins.shape[0] != wins.shape[1] or len(wins) < 2:
        raise InvalidInput(
            f"expected wins as a square matrix of two or more players, got shape {wins.shape}; give [n, n]"
        )
    if not np.isfinite(wins).all() or (wins < 0).any() or np.diag(wins).any():
        raise InvalidInput(
            "expected finite numbers of wins, at least 0, and 0 on the diagonal, got others; count a tie as half a win of each"
        )
    if prior is not None and not 0 <= prior < math.inf:
        raise InvalidInput(f"expected a prior of at least 0 virtual wins, got {prior}; use {PRIOR}")
    if not 0 < confidence < 1:
        raise InvalidInput(f"expected a confidence above 0 and below 1, got {confidence}; use 0.95")
    groups = _components(wins + wins.T, connection="weak")
    if len(groups) > 1:
        sizes = ", ".join(str(len(group)) for group in groups)
        raise InvalidInput(
            f"expected a chain of comparisons between any two players, got groups of {sizes} players without one; compare "
            "players of different groups, or rank each group by itself",
            code="not_connected",
        )
    return wins


def _prior(wins: np.ndarray, prior: float | None) -> float:
    if prior:
        return prior
    exists = len(_components(wins, connection="strong")) == 1
    if prior is None:
        return 0.0 if exists else PRIOR
    if not exists:
        raise InvalidInput(
            "expected each player to be reached from every other along wins, got players with only wins or only losses; "
            f"give prior={PRIOR}, or compare more",
            code="no_maximum",
        )
    return prior


def _components(matrix: np.ndarray, connection: str) -> list[Sequence[int]]:
    """Return the players of each weakly or strongly connected component."""
    from scipy.sparse.csgraph import connected_components

    n, labels = connected_components(matrix > 0, directed=True, connection=connection)
    return [[i for i, label in enumerate(labels) if label == one] for one in range(n)]


def _quantile(confidence: float) -> float:
    return NormalDist().inv_cdf((1 + confidence) / 2)
