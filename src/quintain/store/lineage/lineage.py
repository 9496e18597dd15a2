"""Lineage queries in both directions, and forgetting of runs with a report of affected records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine, Table, delete, func, select

from quintain.errors import NotFound
from quintain.next_step import Hint, call
from quintain.records.dataset import SplitName
from quintain.records.lineage import AffectedRecords, Forgotten, LineageEdge, LineageNode, TrainingSources
from quintain.records.lineage import Lineage as View
from quintain.store.agents import find_agent
from quintain.store.database.engine import empty_log, read_transaction, write_transaction
from quintain.store.database.tables import agents, comparisons, datasets, evaluations, jobs, links, trajectories
from quintain.store.job_rows import find_job
from quintain.store.lineage.forgetting import (
    block_session,
    datasets_with_forgotten,
    forgotten_ids,
    read_content,
    remove_content,
    twins_of,
)
from quintain.store.lineage.graph import (
    SharedTasks,
    agents_trained_on,
    count_forgotten_sources,
    linked_targets,
    reachable,
    sources,
    targets,
    tasks_trained_on,
    training_runs_filter,
    training_sources,
)
from quintain.store.lineage.links import REPLAY_BUFFER, Ref, replay_buffers
from quintain.store.lineage.nodes import describe, newest_checkpoint, node_id

MAX_NODES = 200
"""Nodes listed in a view. Further nodes are only counted."""

MAX_FAN = 25
"""Neighbors of one kind listed per node: the newest."""

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
    """Lineage queries over the links between stored records."""

    engine: Engine

    def resolve(self, name: str) -> list[Ref]:
        """Return the records for an id or name: one record, or all runs of a session.

        Args:
            name: Id of a trajectory, dataset, job, agent, evaluation or comparison; JOB/STEP of a checkpoint; name of an
                agent or dataset (the newest); or a session id.

        Raises:
            NotFound: Nothing stored has this id, name or session.
        """
        with read_transaction(self.engine) as connection:
            for kind, table in _IDENTIFIED.items():
                if connection.scalar(select(table.c.id).where(table.c.id == name)) is not None:
                    return [Ref(kind, name)]
            if (agent := find_agent(connection, name)) is not None:
                return [Ref("agent", agent.id or "")]
            named = (
                select(datasets.c.id)
                .where(datasets.c.name == name, datasets.c.removed_at.is_(None))
                .order_by(datasets.c.seq.desc())
            )
            if (dataset := connection.scalar(named.limit(1))) is not None:
                return [Ref("dataset", dataset)]
            if newest_checkpoint(connection, name.rsplit("/", 1)[0]) is not None and "/" in name:
                return [Ref("checkpoint", name)]
            t = trajectories.c
            runs = list(connection.scalars(select(t.id).where(t.session_id == name).order_by(t.seq)))
        if runs:
            return [Ref("trajectory", run_id) for run_id in runs]
        raise NotFound(
            Hint(
                f"expected the id, name or session of a stored record, got {name[:80]!r}; see ",
                call("search_trajectories"),
                ", ",
                call("list_jobs"),
                " or ",
                call("list_library", kind="agents"),
                " for ids, or pass the session id of imported runs",
            )
        )

    def nodes(self, refs: Sequence[Ref]) -> list[LineageNode]:
        """Return the node of each record."""
        with read_transaction(self.engine) as connection:
            found = describe(connection, refs)
        return [found[ref] for ref in refs]

    def ancestors(self, refs: Sequence[Ref], depth: int) -> View:
        """Return the ancestors of these records, up to `depth` steps back."""
        with read_transaction(self.engine) as connection:
            return _view(connection, refs, depth, lambda ref: sources(connection, ref), backwards=True)

    def descendants(self, refs: Sequence[Ref], depth: int) -> View:
        """Return the descendants of these records, up to `depth` steps on."""
        with read_transaction(self.engine) as connection:
            return _view(connection, refs, depth, lambda ref: _targets_and_checkpoint(connection, ref), backwards=False)

    def derived(self, refs: Sequence[Ref]) -> list[LineageNode]:
        """Return everything that was made from these records, not through runs, at any depth; without removed ones."""
        with read_transaction(self.engine) as connection:
            found = describe(connection, reachable(refs, lambda ref: linked_targets(connection, ref)))
        return [node for ref, node in found.items() if ref not in refs and node.mark != "removed"]

    def training_sources(self, agent_id: str) -> TrainingSources:
        """Return all runs that an agent learned from: datasets and rollouts, including those of its base agents."""
        with read_transaction(self.engine) as connection:
            held, online = training_sources(connection, [agent_id])
            count = select(func.count()).select_from(trajectories).where(training_runs_filter(held, online))
            return TrainingSources(count=connection.scalar(count) or 0, datasets=tuple(held), online_jobs=tuple(online))

    def tasks_trained_on(
        self, agent_id: str, source_id: str, split: SplitName | None = None, *, by_prompt: bool = False
    ) -> SharedTasks:
        """Return how many tasks of the runs of a dataset (or of its `split`) or a job are tasks of runs that an agent learned from.

        With `by_prompt` a prompt names a task, as in a file; an environment may ask the same in different worlds.
        """
        with read_transaction(self.engine) as connection:
            return tasks_trained_on(connection, agent_id, source_id, split, by_prompt=by_prompt)

    def agents_trained_on(self, trajectory_ids: Sequence[str]) -> list[str]:
        """Return every agent that learned from any of these runs, directly or through its base agents."""
        with read_transaction(self.engine) as connection:
            return agents_trained_on(connection, trajectory_ids)

    def forgotten(self, ids: Sequence[str]) -> set[str]:
        """Return those of these trajectories that were forgotten."""
        with read_transaction(self.engine) as connection:
            return forgotten_ids(connection, ids)

    def datasets_with_forgotten(self, dataset_ids: Sequence[str]) -> dict[str, int]:
        """Return dataset -> number of its forgotten runs, for the affected datasets."""
        with read_transaction(self.engine) as connection:
            return datasets_with_forgotten(connection, dataset_ids)

    def count_forgotten_sources(self, agent_id: str) -> int:
        """Return the number of forgotten runs that an agent learned from."""
        with read_transaction(self.engine) as connection:
            return count_forgotten_sources(connection, agent_id)

    def forget(
        self,
        trajectory_ids: Sequence[str],
        now: datetime,
        *,
        session_id: str | None = None,
        twins: bool = False,
        dry_run: bool = False,
    ) -> Forgotten:
        """Delete the content of runs for good, so that it cannot be used again.

        Ids and hashes are kept: neither a repeated import of the same log nor a longer version of its session restores the
        runs. Records derived from them are unchanged; `datasets_with_forgotten` and `count_forgotten_sources` report them.

        Args:
            trajectory_ids: Ids of the runs.
            now: Time of the removal.
            session_id: Session whose runs these all are. Future runs of it are rejected too.
            twins: Forget the runs with the same content under other ids too. Otherwise they are only reported.
            dry_run: Report what would happen, and change nothing.
        """
        with read_transaction(self.engine) if dry_run else write_transaction(self.engine) as connection:
            removed = read_content(connection, trajectory_ids)
            equal = twins_of(connection, trajectory_ids)
            ids = [*trajectory_ids, *equal] if twins else list(trajectory_ids)
            if twins and equal:
                removed = read_content(connection, ids)
            touched, buffers = _affected_by(connection, ids)
            if not dry_run:
                remove_content(connection, removed.now, now)
                if session_id is not None:
                    block_session(connection, session_id, trajectory_ids[0], now)
                # The caller empties the buffers; their later content does not descend from these runs.
                connection.execute(
                    delete(links).where(links.c.source_kind == REPLAY_BUFFER, links.c.source_id.in_(sorted(buffers)))
                )
            blocked = datasets_with_forgotten(connection, touched.datasets, removed.now)
        if removed.now and not dry_run:
            empty_log(self.engine)
        return Forgotten(
            trajectory_ids=removed.now,
            before=removed.before,
            scores_removed=removed.scores,
            sources=removed.sources,
            made_by=removed.made_by,
            replay_buffers=tuple(sorted(buffers)),
            touched=touched,
            twins=tuple(equal),
            blocked=blocked,
        )


def _targets_and_checkpoint(connection: Connection, ref: Ref) -> list[Ref]:
    found = targets(connection, ref)
    checkpoint = newest_checkpoint(connection, ref.id) if ref.kind == "job" else None
    return [*found, checkpoint] if checkpoint else found


def _affected_by(connection: Connection, trajectory_ids: Sequence[str]) -> tuple[AffectedRecords, set[str]]:
    """Return everything derived from the runs, and the replay buffers that contain parts of them."""
    runs = [Ref("trajectory", run_id) for run_id in trajectory_ids]
    found: dict[str, list[str]] = {}
    for ref in reachable(runs, lambda ref: targets(connection, ref)):
        found.setdefault(ref.kind, []).append(ref.id)
    jobs_found = [job for job_id in found.get("job", ()) if (job := find_job(connection, job_id)) is not None]
    names = ("dataset", "job", "agent", "evaluation", "comparison")
    touched = AffectedRecords(**{f"{name}s": tuple(found.get(name, ())) for name in names})
    others = [run_id for run_id in found.get("trajectory", ()) if run_id not in set(trajectory_ids)]
    gone = forgotten_ids(connection, others)
    kept = tuple(run_id for run_id in others if run_id not in gone)
    touched = touched.model_copy(update={
        "agents": _not_removed(connection, agents, agents_trained_on(connection, trajectory_ids)),
        "datasets": _not_removed(connection, datasets, touched.datasets),
        "trajectories": kept,
    })  # fmt: skip
    return touched, {buffer for job in jobs_found for buffer in replay_buffers(job)}


def _not_removed(connection: Connection, table: Table, ids: Iterable[str]) -> tuple[str, ...]:
    removed = set(connection.scalars(select(table.c.id).where(table.c.removed_at.is_not(None))))
    return tuple(one for one in ids if one not in removed)


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
            for other in _fit_in_view(found, nodes, hidden, room=MAX_NODES - len(seen) - len(reached) + len(roots)):
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


def _fit_in_view(found: list[Ref], nodes: dict[Ref, LineageNode], hidden: Counter[str], room: int) -> list[Ref]:
    """Return the newest nodes of each kind that fit in the view, and count the others in `hidden`."""

    def age(ref: Ref) -> float:
        created = nodes[ref].created_at
        return -created.timestamp() if created else 0.0

    kept: list[Ref] = []
    for kind in dict.fromkeys(ref.kind for ref in found):
        newest = sorted((ref for ref in found if ref.kind == kind), key=age)
        fits = max(0, min(MAX_FAN, room - len(kept)))
        kept += newest[:fits]
        for ref in newest[fits:]:
            hidden[nodes[ref].kind] += 1
    return kept
