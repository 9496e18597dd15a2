"""Links from sources to targets, stored with the target.

Large relations have their own tables: runs of a dataset, runs of a job, scores of a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sqlalchemy import Connection, select

from quintain.records.agent import Agent
from quintain.records.evaluation import Comparison, Evaluation
from quintain.records.hyperparameters.methods import SFTConfig
from quintain.records.jobs.job import (
    CompareSpec,
    EvaluateSpec,
    EvolveSpec,
    Job,
    PreviewSpec,
    RecipeSpec,
    RolloutSpec,
    TrainSpec,
)
from quintain.records.jobs.recipe import TrainStage
from quintain.records.trajectory import Trajectory
from quintain.store.database.engine import insert_missing
from quintain.store.database.tables import jobs, links

REPLAY_BUFFER = "replay"
"""Source kind of a replay buffer, which is identified by name and is not a record."""


TAKEN_OVER = "taken_over"
"""Source kind of a run that a job has taken over from the job that it resumes."""


class Ref(NamedTuple):
    """Reference to a stored record."""

    kind: str
    id: str


class Link(NamedTuple):
    """Link from a source to a record derived from it."""

    source: Ref
    target: Ref


def add_links(connection: Connection, found: Iterable[Link]) -> None:
    """Store links, skipping known ones."""
    rows = [
        {"source_kind": link.source.kind, "source_id": link.source.id, **_target(link.target)}
        for link in dict.fromkeys(found)
    ]
    insert_missing(connection, links, rows)


def _target(target: Ref) -> dict[str, str]:
    return {"target_kind": target.kind, "target_id": target.id}


def job_links(connection: Connection, job: Job) -> Iterator[Link]:
    """Yield the inputs of a job: agent, datasets, the job it resumes, and earlier jobs through replay buffers."""
    me, spec = Ref("job", job.id), job.spec
    if job.resumed_from is not None:
        yield Link(Ref("job", job.resumed_from), me)
    agent = None if isinstance(spec, PreviewSpec) else getattr(spec, "agent", None)
    if isinstance(agent, Agent) and agent.id:
        yield Link(Ref("agent", agent.id), me)
    if isinstance(spec, RolloutSpec | EvaluateSpec) and spec.opponent is not None and spec.opponent.id:
        yield Link(Ref("agent", spec.opponent.id), me)
    if isinstance(spec, CompareSpec):
        yield from (Link(Ref("agent", side.agent.id), me) for side in (spec.a, spec.b) if side.agent.id)
    played = spec.a if isinstance(spec, CompareSpec) else spec
    for dataset_id in (getattr(part, "dataset_id", None) for part in (played, *train_parts(job))):
        if dataset_id is not None:
            yield Link(Ref("dataset", dataset_id), me)
    for part in train_parts(job):
        if part.teacher_agent is not None and part.teacher_agent.id:
            yield Link(Ref("agent", part.teacher_agent.id), me)
        if part.earlier is not None:
            yield Link(Ref("dataset", part.earlier.dataset_id), me)
            if part.earlier.agent is not None and part.earlier.agent.id:
                yield Link(Ref("agent", part.earlier.agent.id), me)
        if (name := _replay_buffer(part)) is not None:
            buffer = Ref(REPLAY_BUFFER, name)
            if (before := _newest_job_using(connection, buffer)) is not None and before != job.id:
                yield Link(Ref("job", before), me)
            yield Link(buffer, me)


def train_parts(job: Job) -> list[TrainSpec | TrainStage]:
    """Return the training specs of a job: its own, or those of its recipe's stages."""
    if isinstance(job.spec, RecipeSpec):
        return [stage for stage in job.spec.stages if isinstance(stage, TrainStage)]
    return [job.spec] if isinstance(job.spec, TrainSpec) else []


def replay_buffers(job: Job) -> set[str]:
    """Return the names of the replay buffers that a job reads and fills."""
    return {name for part in train_parts(job) if (name := _replay_buffer(part)) is not None}


def _replay_buffer(part: TrainSpec | TrainStage) -> str | None:
    """Return the replay buffer that a training uses, or None."""
    replay = part.config.replay if isinstance(part.config, SFTConfig) else None
    return replay.buffer if replay is not None else None


def trains_online(job: Job) -> bool:
    """Whether the job trains on its own rollouts as they are, without a dataset."""
    if isinstance(job.spec, EvolveSpec):
        return not job.spec.config.explores
    return any(part.environment is not None for part in train_parts(job))


def makes_training_runs(job: Job) -> bool:
    """Whether the job produces rollouts that its agents learn from, during training or through datasets."""
    return isinstance(job.spec, EvolveSpec) or trains_online(job)


def agent_links(connection: Connection, agent: Agent) -> Iterator[Link]:
    """Yield the job that produced an agent, or its parent agent if there is no job.

    An evolution produces many agents on many datasets, so each is linked to its own dataset and parent.
    """
    me = Ref("agent", agent.id or "")
    job_id = agent.root_job_id
    if job_id is not None:
        yield Link(Ref("job", job_id), me)
    evolved = connection.scalar(select(jobs.c.kind).where(jobs.c.id == job_id)) == "evolve"
    if agent.parent is not None and (evolved or job_id is None):
        yield Link(Ref("agent", agent.parent), me)
    if agent.dataset_id is not None and evolved:
        yield Link(Ref("dataset", agent.dataset_id), me)


def evaluation_links(evaluation: Evaluation) -> Iterator[Link]:
    """Yield the evaluated agent and the job."""
    me = Ref("evaluation", evaluation.id)
    yield Link(Ref("agent", evaluation.agent_id), me)
    if evaluation.job_id is not None:
        yield Link(Ref("job", evaluation.job_id), me)


def comparison_links(comparison: Comparison) -> Iterator[Link]:
    """Yield the compared evaluations."""
    me = Ref("comparison", comparison.id)
    for pair in comparison.comparisons:
        yield Link(Ref("evaluation", pair.evaluation_a), me)
        yield Link(Ref("evaluation", pair.evaluation_b), me)


def run_links(run: Trajectory) -> Iterator[Link]:
    """Yield the run that this run continues, and its subagent runs."""
    me = Ref("trajectory", run.id or "")
    if run.continues:
        yield Link(Ref("trajectory", run.continues), me)
    for subagent in run.subagents:
        yield Link(me, Ref("trajectory", subagent))


def _newest_job_using(connection: Connection, buffer: Ref) -> str | None:
    """Return the newest job that used a replay buffer."""
    found = (
        select(jobs.c.id)
        .join(links, (links.c.target_kind == "job") & (links.c.target_id == jobs.c.id))
        .where(links.c.source_kind == buffer.kind, links.c.source_id == buffer.id)
    )
    return connection.scalar(found.order_by(jobs.c.seq.desc()).limit(1))
