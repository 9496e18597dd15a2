"""Lineage graph: direct sources and targets of stored records, and traversals.

More than `MAX_SINGLE_RUNS` runs of one dataset or job form a single node. Runs that an agent played during training
(`rollouts`) are separate from the runs on which it was evaluated, because it learned only from the former.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, func, intersect, or_, select, union

from quintain.records.dataset import SplitName
from quintain.store.database.tables import dataset_members, links, scores, trajectories
from quintain.store.job_rows import find_job
from quintain.store.lineage.forgetting import any_forgotten
from quintain.store.lineage.links import REPLAY_BUFFER, TAKEN_OVER, Ref, makes_training_runs, trains_online
from quintain.store.trajectories.filters import in_split, job_condition
from quintain.store.trajectories.rows import PROMPT_CHARS

MAX_SINGLE_RUNS = 10
"""Up to this number, runs of a set are separate nodes."""

MEMBERS, ROLLOUTS, RUNS = "members", "rollouts", "runs"
"""Kinds of run sets, identified by their owner: members of a dataset, training rollouts of a job, its other runs."""

MOST_READ = 2_000
"""Runs of a side whose long prompts are compared: they may all begin alike, and stand in documents of any size."""

_t = trajectories.c
IS_ROLLOUT = _t.tags.contains('"rollout"')
"""Runs that an online training played to learn from. The trainers set the tag."""


def sources(connection: Connection, ref: Ref) -> list[Ref]:
    """Return the direct sources of a record."""
    match ref:
        case Ref("trajectory", run_id):
            job_id = connection.scalar(select(_t.job_id).where(_t.id == run_id))
            return [*_linked_sources(connection, ref), *([Ref("job", job_id)] if job_id else [])]
        case Ref("members"):
            made_by = select(_t.job_id).distinct().where(_t.job_id.is_not(None), run_set_filter(ref))
            return [Ref("job", job_id) for job_id in connection.scalars(made_by)]
        case Ref("rollouts" | "runs", job_id):
            return [Ref("job", job_id)]
        case Ref("dataset", dataset_id):
            return _collapse(connection, Ref(MEMBERS, dataset_id))
        case Ref("score", score_id):
            return [Ref("trajectory", score_id.rsplit("/", 1)[0])]
        case Ref("checkpoint", checkpoint_id):
            return [Ref("job", checkpoint_id.rsplit("/", 1)[0])]
    found = _linked_sources(connection, ref)
    if ref.kind == "agent":
        online = [source.id for source in found if source.kind == "job" and _is_online(connection, source.id)]
        found += [run for job_id in online for run in _runs_of_job(connection, job_id, ROLLOUTS)]
    return found


def targets(connection: Connection, ref: Ref) -> list[Ref]:
    """Return the direct targets of a record."""
    match ref:
        case Ref("trajectory", run_id):
            return [*linked_targets(connection, ref), *_targets_of_run(connection, run_id)]
        case Ref("members", dataset_id):
            return [Ref("dataset", dataset_id)]
        case Ref("rollouts" | "runs", job_id):
            m = dataset_members.c
            held = (
                select(m.dataset_id).distinct().join(trajectories, _t.id == m.trajectory_id).where(run_set_filter(ref))
            )
            datasets = [Ref("dataset", dataset_id) for dataset_id in connection.scalars(held)]
            return datasets + _outputs_from_runs(connection, job_id, played=ref.kind == ROLLOUTS)
        case Ref("job", job_id):
            runs = [run for kind in (ROLLOUTS, RUNS) for run in _runs_of_job(connection, job_id, kind)]
            return [*linked_targets(connection, ref), *runs]
    return linked_targets(connection, ref)


def run_set_filter(ref: Ref) -> ColumnElement[bool]:
    """Return the condition that selects the runs of a set."""
    if ref.kind == MEMBERS:
        m = dataset_members.c
        return _t.id.in_(select(m.trajectory_id).where(m.dataset_id == ref.id))
    mine = job_condition(ref.id)
    return mine & (IS_ROLLOUT if ref.kind == ROLLOUTS else ~IS_ROLLOUT)


def run_set_size(connection: Connection, ref: Ref) -> int:
    """Return the number of runs in a set."""
    return connection.scalar(select(func.count()).select_from(trajectories).where(run_set_filter(ref))) or 0


def _collapse(connection: Connection, runs: Ref) -> list[Ref]:
    """Return a set of runs as one node, or as single runs if there are few."""
    first = list(connection.scalars(select(_t.id).where(run_set_filter(runs)).limit(MAX_SINGLE_RUNS + 1)))
    return [runs] if len(first) > MAX_SINGLE_RUNS else [Ref("trajectory", run_id) for run_id in first]


def _runs_of_job(connection: Connection, job_id: str, kind: str) -> list[Ref]:
    """Return the training rollouts or the other runs of a job."""
    job = find_job(connection, job_id)
    if kind == ROLLOUTS and (job is None or not makes_training_runs(job)):
        return []
    return _collapse(connection, Ref(kind, job_id))


def _is_online(connection: Connection, job_id: str) -> bool:
    job = find_job(connection, job_id)
    return job is not None and trains_online(job)


def _targets_of_run(connection: Connection, run_id: str, *, trained: bool = False) -> list[Ref]:
    """Return scores, datasets and, through the run's job, the agent or evaluation derived from it.

    With `trained` only datasets in whose training split it is.
    """
    scorers = connection.scalars(select(scores.c.scorer).distinct().where(scores.c.trajectory_id == run_id))
    m = dataset_members.c
    holding = select(m.dataset_id).where(m.trajectory_id == run_id)
    datasets = connection.scalars(holding.where(in_split("train")) if trained else holding)
    found = [Ref("score", f"{run_id}/{scorer}") for scorer in scorers] + [Ref("dataset", held) for held in datasets]
    run = connection.execute(select(_t.job_id, IS_ROLLOUT.label("played")).where(_t.id == run_id)).first()
    if run is not None and run.job_id is not None:
        for job_id in (run.job_id, *(ref.id for ref in linked_targets(connection, Ref(TAKEN_OVER, run_id)))):
            found += _outputs_from_runs(connection, job_id, played=bool(run.played))
    return found


def _outputs_from_runs(connection: Connection, job_id: str, *, played: bool) -> list[Ref]:
    """Return the output of a job from its own runs: an agent from rollouts, an evaluation from the others."""
    if played and not _is_online(connection, job_id):
        return []  # rollouts of an evolution go into datasets
    wanted = "agent" if played else "evaluation"
    return [ref for ref in linked_targets(connection, Ref("job", job_id)) if ref.kind == wanted]


def _linked_sources(connection: Connection, ref: Ref) -> list[Ref]:
    query = select(links.c.source_kind, links.c.source_id)
    return _refs(connection, query.where(links.c.target_kind == ref.kind, links.c.target_id == ref.id))


def linked_targets(connection: Connection, ref: Ref) -> list[Ref]:
    """Return the direct targets of a record, without those through runs."""
    query = select(links.c.target_kind, links.c.target_id)
    return _refs(connection, query.where(links.c.source_kind == ref.kind, links.c.source_id == ref.id))


def _refs(connection: Connection, query: Select[str, str]) -> list[Ref]:
    return [Ref(kind, found) for kind, found in connection.execute(query) if kind not in {REPLAY_BUFFER, TAKEN_OVER}]


def reachable(first: Iterable[Ref], neighbours: Callable[[Ref], Iterable[Ref]]) -> list[Ref]:
    """Return all reachable nodes in breadth-first order, including the first."""
    seen = dict.fromkeys(first)
    waiting = list(seen)
    while waiting:
        found = dict.fromkeys(other for ref in waiting for other in neighbours(ref) if other not in seen)
        seen |= found
        waiting = list(found)
    return list(seen)


_LEARNING = frozenset({"dataset", "job", "agent"})


def training_sources(connection: Connection, agents: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the datasets and online jobs that agents learned from, including those of their base agents."""
    reached = reachable([Ref("agent", agent) for agent in agents], lambda ref: _linked_sources(connection, ref))
    jobs = [ref.id for ref in reached if ref.kind == "job"]
    online = [job_id for job_id in jobs if _is_online(connection, job_id)]
    return [ref.id for ref in reached if ref.kind == "dataset"], online


