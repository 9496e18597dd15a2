"""Elo ratings of agents from the games of their evaluations."""

from __future__ import annotations

from collections.abc import Iterable

from quintain.evaluation.bradley_terry import ELO_SCALE, Game, fit_games
from quintain.records.evaluation import Evaluation, Rating


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
    elo, bounds = fit.elo(), 1500 + ELO_SCALE * fit.intervals
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
