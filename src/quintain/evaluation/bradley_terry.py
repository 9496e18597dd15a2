"""Strengths of players from paired comparisons (Bradley and Terry 1952, Biometrika 39:324-345), and ratings from games."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from quintain.errors import InvalidInput
from quintain.evaluation.statistics.success_rates import Z
from quintain.records.evaluation import Evaluation, Rating

if TYPE_CHECKING:
    import numpy as np


ELO_SCALE = 400 / math.log(10)
"""Elo points of one unit of strength: 400 points are odds of 10 to 1 (Elo 1978)."""

ELO_MEAN = 1500.0

PRIOR = 0.5
"""Virtual wins and losses of each player where the likelihood has no maximum."""

_COVARIATE_SD = 10.0
"""Standard deviation of the normal prior of a covariate's coefficient, which keeps it finite where it separates the wins."""

_NEWTON_STEPS = 100
_SMALLEST_STEP = 1e-10
_TOLERANCE = 1e-10


@dataclass(frozen=True)
class BradleyTerry:
    """Fitted strengths of n players: P(i beats j) = 1 / (1 + exp(strengths[j] - strengths[i]))."""

    strengths: np.ndarray
    """[n] natural-log odds, with mean 0."""
    intervals: np.ndarray
    """[n, 2] Wald intervals of 95 % of the strengths, from the observed information."""
    covariance: np.ndarray
    """[n, n] covariance of the strengths. Each row sums to 0, as the strengths do."""
    prior: float
    """Virtual wins and losses of each player against one of strength 0. 0: the maximum of the likelihood."""
    coefficients: np.ndarray
    """[k] log odds of one unit of each covariate."""
    coefficient_intervals: np.ndarray
    """[k, 2] Wald intervals of 95 % of the coefficients."""

    def elo(self) -> np.ndarray:
        """Return the strengths [n] in Elo points with mean `ELO_MEAN`; intervals scale by `ELO_SCALE` alike."""
        return ELO_MEAN + ELO_SCALE * self.strengths

    def win_probability(self, i: int, j: int) -> float:
        """Return the probability that player i beats player j."""
        return 1 / (1 + math.exp(float(self.strengths[j] - self.strengths[i])))

    def difference(self, i: int, j: int) -> tuple[float, float, float]:
        """Return strength i minus strength j and its interval; the intervals of two players do not give it."""
        found = float(self.strengths[i] - self.strengths[j])
        variance = float(self.covariance[i, i] + self.covariance[j, j] - 2 * self.covariance[i, j])
        half = Z * math.sqrt(max(0.0, variance))
        return found, found - half, found + half


class Game(NamedTuple):
    """The result of one comparison, or of several with equal covariates."""

    i: int
    j: int
    wins: float
    """Of i; a tie is half a win of each."""
    losses: float = 0.0
    """Of i."""
    covariates: tuple[float, ...] = ()
    """Advantage of i besides its strength, such as how much longer its text is; 0 where nothing does."""


