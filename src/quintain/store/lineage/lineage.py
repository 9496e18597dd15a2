"""Lineage both ways, over what is stored; and forgetting, which takes runs out and says what they had touched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine, delete, func, select

from quintain.errors import NotFound
from quintain.records.lineage import Forgotten, Learned, LineageEdge, LineageNode, Touched
from quintain.records.lineage import Lineage as View
from quintain.store.agents import find_agent
from quintain.store.engine import reading, writing
from quintain.store.jobs import find_job
from quintain.store.lineage.ancestry import (
    learners,
    learns_from_forgotten,
    of_teaching,
    reach,
    sources,
    targets,
    taught,
)
from quintain.store.lineage.forgotten import close_session, datasets_with_forgotten, forgotten_of, remove
from quintain.store.lineage.links import REPLAY, Ref, replay_buffers
from quintain.store.lineage.nodes import describe, newest_checkpoint, node_id
from quintain.store.tables import agents, comparisons, datasets, evaluations, jobs, links, trajectories

MAX_NODES = 200
"""Nodes that a view lists; what lies beyond is counted."""

MAX_FAN = 25
"""Things of one kind that a view lists for one thing: the newest."""

_IDENTIFIED = {
    "trajectory": trajectories,
    "dataset": datasets,
    "job": jobs,
    "agent": agents,
    "evaluation": evaluations,
    "comparison": comparisons,
}


@dataclass(frozen=True)
class Lineage:
    """What was made from what."""

    engine: Engine

    def resolve(self, name: str) -> list[Ref]:
        """The things that an id or a name means: one, or all runs of a session.

        Args:
            name: The id of a trajectory, dataset, job, agent, evaluation or comparison; JOB/STEP of a checkpoint; the
                name of an agent or dataset (the newest); or a session id.

        Raises:
            NotFound: nothing has it.
        """
        with reading(self.engine) as connection:
            for kind, table in _IDENTIFIED.items():
                if connection.scalar(select(table.c.id).where(table.c.id == name)) is not None:
                    return [Ref(kind, name)]
            if (agent := find_agent(connection, name)) is not None:
                return [Ref("agent", agent.id or "")]
            named = select(datasets.c.id).where(datasets.c.name == name).order_by(datasets.c.seq.desc())
            if (dataset := connection.scalar(named.limit(1))) is not None:
                return [Ref("dataset", dataset)]
            if newest_checkpoint(connection, name.rsplit("/", 1)[0]) is not None and "/" in name:
                return [Ref("checkpoint", name)]
            t = trajectories.c
            runs = list(connection.scalars(select(t.id).where(t.session_id == name).order_by(t.seq)))
        if runs:
            return [Ref("trajectory", run_id) for run_id in runs]
        raise NotFound(
            f"nothing stored has the id, name or session {name[:80]!r}; give an id from search_trajectories, list_jobs or "
            "list_library, or the session id of imported runs"
        )

    def nodes(self, refs: Sequence[Ref]) -> list[LineageNode]:
        """What these things are."""
        with reading(self.engine) as connection:
            found = describe(connection, refs)
        return [found[ref] for ref in refs]

    def ancestors(self, refs: Sequence[Ref], depth: int) -> View:
        """What made these things, up to `depth` steps back."""
        with reading(self.engine) as connection:
            return _view(connection, refs, depth, lambda ref: sources(connection, ref), backwards=True)

    def descendants(self, refs: Sequence[Ref], depth: int) -> View:
        """What these things made, up to `depth` steps on."""
        with reading(self.engine) as connection:
            return _view(connection, refs, depth, lambda ref: _made(connection, ref), backwards=False)

    def learned(self, agent_id: str) -> Learned:
        """Every run that an agent learned from: its datasets, its own rollouts, and those of its base agents."""
        with reading(self.engine) as connection:
            held, online = taught(connection, [agent_id])
            count = select(func.count()).select_from(trajectories).where(of_teaching(held, online))
            return Learned(count=connection.scalar(count) or 0, datasets=tuple(held), online_jobs=tuple(online))

    def shaped(self, trajectory_ids: Sequence[str]) -> list[str]:
        """Every agent that learned from any of these runs, directly or through its base agents."""
        with reading(self.engine) as connection:
            return learners(connection, trajectory_ids)

    def forgotten(self, ids: Sequence[str]) -> set[str]:
        """Which of these trajectories were forgotten."""
        with reading(self.engine) as connection:
            return forgotten_of(connection, ids)

    def blocked(self, dataset_ids: Sequence[str]) -> dict[str, int]:
        """Which of these datasets hold forgotten runs, and how many."""
        with reading(self.engine) as connection:
            return datasets_with_forgotten(connection, dataset_ids)

    def taint(self, agent_id: str) -> int:
        """How many forgotten runs an agent has learned from."""
        with reading(self.engine) as connection:
            return learns_from_forgotten(connection, agent_id)

    def forget(self, trajectory_ids: Sequence[str], now: datetime, *, session_id: str | None = None) -> Forgotten:
        """Take the content of runs out of the store for good, so that nothing can be made of them again.

        Their ids and hashes stay: the same log imported again brings nothing back, and neither does a session that has
        grown since. What was made of them stays as it is; datasets that hold them are `blocked`, agents that learned from
        them have a `taint`.

        Args:
            trajectory_ids: The runs.
            now: When it happens.
            session_id: The session that they are all the runs of; then no other run of it comes in either.

        Raises:
            NotFound: an id that is not stored; nothing is forgotten.
        """
        with writing(self.engine) as connection:
            touched, buffers = _touched(connection, trajectory_ids)
            removed = remove(connection, trajectory_ids, now)
            if session_id is not None:
                close_session(connection, session_id, trajectory_ids[0], now)
            # Buffers are emptied by the caller; what fills them from here on has nothing to do with what they held.
            connection.execute(
                delete(links).where(links.c.source_kind == REPLAY, links.c.source_id.in_(sorted(buffers)))
            )
        return Forgotten(
            trajectory_ids=removed.now,
            before=removed.before,
            scores_removed=removed.scores,
            sources=removed.sources,
            made_by=removed.made_by,
            replay_buffers=tuple(sorted(buffers)),
            touched=touched,
        )

    def touched(self, trajectory_ids: Sequence[str]) -> Touched:
        """Everything that these runs had a part in."""
        with reading(self.engine) as connection:
            return _touched(connection, trajectory_ids)[0]


def _made(connection: Connection, ref: Ref) -> list[Ref]:
    found = targets(connection, ref)
    checkpoint = newest_checkpoint(connection, ref.id) if ref.kind == "job" else None
    return [*found, checkpoint] if checkpoint else found


def _touched(connection: Connection, trajectory_ids: Sequence[str]) -> tuple[Touched, set[str]]:
    """All that the runs had a part in, and the replay buffers that took in a part of them."""
    runs = [Ref("trajectory", run_id) for run_id in trajectory_ids]
    found: dict[str, list[str]] = {}
    for ref in reach(runs, lambda ref: targets(connection, ref)):
        found.setdefault(ref.kind, []).append(ref.id)
    jobs_found = [job for job_id in found.get("job", ()) if (job := find_job(connection, job_id)) is not None]
    names = ("dataset", "job", "agent", "evaluation", "comparison")
    touched = Touched(**{f"{name}s": tuple(found.get(name, ())) for name in names})
    others = [run_id for run_id in found.get("trajectory", ()) if run_id not in set(trajectory_ids)]
    gone = forgotten_of(connection, others)
    agents = tuple(learners(connection, trajectory_ids))
    kept = tuple(run_id for run_id in others if run_id not in gone)
    touched = touched.model_copy(update={"agents": agents, "trajectories": kept})
    return touched, {buffer for job in jobs_found for buffer in replay_buffers(job)}


def _view(
    connection: Connection,
    roots: Sequence[Ref],
    depth: int,
    step: Callable[[Ref], list[Ref]],
    *,
    backwards: bool,
) -> View:
    seen = dict.fromkeys(roots)
    edges: dict[tuple[Ref, Ref], None] = {}
    hidden: Counter[str] = Counter()
    nodes: dict[Ref, LineageNode] = {}
    waiting = list(roots)
    for _ in range(depth):
        reached: dict[Ref, None] = {}
        for ref in waiting:
            found = [other for other in dict.fromkeys(step(ref)) if other != ref]
            nodes |= describe(connection, [other for other in found if other not in nodes])
            for other in _listed(found, nodes, hidden, room=MAX_NODES - len(seen) - len(reached) + len(roots)):
                edges[(other, ref) if backwards else (ref, other)] = None
                if other not in seen:
                    reached[other] = None
        seen |= reached
        waiting = list(reached)
    listed = [nodes[ref] for ref in seen if ref not in roots]
    counts = Counter(hidden)
    for node in listed:
        counts[node.kind] += 1 if node.count is None else node.count
    return View(
        nodes=tuple(listed),
        edges=tuple(LineageEdge(source=node_id(source), target=node_id(target)) for source, target in edges),
        counts=dict(counts),
        truncated=bool(hidden) or any(step(ref) for ref in waiting),
    )


def _listed(found: list[Ref], nodes: dict[Ref, LineageNode], hidden: Counter[str], room: int) -> list[Ref]:
    """The things that a view has room for, the newest of each kind; the others are only counted."""

    def age(ref: Ref) -> float:
        made = nodes[ref].created_at
        return -made.timestamp() if made else 0.0

    kept: list[Ref] = []
    for kind in dict.fromkeys(ref.kind for ref in found):
        newest = sorted((ref for ref in found if ref.kind == kind), key=age)
        fits = max(0, min(MAX_FAN, room - len(kept)))
        kept += newest[:fits]
        for ref in newest[fits:]:
            hidden[nodes[ref].kind] += 1
    return kept
