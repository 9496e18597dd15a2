"""The leaderboard of an environment: the agents measured on its suites, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from urllib.parse import quote

from quintain.errors import InvalidInput, NotFound
from quintain.evaluation.bradley_terry import rate_players
from quintain.evaluation.comparison import leaderboard, merit
from quintain.next_step import Hint, call
from quintain.records.evaluation import Evaluation, Leaderboard, Rating, SuiteOutline
from quintain.records.record import left_out
from quintain.records.wording import counted
from quintain.store.database.paging import read_pages
from quintain.tools.evaluation.environment_references import plain_reference
from quintain.tools.services import Services

_PLACES = 50
"""Agents of a leaderboard; the rest is counted."""


def environment_leaderboard(services: Services, environment: str, suite: str | None = None) -> Leaderboard:
    """Return the best evaluation of each agent on a suite of an environment, by its hash.

    None: the suite that most agents have run, the newest of equals.

    Raises:
        NotFound: nobody was evaluated there, or not on this suite.
    """
    environment, suites, unreadable = plain_reference(services, environment), dict[str, list[Evaluation]](), list[str]()
    for evaluation in read_pages(partial(services.store.evaluations.page, environment=environment), unreadable):
        if evaluation.purpose == "measurement":
            suites.setdefault(evaluation.suite_hash, []).append(evaluation)
    if not suites:
        raise NotFound(
            Hint(
                f"no agent was evaluated in {environment!r}; measure one with ",
                call("evaluate_agent", agent="starter", environment=environment),
            ),
            code="not_evaluated",
        )
    suite = suite or max(suites, key=lambda found: len({item.agent_id for item in suites[found]}))
    if suite not in suites:
        raise NotFound(
            f"expected the hash of a suite of {environment!r}, got {suite[:80]!r}; it has {', '.join(suites)}"
        )
    best: dict[str, Evaluation] = {}
    for item in suites[suite]:
        if item.agent_id not in best or merit(item) > merit(best[item.agent_id]):
            best[item.agent_id] = item
    ranked = sorted(best.values(), key=merit, reverse=True)
    kept, first = ranked[:_PLACES], ranked[0]
    notes = [f"Left out {left_out(unreadable)}."] if unreadable else []
    if len({item.sampling for item in kept}) > 1:
        notes.append("The agents sampled differently; see their evaluations.")
    rated: tuple[Rating, ...] = ()
    try:
        rated = rate_players(item for found in suites.values() for item in found)
    except InvalidInput as error:
        notes.append(error.message)
    if len(ranked) > _PLACES:
        notes.append(f"{len(ranked) - _PLACES} more agents stand below these.")
    return Leaderboard(
        environment=environment,
        suite_hash=suite,
        split=first.split,
        seed=first.seed,
        repeats=first.repeats,
        n_tasks=first.n_tasks,
        rows=leaderboard(kept, [item.agent_id for item in kept]),
        ratings=rated,
        n_evaluations=len(suites[suite]),
        notes=tuple(notes),
        name=_name_of(first),
        other_suites=tuple(other for other in suites if other != suite),
        others=tuple(_outline(found) for other, found in suites.items() if other != suite),
    )


def _outline(evaluations: Sequence[Evaluation]) -> SuiteOutline:
    newest = evaluations[0]
    agents = len({item.agent_id for item in evaluations})
    return SuiteOutline(name=_name_of(newest), suite_hash=newest.suite_hash, agents=agents, newest=newest.id)


def _name_of(evaluation: Evaluation) -> str:
    """Return the name of a suite: the arguments that make it."""
    parts = [f"{evaluation.split}, {counted(evaluation.n_tasks, 'task')}, seed {evaluation.seed}"]
    parts += [f"{evaluation.repeats} repeats"] if evaluation.repeats > 1 else []
    parts += [f"at most {counted(evaluation.max_turns, 'turn')}"] if evaluation.max_turns is not None else []
    return ", ".join(parts)


def leaderboard_uri(environment: str) -> str:
    """The resource that shows the leaderboard of an environment."""
    return f"leaderboard://{quote(environment, safe='')}"
