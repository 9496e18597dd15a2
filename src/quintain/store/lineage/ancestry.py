"""One step up or down between stored things: what this was made from, what was made from it.

Runs that came the same way are one thing as soon as there are more than `FEW`: all of a dataset, all of a job. What an
agent plays while it trains (`rollouts`) is told apart from the runs on which it is measured: it learned from the former.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sqlalchemy import ColumnElement, Connection, Select, func, or_, select

from quintain.store.jobs import find_job
from quintain.store.lineage.forgotten import any_forgotten
from quintain.store.lineage.links import REPLAY, Ref, learns_online, plays_to_learn
from quintain.store.tables import dataset_members, links, scores, trajectories

FEW = 10
"""So many runs are shown one by one."""

MEMBERS, ROLLOUTS, RUNS = "members", "rollouts", "runs"
"""Kinds of sets of runs: of a dataset, played by a job to learn from, and what else a job made; by the owner's id."""

_t = trajectories.c
PLAYED = _t.tags.contains('"rollout"')
"""Runs that an online training played to learn from; the trainings tag them so."""


def sources(connection: Connection, ref: Ref) -> list[Ref]:
    """What a thing was made from, or by."""
    match ref:
        case Ref("trajectory", run_id):
            job_id = connection.scalar(select(_t.job_id).where(_t.id == run_id))
            return [*_linked_sources(connection, ref), *([Ref("job", job_id)] if job_id else [])]
        case Ref("members"):
            made_by = select(_t.job_id).distinct().where(_t.job_id.is_not(None), of_set(ref))
            return [Ref("job", job_id) for job_id in connection.scalars(made_by)]
        case Ref("rollouts" | "runs", job_id):
            return [Ref("job", job_id)]
        case Ref("dataset", dataset_id):
            return _shown(connection, Ref(MEMBERS, dataset_id))
        case Ref("score", score_id):
            return [Ref("trajectory", score_id.rsplit("/", 1)[0])]
        case Ref("checkpoint", checkpoint_id):
            return [Ref("job", checkpoint_id.rsplit("/", 1)[0])]
    found = _linked_sources(connection, ref)
    if ref.kind in {"agent", "evaluation"}:
        kind = ROLLOUTS if ref.kind == "agent" else RUNS
        makers = [made_by.id for made_by in found if made_by.kind == "job"]
        if ref.kind == "agent":
            makers = [job_id for job_id in makers if _is_online(connection, job_id)]
        found += [run for job_id in makers for run in _made(connection, job_id, kind)]
    return found


def targets(connection: Connection, ref: Ref) -> list[Ref]:
    """What was made from, or by, a thing."""
    match ref:
        case Ref("trajectory", run_id):
            return [*_linked_targets(connection, ref), *_of_run(connection, run_id)]
        case Ref("members", dataset_id):
            return [Ref("dataset", dataset_id)]
        case Ref("rollouts" | "runs", job_id):
            m = dataset_members.c
            held = select(m.dataset_id).distinct().join(trajectories, _t.id == m.trajectory_id).where(of_set(ref))
            datasets = [Ref("dataset", dataset_id) for dataset_id in connection.scalars(held)]
            return datasets + _consumers(connection, job_id, played=ref.kind == ROLLOUTS)
        case Ref("job", job_id):
            runs = [run for kind in (ROLLOUTS, RUNS) for run in _made(connection, job_id, kind)]
            return [*_linked_targets(connection, ref), *runs]
    return _linked_targets(connection, ref)


def of_set(ref: Ref) -> ColumnElement[bool]:
    """The condition that selects the runs of a set."""
    if ref.kind == MEMBERS:
        m = dataset_members.c
        return _t.id.in_(select(m.trajectory_id).where(m.dataset_id == ref.id))
    mine = _t.job_id == ref.id
    return mine & (PLAYED if ref.kind == ROLLOUTS else ~PLAYED)


def size_of(connection: Connection, ref: Ref) -> int:
    """How many runs a set has."""
    return connection.scalar(select(func.count()).select_from(trajectories).where(of_set(ref))) or 0


def _shown(connection: Connection, runs: Ref) -> list[Ref]:
    """A set of runs as one thing, or as its runs where they are few."""
    first = list(connection.scalars(select(_t.id).where(of_set(runs)).limit(FEW + 1)))
    return [runs] if len(first) > FEW else [Ref("trajectory", run_id) for run_id in first]


