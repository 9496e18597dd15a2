"""What was made from what: one row a link, written with the record that was made.

The many have tables of their own: the runs of a dataset, the runs of a job, the scores of a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sqlalchemy import Connection, select

from quintain.records.agent import Agent
from quintain.records.evaluation import Comparison, Evaluation
from quintain.records.handover import ExportAgentSpec
from quintain.records.hyperparameters import SFTConfig
from quintain.records.job import (
    EvaluateDatasetSpec,
    EvaluateSpec,
    EvolveSpec,
    Job,
    PreviewSpec,
    RecipeSpec,
    RolloutSpec,
    ScoreSpec,
    StepLabelSpec,
    TrainSpec,
)
from quintain.records.recipe import TrainStage
from quintain.records.trajectory import Trajectory
from quintain.store.engine import insert_missing
from quintain.store.tables import jobs, links

REPLAY = "replay"
"""Kind of a source that is no record: a replay buffer, by name."""


class Ref(NamedTuple):
    """A stored thing, by kind and id."""

    kind: str
    id: str


class Link(NamedTuple):
    """One thing that was made from another."""

    source: Ref
    target: Ref


def add_links(connection: Connection, found: Iterable[Link]) -> None:
    """Store links; those that are known already stay."""
    rows = [
        {"source_kind": link.source.kind, "source_id": link.source.id, **_target(link.target)}
        for link in dict.fromkeys(found)
    ]
    insert_missing(connection, links, rows)


def _target(target: Ref) -> dict[str, str]:
    return {"target_kind": target.kind, "target_id": target.id}


_WITH_AGENT = (
    TrainSpec,
    RolloutSpec,
    EvaluateSpec,
    EvaluateDatasetSpec,
    RecipeSpec,
    EvolveSpec,
    ScoreSpec,
    StepLabelSpec,
    ExportAgentSpec,
)


def of_job(connection: Connection, job: Job) -> Iterator[Link]:
    """What a job starts from: an agent, datasets, an earlier job, and what earlier jobs left in its replay buffers."""
    me, spec = Ref("job", job.id), job.spec
    if job.resumed_from is not None:
        yield Link(Ref("job", job.resumed_from), me)
    if isinstance(spec, _WITH_AGENT) and spec.agent.id:
        yield Link(Ref("agent", spec.agent.id), me)
    if isinstance(spec, PreviewSpec | EvaluateDatasetSpec):
        yield Link(Ref("dataset", spec.dataset_id), me)
    for part in trainings(job):
        if part.dataset_id is not None:
            yield Link(Ref("dataset", part.dataset_id), me)
        if (name := _replayed(part)) is not None:
            buffer = Ref(REPLAY, name)
            if (before := _newest_of(connection, buffer)) is not None and before != job.id:
                yield Link(Ref("job", before), me)
            yield Link(buffer, me)


def trainings(job: Job) -> list[TrainSpec | TrainStage]:
    """The trainings of a job: itself, or stages of its recipe."""
    if isinstance(job.spec, RecipeSpec):
        return [stage for stage in job.spec.stages if isinstance(stage, TrainStage)]
    return [job.spec] if isinstance(job.spec, TrainSpec) else []


def replay_buffers(job: Job) -> set[str]:
    """Names of the replay buffers that a job reads and fills."""
    return {name for part in trainings(job) if (name := _replayed(part)) is not None}


def _replayed(part: TrainSpec | TrainStage) -> str | None:
    """The replay buffer of a training, where its method has one and it is in use."""
    replay = part.config.replay if isinstance(part.config, SFTConfig) else None
    return replay.buffer if replay is not None else None


def learns_online(job: Job) -> bool:
    """Does this job train on runs that it makes itself?"""
    return any(part.environment is not None for part in trainings(job))


def plays_to_learn(job: Job) -> bool:
    """Does this job make runs that agents of it learn from: while it trains, or before, as datasets?"""
    return isinstance(job.spec, EvolveSpec) or learns_online(job)


def of_agent(connection: Connection, agent: Agent) -> Iterator[Link]:
    """The job that made an agent; without one the agent whose model it is.

    An evolution makes many agents on many datasets: each is linked with its own, and with the one that it was trained from.
    """
    me = Ref("agent", agent.id or "")
    job_id = agent.job_id.split("/")[0] if agent.job_id else None
    if job_id is not None:
        yield Link(Ref("job", job_id), me)
    evolved = job_id is not None and _kind(connection, job_id) == "evolve"
    if agent.parent is not None and (evolved or job_id is None):
        yield Link(Ref("agent", agent.parent), me)
    if agent.dataset_id is not None and evolved:
        yield Link(Ref("dataset", agent.dataset_id), me)


def _kind(connection: Connection, job_id: str) -> str | None:
    return connection.scalar(select(jobs.c.kind).where(jobs.c.id == job_id))


def of_evaluation(evaluation: Evaluation) -> Iterator[Link]:
    """The agent that was measured, and the job that did it."""
    me = Ref("evaluation", evaluation.id)
    yield Link(Ref("agent", evaluation.agent_id), me)
    if evaluation.job_id is not None:
        yield Link(Ref("job", evaluation.job_id), me)


def of_comparison(comparison: Comparison) -> Iterator[Link]:
    """The evaluations that were compared."""
    me = Ref("comparison", comparison.id)
    for pair in comparison.comparisons:
        yield Link(Ref("evaluation", pair.evaluation_a), me)
        yield Link(Ref("evaluation", pair.evaluation_b), me)


def of_run(run: Trajectory) -> Iterator[Link]:
    """The run that this one goes on from, and the runs that it started as its subagents."""
    me = Ref("trajectory", run.id or "")
    if run.continues:
        yield Link(Ref("trajectory", run.continues), me)
    for subagent in run.subagents:
        yield Link(me, Ref("trajectory", subagent))


def _newest_of(connection: Connection, buffer: Ref) -> str | None:
    """The newest job that used a replay buffer."""
    found = (
        select(jobs.c.id)
        .join(links, (links.c.target_kind == "job") & (links.c.target_id == jobs.c.id))
        .where(links.c.source_kind == buffer.kind, links.c.source_id == buffer.id)
    )
    return connection.scalar(found.order_by(jobs.c.seq.desc()).limit(1))
