"""Tournaments: runs of a task, and agents, ranked by the stored preferences between runs (Bradley-Terry).

A preference of a rater on two whole runs is a game, a tie half a win of each. Mined preferences are left out, because they repeat
what a scorer's values say already. Pairs that a judge was asked about in both orders are one game, so no place is favoured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from quintain.datasets.selection import written_chars
from quintain.errors import InvalidInput
from quintain.evaluation.bradley_terry import ELO_SCALE, BradleyTerry, Game, fit_games
from quintain.next_step import Hint, call
from quintain.records.labels.preference import Preference
from quintain.records.score import Score
from quintain.scoring.recorded import TOURNAMENT
from quintain.store.database.paging import read_pages
from quintain.tools.services import Services

_DIGITS = 4


def tournament_scores(services: Services, ids: Sequence[str]) -> dict[str, list[Score]]:
    """Return run -> its score in the tournament of its task, of the runs with a game.

    The value is the mean over the other runs of the tournament of the probability to beat them.
    """
    games = [(one.a, one.b, _won(one)) for one in services.store.preferences.connected_to(ids) if _counts(one)]
    wanted = set(ids)
    found: dict[str, list[Score]] = {}
    for players in _tournaments(games):
        place = {run: n for n, run in enumerate(players)}
        own = [Game(place[a], place[b], won, 1 - won) for a, b, won in games if a in place]
        fitted = fit_games(len(players), own)
        for run in wanted & place.keys():
            found[run] = [_score(run, place[run], fitted, own)]
    return found


def tournament_of_agents(services: Services) -> list[dict[str, Any]]:
    """Return agents by descending strength in Elo points, then each judge's bias for length that was taken out.

    Games are the stored preferences between runs of different agents. Each judge's bias is one coefficient: log odds for the
    longer run by each doubling of length. People have none, so where people and a judge compare the same agents, theirs are the
    strengths. `elo_with_length` are the strengths without the coefficients.
    """
    preferences = [one for one in read_pages(services.store.preferences.page) if _counts(one)]
    runs = _runs_of(services, {run for one in preferences for run in (one.a, one.b)})
    played = [
        (runs[one.a].agent, runs[one.b].agent, one)
        for one in preferences
        if one.a in runs and one.b in runs and runs[one.a].agent != runs[one.b].agent
    ]
    if not played:
        compare = call("score_trajectories", scorer="judge", judge=..., mode="pairwise", filter=...)
        raise InvalidInput(
            Hint(
                "expected preferences of people or judges between runs of different agents, got none (mined ones do not count); "
                "let a judge compare runs with ",
                compare,
                ", or compare outcomes on tasks that both agents did with ",
                call("compare_agents", agents=...),
            ),
            code="nothing_compared",
        )
    agents = sorted({agent for one, other, _ in played for agent in (one, other)})
    judges = sorted({one.rater or "" for _, _, one in played if one.source not in {"person", "imported"}})
    place = {agent: n for n, agent in enumerate(agents)}
    games = []
    for first, second, one in played:
        won = _won(one)
        doublings = math.log2(runs[one.a].chars / runs[one.b].chars)
        bias = tuple(doublings if (one.rater or "") == judge else 0.0 for judge in judges)
        games.append(Game(place[first], place[second], won, 1 - won, bias))
    fitted = fit_games(len(agents), games)
    plain = fit_games(len(agents), [game._replace(covariates=()) for game in games])
    rows = [_agent_row(n, agents, games, fitted, plain) for n in range(len(agents))]
    return [*sorted(rows, key=lambda row: -row["elo"]), *_judge_rows(judges, games, fitted)]


class _Run(NamedTuple):
    agent: str
    chars: int


def _counts(one: Preference) -> bool:
    return one.step is None and one.source != "mined"


def _won(one: Preference) -> float:
    return {"a": 1.0, "b": 0.0, "tie": 0.5}[one.better]


def _runs_of(services: Services, ids: Iterable[str]) -> dict[str, _Run]:
    known = services.store.preferences.comparable(set(ids))
    labels = {item.id: item.agent for item in services.store.trajectories.summaries(sorted(known))}
    runs = services.store.trajectories.iterate(ids=sorted(labels))
    return {run.id or "": _Run(labels[run.id or ""], max(1, written_chars(run))) for run in runs}


def _tournaments(games: Sequence[tuple[str, str, float]]) -> list[list[str]]:
    """Return the runs that chains of games connect, each set sorted."""
    group: dict[str, set[str]] = {}
    for a, b, _ in games:
        merged = group.get(a, {a}) | group.get(b, {b})
        for run in merged:
            group[run] = merged
    return [sorted(runs) for runs in {id(runs): runs for runs in group.values()}.values()]


def _score(run: str, place: int, fitted: BradleyTerry, games: Sequence[Game]) -> Score:
    n = len(fitted.strengths)
    value = fmean(fitted.win_probability(place, other) for other in range(n) if other != place)
    low, high = fitted.intervals[place]
    own = [game for game in games if place in (game.i, game.j)]
    shrunk = ", shrunk because some runs only won or only lost" if fitted.prior else ""
    return Score(
        trajectory_id=run,
        scorer=TOURNAMENT,
        status="scored",
        value=value,
        feedback=f"{_wins(place, own):g} of {len(own)} comparisons won among {n} runs; strength {fitted.strengths[place]:+.2f}, "
        f"95 % interval {low:+.2f} to {high:+.2f}{shrunk}",
    )


def _wins(place: int, games: Iterable[Game]) -> float:
    return math.fsum(game.wins if game.i == place else game.losses for game in games)


def _agent_row(
    n: int, agents: Sequence[str], games: Sequence[Game], fitted: BradleyTerry, plain: BradleyTerry
) -> dict[str, Any]:
    own = [game for game in games if n in (game.i, game.j)]
    low, high = (1500 + ELO_SCALE * float(bound) for bound in fitted.intervals[n])
    return {
        "agent": agents[n],
        "elo": round(float(fitted.elo()[n]), 1),
        "low": round(low, 1),
        "high": round(high, 1),
        "games": len(own),
        "won": _wins(n, own),
        "elo_with_length": round(float(plain.elo()[n]), 1),
        "shrunk": bool(fitted.prior),
    }


def _judge_rows(judges: Sequence[str], games: Sequence[Game], fitted: BradleyTerry) -> Iterator[dict[str, Any]]:
    bounds = zip(judges, fitted.coefficients, fitted.coefficient_intervals, strict=True)
    for n, (judge, coefficient, (low, high)) in enumerate(bounds):
        yield {
            "rater": judge,
            "games": sum(game.covariates[n] != 0 for game in games),
            "length_bias": round(float(coefficient), _DIGITS),
            "low": round(float(low), _DIGITS),
            "high": round(float(high), _DIGITS),
        }
