"""Nodes of a lineage view: label, creation time, and a mark for effects of forgotten runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import Any, Literal, cast

from sqlalchemy import Connection, Row, Table, select

from quintain.errors import Conflict
from quintain.records.jobs.job import TrainSpec
from quintain.records.lineage import LineageNode, NodeKind
from quintain.records.wording import clip, counted
from quintain.store.database.documents import rows_with
from quintain.store.database.tables import (
    agents,
    comparisons,
    datasets,
    evaluations,
    job_events,
    jobs,
    scores,
    trajectories,
)
from quintain.store.job_rows import job_of_row
from quintain.store.lineage.forgetting import datasets_with_forgotten
from quintain.store.lineage.graph import MEMBERS, ROLLOUTS, RUNS, count_forgotten_sources, run_set_size
from quintain.store.lineage.links import Ref

SETS = frozenset({MEMBERS, ROLLOUTS, RUNS})


def node_id(ref: Ref) -> str:
    """Return the id of a node. The id of a run set contains its owner's id."""
    return f"{ref.id}/{ref.kind}" if ref.kind in SETS else ref.id


def describe(connection: Connection, refs: Collection[Ref]) -> dict[Ref, LineageNode]:
    """Return the node of each record. A record that is not stored has only its id."""
    found: dict[Ref, LineageNode] = {}
    for kind, (table, read) in _TABLES.items():
        ids = (ref.id for ref in refs if ref.kind == kind)
        rows = rows_with(connection, select(*_columns(table)), table.c.id, ids)
        found.update((Ref(kind, row.id), _read(cast(NodeKind, kind), row, read)) for row in rows)
    for ref in refs:
        if ref.kind in SETS:
            found[ref] = _set(connection, ref)
        elif ref.kind == "score":
            found[ref] = _score(connection, ref)
        elif ref.kind == "checkpoint":
            found[ref] = _checkpoint(connection, ref)
        elif ref not in found:
            found[ref] = LineageNode(kind=cast(NodeKind, ref.kind), id=ref.id, label="not stored")
    return _add_marks(connection, found)


def _read(kind: NodeKind, row: Row[Any], read: Callable[[Row[Any]], LineageNode]) -> LineageNode:
    """Return the node of a row, which must not hide the others if this version cannot read it."""
    try:
        return read(row)
    except (Conflict, ValueError, KeyError, TypeError):
        return _node(kind, row, "unreadable")


def _columns(table: Table) -> Iterable[Any]:
    if table is jobs:
        return table.c
    if table is trajectories:
        c = table.c
        return (c.id, c.task_id, c.prompt, c.outcome, c.forgotten_at, c.created_at)
    removed_at = (table.c.removed_at,) if "removed_at" in table.c else ()
    return (table.c.id, table.c.document, table.c.created_at, *removed_at)


def _run(row: Row[Any]) -> LineageNode:
    if row.forgotten_at is not None:
        label = f"forgotten on {row.forgotten_at:%Y-%m-%d}"
        return _node("trajectory", row, label).model_copy(update={"mark": "forgotten"})
    return _node("trajectory", row, f"{clip(row.task_id or row.prompt or 'run')} ({row.outcome})")


def _dataset(row: Row[Any]) -> LineageNode:
    dataset = json.loads(row.document)
    return _node("dataset", row, f"{dataset['name']} ({dataset['kind']}, {counted(dataset['rows'], 'row')})")


def _agent(row: Row[Any]) -> LineageNode:
    return _node("agent", row, row.id.removeprefix("agent:"))


def _evaluation(row: Row[Any]) -> LineageNode:
    evaluation = json.loads(row.document)
    rate = evaluation["rate"]
    result = f"{rate['successes']} of {rate['n']}" if rate["n"] else "no verdict"
    return _node("evaluation", row, f"{evaluation['environment']} ({evaluation['split']}): {result}")


