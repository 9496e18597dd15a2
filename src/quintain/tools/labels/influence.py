"""Influence: start the job that ranks runs by what training on them would do for a set of target runs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from quintain.errors import InvalidInput, NotFound
from quintain.next_step import Hint, call
from quintain.records.agent import Agent
from quintain.records.filters import TrajectoryFilter
from quintain.records.jobs.run_jobs import InfluenceSpec
from quintain.records.record import clip
from quintain.records.trajectory import Trajectory
from quintain.tools.data.run_files import write_runs
from quintain.tools.jobs.jobs import start
from quintain.tools.results import JobStarted
from quintain.tools.services import Services
from quintain.tools.training.agents import require_policy, require_weights
from quintain.tools.training.requests import spec_key

MAX_TARGETS = 500
"""Target runs that are read, the oldest of the dataset: their mean gradient changes little with more."""


def start_influence(services: Services, runs: Iterable[Trajectory], *, agent: Agent, target: str | None) -> JobStarted:
    """Start a job that scores runs by the similarity of their gradients to those of a dataset's runs.

    Args:
        services: Of the caller.
        runs: Runs to score.
        agent: Whose gradients are compared; the ranking is for training this agent.
        target: Dataset of the runs that the agent should do well on.

    Raises:
        InvalidInput: There is no target, or the agent has no weights here.
        NotFound: There is no such dataset, or none of its runs is stored.
    """
    require_policy(agent, "value runs by its gradients")
    require_weights(agent, "value runs by its gradients")
    if target is None:
        export = call("export_dataset", kind="sft", name="target", filter=...)
        raise InvalidInput(
            Hint(
                "expected `target`, the dataset of the runs that the agent should do well on, got none; freeze one with ",
                export,
            ),
            code="no_target",
        )
    dataset = services.store.datasets.get(target)
    chosen = services.store.trajectories.iterate(TrajectoryFilter(dataset_id=dataset.id))
    try:
        targets = write_runs(services, islice(chosen, MAX_TARGETS))
    except NotFound:
        raise NotFound(
            f"expected a target dataset of stored runs, got {clip(dataset.id)!r} without any; export one from recorded runs",
            code="nothing_matches",
        ) from None
    spec = InfluenceSpec(agent=agent, runs=write_runs(services, runs), targets=targets)
    return start(services, spec, spec_key(spec))
