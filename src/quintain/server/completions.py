"""Completions of the arguments of prompts and of the variables of resource templates, from what is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quintain.tools.services import Services

MAX_COMPLETIONS = 100
"""Values in an answer at most, by the protocol."""

_NEWEST = MAX_COMPLETIONS
_LOG_TAILS = ("100", "20", "500", "1000")


def complete(services: Services, argument: str, start: str) -> list[str]:
    """Return the values of an argument of a resource or prompt that begin with `start`, newest first.

    Of several values by comma the last is completed.
    """
    before, comma, last = start.rpartition(",") if argument == "agents" else ("", "", start)
    prefix = f"{before}{comma}{' ' * (len(last) - len(last.lstrip()))}"
    values = SOURCES[argument](services) if argument in SOURCES else ()
    matching = (value for value in dict.fromkeys(values) if value and value.startswith(last.lstrip()))
    return [f"{prefix}{value}" for value in islice(matching, MAX_COMPLETIONS)]


def _jobs(services: Services) -> list[str]:
    return [job.id for job in services.store.jobs.page(limit=_NEWEST).items]


def _datasets(services: Services) -> list[str]:
    return [item.id for item in services.store.datasets.page(limit=_NEWEST).items]


def _agents(services: Services) -> list[str]:
    return [agent.id or "" for agent in services.store.agents.page(limit=_NEWEST).items]


def _agent_names(services: Services) -> list[str]:
    return [agent.name for agent in services.store.agents.page(limit=_NEWEST).items]


def _trajectories(services: Services) -> list[str]:
    from quintain.records.filters import TrajectoryFilter

    found = services.store.trajectories.search(TrajectoryFilter(), limit=_NEWEST)
    return [item.id or "" for item in found.items]


def _calibrations(services: Services) -> list[str]:
    return [item.id for item in services.store.calibrations.page(limit=_NEWEST).items]


def _evaluations(services: Services) -> list[str]:
    return [item.id or "" for item in services.store.evaluations.page(limit=_NEWEST).items]


def _comparisons(services: Services) -> list[str]:
    return [item.id or "" for item in services.store.evaluations.page_comparisons(limit=_NEWEST).items]


def _things(services: Services) -> list[str]:
    sources = (_agents, _datasets, _jobs, _evaluations, _comparisons, _trajectories)
    return [value for source in sources for value in source(services)]


def _batches(services: Services) -> list[str]:
    return [batch.id or "" for batch in services.store.judging.newest(_NEWEST)]


def _rubrics(services: Services) -> list[str]:
    from quintain.scoring.judges.rubrics import RUBRICS
    from quintain.tools.labels.rubric_names import used_rubrics

    return [*RUBRICS, *(rubric.name for rubric in used_rubrics(services))]


def _environments(services: Services) -> Iterable[str]:
    from quintain.environments.registry import environment_ids

    return environment_ids()


def _methods(services: Services) -> Iterable[str]:
    from quintain.tools.training.methods import METHODS

    return METHODS


SOURCES: Mapping[str, Callable[[Services], Iterable[str]]] = {
    "job_id": _jobs,
    "dataset_id": _datasets,
    "agent_id": _agents,
    "trajectory_id": _trajectories,
    "calibration_id": _calibrations,
    "comparison_id": _comparisons,
    "batch_id": _batches,
    "id": _things,
    "tail": lambda services: _LOG_TAILS,
    "environment": _environments,
    "method": _methods,
    "model": lambda services: ("starter", *_agent_names(services), *_agents(services)),
    "agents": lambda services: (*_agent_names(services), *_agents(services)),
    "agent": _agent_names,
    "run": lambda services: (*_trajectories(services), *_jobs(services)),
    "rubric": _rubrics,
}
"""Argument -> the function that returns its values."""
