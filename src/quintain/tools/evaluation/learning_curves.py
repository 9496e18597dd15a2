"""Learning curves: success along the way that led to an agent, from evaluations that are stored."""

from __future__ import annotations

from collections.abc import Sequence

from quintain.records.agent import Agent
from quintain.records.evaluation import CurvePoint, Evaluation, LearningCurve
from quintain.tools.services import Services


def ancestors_of(services: Services, agent_id: str) -> list[Agent]:
    """The agent and those that it was trained from, the nearest first, as far as they are still known."""
    found: dict[str | None, Agent] = {}
    agent = services.store.agents.find(agent_id)
    while agent is not None and agent.id not in found:
        found[agent.id] = agent
        agent = services.store.agents.find(agent.parent) if agent.parent else None
    return list(found.values())


def learning_curves(
    services: Services, agents: Sequence[str], evaluations: Sequence[Evaluation]
) -> tuple[LearningCurve, ...]:
    """The curves of compared agents; one that is the beginning of another is left out, and one of a single point is none.

    Args:
        services: Where agents and evaluations are looked up.
        agents: As the comparison calls them.
        evaluations: The compared evaluation of each; curves are of the same environment.
    """
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
        if agent.job_id is not None:
            job_id = agent.job_id.partition("/")[0]
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