def agents_trained_on(connection: Connection, runs: Iterable[str]) -> list[str]:
    """Return the agents that learned from any of these runs, directly or through their base agents."""
    first = [
        ref for run_id in runs for ref in _targets_of_run(connection, run_id, trained=True) if ref.kind in _LEARNING
    ]
    reached = reachable(first, lambda ref: linked_targets(connection, ref))
    return [ref.id for ref in reached if ref.kind == "agent"]


class SharedTasks(NamedTuple):
    """Tasks of a dataset or a job that an agent has learned from."""

    known: int
    total: int


def tasks_trained_on(
    connection: Connection,
    agent_id: str,
    source_id: str,
    split: SplitName | None = None,
    *,
    by_prompt: bool,
) -> SharedTasks:
    """Return how many tasks of the runs of a dataset or a job are tasks that an agent learned from.

    Those are tasks of the same id in the same environment, and those without an environment, with `by_prompt` all, whose
    prompt a run without an environment states. Prompts that are longer than the table keeps are compared in at most
    `MOST_READ` runs. Of a dataset only the runs of `split` count, if that is named. A run without a task id is a separate task.
    """
    held = select(dataset_members.c.trajectory_id).where(dataset_members.c.dataset_id == source_id)
    held = held if split is None else held.where(in_split(split))
    members = or_(_t.id.in_(held), job_condition(source_id))
    learned = training_runs_filter(*training_sources(connection, [agent_id]))

    def tasks(runs: ColumnElement[bool], *more: Any) -> Select[Any]:
        task = func.coalesce(_t.environment, ""), func.coalesce(_t.task_id, _t.id)
        return select(*task, *more).where(runs).distinct()

    whole, same = tasks(members).subquery(), intersect(tasks(members), tasks(learned)).subquery()
    rows = learned & _t.environment.is_(None) & (_t.prompt != "")
    is_whole = func.length(_t.prompt) < PROMPT_CHARS
    named = members if by_prompt else members & _t.environment.is_(None)

    def begins_as(runs: ColumnElement[bool]) -> ColumnElement[bool]:
        return _t.prompt.in_(select(_t.prompt).where(runs).correlate(None))

    shared = union(select(same), tasks(named & begins_as(rows & is_whole)))
    # Of longer prompts the table has the beginning; the others are in the documents.
    learned_from = select(_t.document).where(rows, ~is_whole, begins_as(named)).limit(MOST_READ)
    read = {_prompt(text) for text in connection.scalars(learned_from)}
    long = tasks(named & begins_as(rows & ~is_whole), _t.document).limit(MOST_READ)
    measured = connection.execute(long) if read else ()
    known = {(*task,) for *task, text in measured if _prompt(text) in read}
    if known:
        known |= {(*task,) for task in connection.execute(shared)}
    n_shared = len(known) or connection.scalar(select(func.count()).select_from(shared.subquery()))
    return SharedTasks(known=n_shared or 0, total=connection.scalar(select(func.count()).select_from(whole)) or 0)


def _prompt(document: str) -> str:
    return str(json.loads(document)["task"]["prompt"])


def count_forgotten_sources(connection: Connection, agent_id: str) -> int:
    """Return the number of forgotten runs that an agent learned from."""
    if not any_forgotten(connection):
        return 0
    gone = select(_t.id).where(
        _t.forgotten_at.is_not(None), training_runs_filter(*training_sources(connection, [agent_id]))
    )
    return connection.scalar(select(func.count()).select_from(gone.subquery())) or 0


def training_runs_filter(dataset_ids: Sequence[str], online_jobs: Sequence[str]) -> ColumnElement[bool]:
    """Return the condition that selects the training runs of these datasets and the training rollouts of these jobs."""
    m = dataset_members.c
    held = _t.id.in_(select(m.trajectory_id).where(m.dataset_id.in_(dataset_ids), in_split("train")))
    return or_(held, _t.job_id.in_(online_jobs) & IS_ROLLOUT)