def fit_games(n: int, games: Sequence[Game]) -> BradleyTerry:
    """Fit strengths to the results of games by maximum likelihood, with Newton's method.

    With covariates x, P(i beats j) = 1 / (1 + exp(s_j - s_i - b x)), and the strengths are those at x = 0. This takes out what
    favours a player besides its strength, as length-controlled AlpacaEval does (Dubois et al. 2024, arXiv 2404.04475).

    The maximum exists if and only if every player can be reached from every other along wins (Ford 1957, Amer. Math.
    Monthly 64:28-33). It does not where a player, or a group, has only wins or only losses. The fit is then penalized by
    `PRIOR` virtual wins and as many losses of each player against one of strength 0, and `BradleyTerry.prior` reports it.

    Args:
        n: Number of players, at least 2.
        games: Results; all with equally many covariates.

    Raises:
        InvalidInput: Players that no chain of games connects.
    """
    import numpy as np

    _require_connected(n, games)
    beaten = [(game.i, game.j) for game in games if game.wins] + [(game.j, game.i) for game in games if game.losses]
    exists = len(_components(n, beaten, "strong")) == 1
    fit = _Likelihood.of(n, games, 0.0 if exists else PRIOR)
    parameters = np.zeros(n + fit.covariates.shape[1])
    for _ in range(_NEWTON_STEPS):
        gradient, information = fit.derivatives(parameters)
        step = np.linalg.solve(information, gradient)
        size, before = 1.0, fit.value(parameters)
        while size > _SMALLEST_STEP and fit.value(parameters + size * step) < before:
            size /= 2
        if size <= _SMALLEST_STEP:
            break
        parameters = parameters + size * step
        if np.abs(size * step).max() < _TOLERANCE:
            break
    inverse = np.linalg.inv(fit.derivatives(parameters)[1])
    centring = np.eye(n) - 1 / n
    covariance = centring @ inverse[:n, :n] @ centring
    strengths = parameters[:n] - parameters[:n].mean()
    return BradleyTerry(
        strengths=strengths,
        intervals=_wald(strengths, np.diag(covariance)),
        covariance=covariance,
        prior=fit.prior,
        coefficients=parameters[n:],
        coefficient_intervals=_wald(parameters[n:], np.diag(inverse)[n:]),
    )