def _comparison(row: Row[Any]) -> LineageNode:
    comparison = json.loads(row.document)
    names = dict.fromkeys(name for pair in comparison["comparisons"] for name in (pair["a"], pair["b"]))
    return _node("comparison", row, clip(" against ".join(name.removeprefix("agent:") for name in names)))


def _job(row: Row[Any]) -> LineageNode:
    job = job_of_row(row)
    name = job.spec.method if isinstance(job.spec, TrainSpec) else job.kind
    return _node("job", row, f"{name} ({job.status})")


def _node(kind: NodeKind, row: Row[Any], label: str) -> LineageNode:
    mark: Literal["removed"] | None = "removed" if row._mapping.get("removed_at") else None
    return LineageNode(kind=kind, id=row.id, label=label, created_at=row.created_at, mark=mark)


_TABLES: dict[str, tuple[Table, Callable[[Row[Any]], LineageNode]]] = {
    "trajectory": (trajectories, _run),
    "dataset": (datasets, _dataset),
    "agent": (agents, _agent),
    "evaluation": (evaluations, _evaluation),
    "comparison": (comparisons, _comparison),
    "job": (jobs, _job),
}


def _set(connection: Connection, ref: Ref) -> LineageNode:
    n = run_set_size(connection, ref)
    filter: dict[str, Any]
    if ref.kind == MEMBERS:
        label, filter = f"{n} runs of the dataset", {"dataset_id": ref.id}
    elif ref.kind == ROLLOUTS:
        label, filter = f"{n} training rollouts", {"job_id": ref.id, "tags": ["rollout"]}
    else:
        label, filter = f"{n} runs of the job", {"job_id": ref.id}
    return LineageNode(kind="trajectories", id=node_id(ref), label=label, count=n, filter=filter)


def _score(connection: Connection, ref: Ref) -> LineageNode:
    run_id, scorer = ref.id.rsplit("/", 1)
    newest = (
        select(scores.c.document, scores.c.created_at)
        .where(scores.c.trajectory_id == run_id, scores.c.scorer == scorer)
        .order_by(scores.c.seq.desc())
    )
    row = connection.execute(newest.limit(1)).first()
    value = None if row is None else json.loads(row.document)["value"]
    label = f"{scorer}: {'unscored' if value is None else f'{value:.3g}'}"
    return LineageNode(kind="score", id=ref.id, label=label, created_at=row and row.created_at)


def newest_checkpoint(connection: Connection, job_id: str) -> Ref | None:
    """Return the newest checkpoint that a job reported, as JOB/STEP."""
    e = job_events.c
    events = select(e.body).where(e.job_id == job_id, e.type == "checkpoint").order_by(e.attempt.desc(), e.seq.desc())
    body = connection.scalar(events.limit(1))
    return None if body is None else Ref("checkpoint", f"{job_id}/{json.loads(body)['step']}")


def _checkpoint(connection: Connection, ref: Ref) -> LineageNode:
    job_id, step = ref.id.rsplit("/", 1)
    e = job_events.c
    moments = connection.execute(select(e.time, e.body).where(e.job_id == job_id, e.type == "checkpoint")).all()
    times: list[datetime] = [row.time for row in moments if str(json.loads(row.body)["step"]) == step]
    return LineageNode(kind="checkpoint", id=ref.id, label=f"step {step}", created_at=times[-1] if times else None)


def _add_marks(connection: Connection, found: dict[Ref, LineageNode]) -> dict[Ref, LineageNode]:
    """Mark datasets with forgotten runs, and agents that learned from forgotten runs."""
    blocked = datasets_with_forgotten(connection, [ref.id for ref in found if ref.kind == "dataset"])
    for ref, node in found.items():
        if node.mark == "removed":
            continue
        if ref.kind == "dataset" and ref.id in blocked:
            found[ref] = node.model_copy(update={"mark": "blocked"})
        elif ref.kind == "agent" and count_forgotten_sources(connection, ref.id):
            found[ref] = node.model_copy(update={"mark": "tainted"})
    return found
