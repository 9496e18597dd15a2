"""Agents that are known by their recorded runs alone, such as imported logs, as evaluations on the tasks that all of them did."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from quintain.datasets.splits import task_key
from quintain.errors import InvalidInput
from quintain.evaluation.summary import success_rate
from quintain.next_step import Hint, call
from quintain.records.agent import Sampling
from quintain.records.evaluation import EpisodeResult, Evaluation
from quintain.records.filters import TrajectoryFilter
from quintain.tools.services import Services

RECORDED = "recorded runs"
"""What stands for the environment and the split of such an evaluation."""

NOTE = (
    "These are recorded runs, of each task the newest with an outcome: prompts, tools and the choice of tasks may differ between the "
    "agents."
)


def recorded_evaluations(
    services: Services, agents: Sequence[str], environment: str | None = None
) -> list[Evaluation] | None:
    """Return an evaluation for each agent, which is not stored; None where one is registered or none is known by runs.

    Args:
        services: Where agents and runs are looked up.
        agents: Names that runs were recorded under.
        environment: Only runs of this environment.

    Raises:
        InvalidInput: no task has an outcome of all agents.
    """
    if any(name.startswith(("eval-", "endpoint:")) or services.store.agents.find(name) for name in agents):
        return None
    results = {name: _newest_by_task(services, name, environment) for name in agents}
    if not any(results.values()) and not all(_has_runs(services, name, environment) for name in agents):
        return None
    shared = sorted(set.intersection(*map(set, results.values())))
    if not shared:
        counts = ", ".join(f"{name} {len(found)}" for name, found in results.items())
        raise InvalidInput(
            Hint(
                f"expected a task with a recorded outcome of each agent, got none (tasks with an outcome: {counts}); state outcomes "
                "with ",
                call("record_trajectory", trajectory_id=..., outcome=...),
                ", compare their mean scores with ",
                call("score_trajectories", scorer=..., filter={"agent": agents[0]}),
                ", or let the agents act with ",
                call("evaluate_agent", agent=..., environment=...),
            ),
            code="different_suites",
        )
    suite = hashlib.sha256(json.dumps(shared).encode()).hexdigest()
    found = []
    for name in agents:
        episodes = tuple(results[name][task] for task in shared)
        found.append(
            Evaluation(
                id=f"recorded:{name}",
                agent_id=name,
                environment=environment or RECORDED,
                suite_hash=suite,
                split=RECORDED,
                seed=0,
                sampling=Sampling(),
                results=episodes,
                rate=success_rate(episodes),
            )
        )
    return found


def _has_runs(services: Services, agent: str, environment: str | None) -> bool:
    return bool(
        services.store.trajectories.search(TrajectoryFilter(agent=agent, environment=environment), limit=1).items
    )


def _newest_by_task(services: Services, agent: str, environment: str | None) -> dict[str, EpisodeResult]:
    """Return task -> result of the newest recorded run with a verdict."""
    runs = services.store.trajectories.iterate(TrajectoryFilter(agent=agent, environment=environment))  # oldest first
    return {
        task_key(run): EpisodeResult(
            task_id=task_key(run),
            status=run.outcome.status,
            reward=run.outcome.reward,
            turns=len(run.steps),
            task_type=run.task.type,
            trajectory_id=run.id,
        )
        for run in runs
        if run.outcome.status.verdict is not None
    }