@dataclass(frozen=True)
class _Likelihood:
    """The penalized log-likelihood of strengths [n] and coefficients [k], one after the other."""

    n: int
    i: np.ndarray
    j: np.ndarray
    wins: np.ndarray
    losses: np.ndarray
    covariates: np.ndarray
    prior: float

    @staticmethod
    def of(n: int, games: Sequence[Game], prior: float) -> _Likelihood:
        import numpy as np

        i, j = (np.array([game[side] for game in games], dtype=np.intp) for side in (0, 1))
        wins, losses = (np.array([game[side] for game in games], dtype=float) for side in (2, 3))
        covariates = np.array([game.covariates for game in games], dtype=float).reshape(len(games), -1)
        return _Likelihood(n, i, j, wins, losses, covariates, prior)

    def log_odds(self, parameters: np.ndarray) -> np.ndarray:
        found: np.ndarray = parameters[self.i] - parameters[self.j] + self.covariates @ parameters[self.n :]
        return found

    def value(self, parameters: np.ndarray) -> float:
        import numpy as np

        z, strengths = self.log_odds(parameters), parameters[: self.n]
        results = self.wins @ np.logaddexp(0, -z) + self.losses @ np.logaddexp(0, z)
        virtual = self.prior * (np.logaddexp(0, -strengths) + np.logaddexp(0, strengths)).sum()
        return -float(results + virtual + (parameters[self.n :] ** 2).sum() / (2 * _COVARIATE_SD**2))

    def derivatives(self, parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return gradient and information.

        Without a prior the likelihood is constant along equal shifts of all strengths. The 1/n that is added there makes the
        information regular, keeps the sum of the strengths at 0, and vanishes from the centred covariance.
        """
        import numpy as np

        n, x = self.n, self.covariates
        played = self.wins + self.losses
        p = _logistic(self.log_odds(parameters))
        surplus, weight = self.wins - played * p, played * p * (1 - p)
        virtual = _logistic(parameters[:n])
        gradient = np.zeros(len(parameters))
        np.add.at(gradient, self.i, surplus)
        np.add.at(gradient, self.j, -surplus)
        gradient[:n] += self.prior * (1 - 2 * virtual)
        gradient[n:] = surplus @ x - parameters[n:] / _COVARIATE_SD**2
        information = np.zeros((len(parameters), len(parameters)))
        for a, b, sign in ((self.i, self.i, 1), (self.j, self.j, 1), (self.i, self.j, -1), (self.j, self.i, -1)):
            np.add.at(information, (a, b), sign * weight)
        cross = np.zeros((n, x.shape[1]))
        np.add.at(cross, self.i, weight[:, None] * x)
        np.add.at(cross, self.j, -weight[:, None] * x)
        information[:n, n:], information[n:, :n] = cross, cross.T
        information[n:, n:] = (x * weight[:, None]).T @ x + np.eye(x.shape[1]) / _COVARIATE_SD**2
        if not self.prior:
            information[:n, :n] += 1 / n
        information[range(n), range(n)] += 2 * self.prior * virtual * (1 - virtual)
        return gradient, information


def _logistic(x: np.ndarray) -> np.ndarray:
    import numpy as np

    found: np.ndarray = np.exp(-np.logaddexp(0, -x))
    return found


def _require_connected(n: int, games: Sequence[Game]) -> None:
    groups = _components(n, [(game.i, game.j) for game in games if game.wins or game.losses], "weak")
    if len(groups) > 1:
        raise InvalidInput(
            f"expected a chain of comparisons between any two players, got groups of {', '.join(map(str, groups))} players "
            "without one; compare players of different groups, or rank each group by itself",
            code="not_connected",
        )


def _components(n: int, edges: Sequence[tuple[int, int]], connection: str) -> list[int]:
    """Return the size of each weakly or strongly connected component."""
    import numpy as np
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    rows, columns = np.array(edges, dtype=np.intp).reshape(-1, 2).T
    graph = coo_array((np.ones(len(edges)), (rows, columns)), shape=(n, n))
    _, labels = connected_components(graph, directed=True, connection=connection)
    return [int(size) for size in np.bincount(labels)]


def _wald(values: np.ndarray, variances: np.ndarray) -> np.ndarray:
    import numpy as np

    half = Z * np.sqrt(np.clip(variances, 0, None))
    return np.stack([values - half, values + half], axis=1)


def rate_players(evaluations: Iterable[Evaluation]) -> tuple[Rating, ...]:
    """Return the Elo ratings of all agents that have met, best first, with mean 1500; none where nobody has.

    A game counts its reward for the agent and the rest for the opponent. Of several evaluations of a pair on one suite the first
    counts, since a repetition is not independent. Roles alternate, so the advantage of a role is about even. Episodes without a
    verdict, and games of an agent against itself, do not count.

    Args:
        evaluations: Newest first.

    Raises:
        InvalidInput: Agents that no chain of games connects (`not_connected`).
    """
    chosen: dict[tuple[str, str, str], Evaluation] = {}
    for item in evaluations:
        if item.opponent_id is not None and item.opponent_id != item.agent_id:
            chosen.setdefault((item.agent_id, item.opponent_id, item.suite_hash), item)
    results: list[tuple[str, str, float, float]] = []
    for (agent, opponent, _), item in chosen.items():
        rewards = [_reward(result.reward, result.success) for result in item.results if result.success is not None]
        if rewards:
            results.append((agent, opponent, sum(rewards), len(rewards) - sum(rewards)))
    names = list(dict.fromkeys(name for agent, opponent, *_ in results for name in (agent, opponent)))
    if not names:
        return ()
    games = [Game(names.index(agent), names.index(opponent), won, lost) for agent, opponent, won, lost in results]
    fit = fit_games(len(names), games)
    played = [sum(game.wins + game.losses for game in games if place in game[:2]) for place in range(len(names))]
    elo, bounds = fit.elo(), ELO_MEAN + ELO_SCALE * fit.intervals
    ratings = [
        Rating(
            agent=name,
            elo=round(float(elo[place]), 1),
            ci_low=round(float(bounds[place, 0]), 1),
            ci_high=round(float(bounds[place, 1]), 1),
            games=round(played[place]),
        )
        for place, name in enumerate(names)
    ]
    return tuple(sorted(ratings, key=lambda rating: -rating.elo))


def _reward(reward: float | None, success: bool | None) -> float:
    """Return the share of a game that its reward stands for; a game that was cut off is lost."""
    return float(bool(success)) if reward is None else min(max(reward, 0.0), 1.0)