def _made(connection: Connection, job_id: str, kind: str) -> list[Ref]:
    """The runs that a job made: to learn from them, or others."""
    job = find_job(connection, job_id)
    if kind == ROLLOUTS and (job is None or not plays_to_learn(job)):
        return []
    return _shown(connection, Ref(kind, job_id))


def _is_online(connection: Connection, job_id: str) -> bool:
    job = find_job(connection, job_id)
    return job is not None and learns_online(job)


def _of_run(connection: Connection, run_id: str) -> list[Ref]:
    """Scores, datasets and, through the job that made the run, what else it went into."""
    scorers = connection.scalars(select(scores.c.scorer).distinct().where(scores.c.trajectory_id == run_id))
    m = dataset_members.c
    datasets = connection.scalars(select(m.dataset_id).where(m.trajectory_id == run_id))
    found = [Ref("score", f"{run_id}/{scorer}") for scorer in scorers] + [Ref("dataset", held) for held in datasets]
    made = connection.execute(select(_t.job_id, PLAYED.label("played")).where(_t.id == run_id)).first()
    if made is not None and made.job_id is not None:
        found += _consumers(connection, made.job_id, played=bool(made.played))
    return found


def _consumers(connection: Connection, job_id: str, *, played: bool) -> list[Ref]:
    """What a job made of its own runs: an agent of what it played to learn, an evaluation of the others."""
    if played and not _is_online(connection, job_id):
        return []  # what an evolution played went into datasets
    wanted = "agent" if played else "evaluation"
    return [ref for ref in _linked_targets(connection, Ref("job", job_id)) if ref.kind == wanted]


def _linked_sources(connection: Connection, ref: Ref) -> list[Ref]:
    query = select(links.c.source_kind, links.c.source_id)
    return _refs(connection, query.where(links.c.target_kind == ref.kind, links.c.target_id == ref.id))


def _linked_targets(connection: Connection, ref: Ref) -> list[Ref]:
    query = select(links.c.target_kind, links.c.target_id)
    return _refs(connection, query.where(links.c.source_kind == ref.kind, links.c.source_id == ref.id))


def _refs(connection: Connection, query: Select[str, str]) -> list[Ref]:
    return [Ref(kind, found) for kind, found in connection.execute(query) if kind != REPLAY]


def reach(first: Iterable[Ref], neighbours: Callable[[Ref], Iterable[Ref]]) -> list[Ref]:
    """All that can be reached, the first included, nearest first."""
    seen = dict.fromkeys(first)
    waiting = list(seen)
    while waiting:
        found = dict.fromkeys(other for ref in waiting for other in neighbours(ref) if other not in seen)
        seen |= found
        waiting = list(found)
    return list(seen)


_LEARNING = frozenset({"dataset", "job", "agent"})


def taught(connection: Connection, agents: Iterable[str]) -> tuple[list[str], list[str]]:
    """What agents learned from, through their base agents too: datasets, and jobs that learned online."""
    seen = reach([Ref("agent", agent) for agent in agents], lambda ref: _linked_sources(connection, ref))
    jobs = [ref.id for ref in seen if ref.kind == "job"]
    online = [job_id for job_id in jobs if _is_online(connection, job_id)]
    return [ref.id for ref in seen if ref.kind == "dataset"], online


def learners(connection: Connection, runs: Iterable[str]) -> list[str]:
    """The agents that learned from any of these runs, directly or through their base agents."""
    first = [ref for run_id in runs for ref in _of_run(connection, run_id) if ref.kind in _LEARNING]
    seen = reach(first, lambda ref: _linked_targets(connection, ref))
    return [ref.id for ref in seen if ref.kind == "agent"]


def learns_from_forgotten(connection: Connection, agent_id: str) -> int:
    """How many forgotten runs an agent has learned from."""
    if not any_forgotten(connection):
        return 0
    gone = select(_t.id).where(_t.forgotten_at.is_not(None), of_teaching(*taught(connection, [agent_id])))
    return connection.scalar(select(func.count()).select_from(gone.subquery())) or 0


def of_teaching(dataset_ids: Sequence[str], online_jobs: Sequence[str]) -> ColumnElement[bool]:
    """The condition that selects the runs of these datasets, and what these jobs played to learn from."""
    m = dataset_members.c
    held = _t.id.in_(select(m.trajectory_id).where(m.dataset_id.in_(dataset_ids)))
    return or_(held, _t.job_id.in_(online_jobs) & PLAYED)
