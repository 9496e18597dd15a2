"""Agents that are compared: the curves on the way to an agent, and agents that are known by recorded runs alone."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from quintain.datasets.splits import task_key
from quintain.errors import InvalidInput
from quintain.evaluation.summary import success_rate
from quintain.next_step import Hint, call
from quintain.records.agent import Agent, Sampling
from quintain.records.evaluation import CurvePoint, EpisodeResult, Evaluation, LearningCurve
from quintain.records.filters import TrajectoryFilter
from quintain.records.wording import counted
from quintain.tools.services import Services


def ancestors_of(services: Services, agent_id: str) -> list[Agent]:
    """Return the agent and those that it was trained from, the nearest first, as far as they are still known."""
    found: dict[str | None, Agent] = {}
    agent = services.store.agents.find(agent_id)
    while agent is not None and agent.id not in found:
        found[agent.id] = agent
        agent = services.store.agents.find(agent.parent) if agent.parent else None
    return list(found.values())


def learning_curves(
    services: Services, agents: Sequence[str], evaluations: Sequence[Evaluation]
) -> tuple[LearningCurve, ...]:
    """Return the curves of compared agents; one that is the beginning of another is left out, and one of a single point is none."""
    curves = [_curve(services, name, found) for name, found in zip(agents, evaluations, strict=True)]
    known = sorted((curve for curve in curves if curve is not None), key=lambda curve: -len(curve.points))
    kept: list[LearningCurve] = []
    for curve in known:
        measured = {point.evaluation_id for point in curve.points}
        if not any(measured <= {point.evaluation_id for point in longer.points} for longer in kept):
            kept.append(curve)
    return tuple(kept)


def _curve(services: Services, name: str, compared: Evaluation) -> LearningCurve | None:
    """Success along the way to an agent, on the suite of its environment that most agents there have run."""
    suites: dict[str, dict[str, Evaluation]] = {compared.suite_hash: {}}
    way = _way_to(services, compared.agent_id)
    for agent in way:
        for found in services.store.evaluations.of_agent(agent.id or ""):  # the newest first
            if found.environment == compared.environment and found.rate.value is not None:
                suites.setdefault(found.suite_hash, {}).setdefault(found.agent_id, found)
    suite, run = max(suites.items(), key=lambda item: len(item[1]))  # of equals the compared one
    points = tuple(
        _point(place, run[agent.id]) for place, agent in enumerate(way) if agent.id is not None and agent.id in run
    )
    if len(points) < 2:
        return None
    n_tasks = next(iter(run.values())).n_tasks
    return LearningCurve(agent=name, suite_hash=suite, n_tasks=n_tasks, points=points)


def _way_to(services: Services, agent_id: str) -> list[Agent]:
    """Return the agents on the way to an agent: its ancestors, each after the earlier agents of its job."""
    way: dict[str, Agent] = {}
    for agent in reversed(ancestors_of(services, agent_id)):
        if agent.job_id is not None and agent.root_job_id is not None:
            job_id = agent.root_job_id
            before = [other for other in services.store.agents.of_job(job_id) if other.id != agent.id]
            stages = [other for other in before if (other.job_id or "") < agent.job_id or agent.job_id == job_id]
            way |= {stage.id: stage for stage in stages if stage.id and stage.id not in way}
        if agent.id:
            way[agent.id] = agent
    return list(way.values())


def _point(place: int, evaluation: Evaluation) -> CurvePoint:
    rate = evaluation.rate
    assert rate.value is not None
    assert rate.ci_low is not None
    assert rate.ci_high is not None
    return CurvePoint(
        place=place,
        agent_id=evaluation.agent_id,
        evaluation_id=evaluation.id,
        success_rate=rate.value,
        ci_low=rate.ci_low,
        ci_high=rate.ci_high,
        n=rate.n,
    )


RECORDED = "recorded runs"
"""Environment and split in the record of such an evaluation."""


class RecordedEvaluations(NamedTuple):
    """Recorded runs of agents as evaluations, which are not stored, and what is to be known of them."""

    evaluations: list[Evaluation]
    note: str


def recorded_evaluations(
    services: Services, agents: Sequence[str], environment: str | None = None
) -> RecordedEvaluations | None:
    """Return an evaluation for each agent; None where one is registered or none is known by runs.

    Raises:
        InvalidInput: no task has an outcome of all agents.
    """
    if any(name.startswith(("eval-", "endpoint:")) or services.store.agents.find(name) for name in agents):
        return None
    attempts = {name: Counter[str]() for name in agents}
    results = {name: _newest_by_task(services, name, environment, attempts[name]) for name in agents}
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
    older = sum(attempts[name][task] - 1 for name in agents for task in shared)
    left_out = f" ({counted(older, 'older attempt')} left out)" if older else ""
    return RecordedEvaluations(
        found,
        f"These are recorded runs, of each task the newest with an outcome{left_out}: prompts, tools and the choice of tasks may "
        "differ between the agents.",
    )


def _has_runs(services: Services, agent: str, environment: str | None) -> bool:
    return bool(
        services.store.trajectories.search(TrajectoryFilter(agent=agent, environment=environment), limit=1).items
    )


def _newest_by_task(
    services: Services, agent: str, environment: str | None, attempts: Counter[str]
) -> dict[str, EpisodeResult]:
    """Return task -> result of the newest recorded run with a verdict; count all that have one."""
    newest: dict[str, EpisodeResult] = {}
    runs = services.store.trajectories.iterate(TrajectoryFilter(agent=agent, environment=environment))  # oldest first
    for run in runs:
        if run.outcome.status.verdict is not None:
            task = task_key(run)
            attempts[task] += 1
            newest[task] = EpisodeResult(
                task_id=task,
                status=run.outcome.status,
                reward=run.outcome.reward,
                turns=len(run.steps),
                task_type=run.task.type,
                trajectory_id=run.id,
            )
    return newest
