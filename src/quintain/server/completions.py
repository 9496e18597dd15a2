"""Completions of the arguments of prompts and of the variables of resource templates, from what is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quintain.tools.services import Services

MAX_COMPLETIONS = 100
"""Values in an answer at most, by the protocol."""

_NEWEST = MAX_COMPLETIONS
_LOG_TAILS = ("100", "20", "500", "1000")
_WITHOUT_A_MODEL = ("expert", "endpoint")
"""Sources of agents that cannot be trained."""


def complete(services: Services, argument: str, start: str) -> list[str]:
    """Return the values of an argument of a resource or prompt that begin with `start`, newest first.

    Of several values by comma the last is completed.
    """
    before, comma, last = start.rpartition(",") if argument == "agents" else ("", "", start)
    prefix = f"{before}{comma}{' ' * (len(last) - len(last.lstrip()))}"
    values = SOURCES[argument](services) if argument in SOURCES else ()
    matching = (value for value in dict.fromkeys(values) if value and value.startswith(last.lstrip()))
    return [f"{prefix}{value}" for value in islice(matching, MAX_COMPLETIONS)]


def _stored(*things: str) -> Callable[[Services], list[str]]:
    """Return the function that lists the newest ids of these parts of the store."""

    def newest(services: Services) -> list[str]:
        pages = (_page(services, thing) for thing in things)
        return [item.id or "" for items in pages for item in items]

    return newest


def _page(services: Services, thing: str) -> Iterable[Any]:
    store = services.store
    if thing == "trajectories":
        from quintain.records.filters import TrajectoryFilter

        return store.trajectories.search(TrajectoryFilter(), limit=_NEWEST).items
    if thing == "judging":
        return store.judging.newest(_NEWEST)
    page = store.evaluations.page_comparisons if thing == "comparisons" else getattr(store, thing).page
    return page(limit=_NEWEST).items


def _agent_names(services: Services) -> list[str]:
    return [agent.name for agent in services.store.agents.page(limit=_NEWEST).items]


def _agents_and_names(services: Services, *, trainable: bool = False) -> list[str]:
    """Return the names and ids of agents; of those with a model alone where they are to be trained."""
    found = services.store.agents.page(limit=_NEWEST).items
    chosen = [agent for agent in found if not trainable or agent.model.source not in _WITHOUT_A_MODEL]
    return [*(agent.name for agent in chosen), *(agent.id or "" for agent in chosen)]


def _rubrics(services: Services) -> list[str]:
    from quintain.scoring.judges.rubrics import RUBRICS
    from quintain.tools.labels.scorer_resolution import used_rubrics

    return [*RUBRICS, *(rubric.name for rubric in used_rubrics(services))]


def _environments(services: Services) -> Iterable[str]:
    from quintain.environments.registry import environment_ids

    return environment_ids()


def _methods(services: Services) -> Iterable[str]:
    from quintain.tools.training.methods import METHODS

    return METHODS


SOURCES: Mapping[str, Callable[[Services], Iterable[str]]] = {
    "job_id": _stored("jobs"),
    "dataset_id": _stored("datasets"),
    "agent_id": _stored("agents"),
    "trajectory_id": _stored("trajectories"),
    "calibration_id": _stored("calibrations"),
    "comparison_id": _stored("comparisons"),
    "batch_id": _stored("judging"),
    "id": _stored("agents", "datasets", "jobs", "evaluations", "comparisons", "trajectories"),
    "tail": lambda services: _LOG_TAILS,
    "environment": _environments,
    "suite": lambda services: [found.suite_hash for found in _page(services, "evaluations")],
    "method": _methods,
    "model": lambda services: ("starter", *_agents_and_names(services, trainable=True)),
    "agents": _agents_and_names,
    "agent": _agent_names,
    "run": _stored("trajectories", "jobs"),
    "rubric": _rubrics,
}
"""Argument -> the function that returns its values."""
