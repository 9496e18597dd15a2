"""Strengths of players from paired comparisons, by hand and by an independent fit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from quintain.errors import InvalidInput
from quintain.evaluation.bradley_terry import ELO_SCALE, PRIOR, BradleyTerry, Game, fit_games


def fit_table(wins: np.ndarray) -> BradleyTerry:
    """Fit strengths to a table of wins of row over column."""
    pairs = [(i, j) for i in range(len(wins)) for j in range(i) if wins[i, j] or wins[j, i]]
    return fit_games(len(wins), [Game(j, i, float(wins[j, i]), float(wins[i, j])) for i, j in pairs])


def test_two_players_have_the_log_odds_of_their_wins_and_the_binomial_variance() -> None:
    """p = 9/12, so the difference is log 3, and its variance 1 / (12 p (1 - p)) = 4/9; each strength has half and 1/4."""
    fitted = fit_table(np.array([[0, 9], [3, 0]]))
    assert fitted.prior == 0
    assert fitted.strengths == pytest.approx([math.log(3) / 2, -math.log(3) / 2])
    assert fitted.covariance == pytest.approx(np.array([[1, -1], [-1, 1]]) / 9)
    half = 1.959964 * 2 / 3
    assert fitted.difference(0, 1) == pytest.approx((math.log(3), math.log(3) - half, math.log(3) + half), abs=1e-6)
    assert fitted.intervals[0] == pytest.approx([math.log(3) / 2 - half / 2, math.log(3) / 2 + half / 2], abs=1e-6)
    assert fitted.win_probability(0, 1) == pytest.approx(0.75)
    assert fitted.elo()[0] - fitted.elo()[1] == pytest.approx(ELO_SCALE * math.log(3))
    assert ELO_SCALE * math.log(10) == pytest.approx(400)


def test_results_that_follow_the_model_exactly_give_its_strengths_back() -> None:
    """Odds 1 : 2 : 4 : 8; 30 games a pair, shared in the proportion of the odds."""
    odds = np.array([1.0, 2.0, 4.0, 8.0])
    wins = 30 * odds[:, None] / (odds[:, None] + odds[None, :])
    np.fill_diagonal(wins, 0)
    fitted = fit_table(wins)
    assert fitted.strengths == pytest.approx(np.log(odds) - np.log(odds).mean())
    assert fitted.covariance.sum(axis=1) == pytest.approx(np.zeros(4), abs=1e-12)


def test_a_sparse_tournament_satisfies_the_likelihood_equations() -> None:
    """Each player's wins equal the expected wins (Ford 1957), which one chain and one cross pair leave to solve."""
    wins = np.array([[0, 4, 0, 1], [2, 0, 5, 0], [0, 3, 0, 2], [1, 0, 4, 0]], dtype=float)
    fitted = fit_table(wins)
    expected = [
        sum((wins[i, j] + wins[j, i]) * fitted.win_probability(i, j) for j in range(4) if i != j) for i in range(4)
    ]
    assert expected == pytest.approx(wins.sum(axis=1))


def test_a_player_with_only_wins_gets_a_finite_strength_by_the_prior() -> None:
    """Two players, 3 to 0: with a virtual half win and half loss, s solves 3 (1 - f(2 s)) = f(s) - 1/2, f the logistic."""
    fitted = fit_table(np.array([[0, 3], [0, 0]]))
    assert fitted.prior == PRIOR == 0.5
    s = fitted.strengths[0]
    logistic = 1 / (1 + math.exp(-s))
    assert 3 * (1 - 1 / (1 + math.exp(-2 * s))) == pytest.approx(logistic - 0.5)
    assert np.isfinite(fitted.intervals).all()


@pytest.mark.parametrize(
    ("wins", "message"),
    [
        (
            np.kron(np.eye(2), [[0, 1], [1, 0]]),
            "groups of 2, 2 players without one; compare players of different groups",
        ),
        (np.zeros((3, 3)), "groups of 1, 1, 1 players"),
    ],
)
def test_results_without_strengths_are_refused_with_the_reason(wins: np.ndarray, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        fit_table(wins)


def test_what_favours_a_player_besides_its_strength_is_taken_out() -> None:
    """Two equal players. Each wins 3 of 4 as the longer one, so one unit of length has log odds of log 3."""
    games = [Game(0, 1, 9, 3, (1.0,)), Game(0, 1, 3, 9, (-1.0,)), Game(0, 1, 30, 10, (1.0,))]
    assert fit_games(2, [game._replace(covariates=()) for game in games]).difference(0, 1)[1] > 0
    fitted = fit_games(2, games)
    assert fitted.strengths == pytest.approx([0, 0], abs=0.01)  # the weak prior of the coefficient moves it a little
    assert fitted.coefficients == pytest.approx([math.log(3)], abs=0.01)
    low, high = fitted.coefficient_intervals[0]
    assert 0 < low < math.log(3) < high


def test_a_covariate_that_separates_the_wins_has_a_finite_coefficient() -> None:
    fitted = fit_games(2, [Game(0, 1, 1, 0, (1.0,)), Game(0, 1, 0, 1, (-1.0,))])
    assert 0 < fitted.coefficients[0] < 20
    assert fitted.strengths == pytest.approx([0, 0])


def test_nineteen_of_twenty_intervals_contain_the_strength_that_results_were_drawn_from() -> None:
    """200 tournaments of four players with 40 games a pair; 95 % intervals contain 760 of 800 strengths, sd 6.2."""
    rng = np.random.default_rng(0)
    true = np.array([-0.9, -0.1, 0.3, 0.7])
    chance = 1 / (1 + np.exp(true[None, :] - true[:, None]))
    covered = 0
    for _ in range(200):
        upper = np.triu(rng.binomial(40, chance), 1)
        wins = upper + np.tril((40 - upper).T, -1)
        fitted = fit_table(wins)
        covered += int(((fitted.intervals[:, 0] <= true) & (true <= fitted.intervals[:, 1])).sum())
    assert 738 <= covered <= 782, covered
