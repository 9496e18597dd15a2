"""Removal of forgotten runs. Their content is deleted; ids and hashes are kept so that they are not imported again."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, func, select, update

from quintain.errors import Conflict
from quintain.records.trajectory import OutcomeStatus, Trajectory
from quintain.store.database.documents import require_stored, rows_with
from quintain.store.database.engine import leave_no_copy, upsert
from quintain.store.database.tables import dataset_members, forgotten_sessions, links, scores
from quintain.store.database.tables import trajectories as table
from quintain.store.lineage.links import TAKEN_OVER
from quintain.store.preferences import delete_preferences
from quintain.store.trajectories.inserts import remove_tags
from quintain.store.trajectories.text_index import purge_deleted_text

_c = table.c
_KEPT_TAGS = {"rollout", "evaluation"}
"""Tags that describe how a job used its run. All other tags are content."""


class RemovedContent(NamedTuple):
    """Summary of a removal."""

    now: tuple[str, ...]
    before: tuple[str, ...]
    """Runs that had been forgotten earlier."""
    scores: int
    sources: tuple[str, ...]
    made_by: tuple[str, ...]
    """Jobs that played the runs, or have taken them over."""


def read_content(connection: Connection, ids: Sequence[str]) -> RemovedContent:
    """Return the summary of a removal, without removing anything.

    Raises:
        NotFound: An id is not stored.
    """
    content = select(_c.id, _c.job_id, _c.forgotten_at, _c.document)
    known = {row.id: row for row in rows_with(connection, content, _c.id, ids)}
    require_stored(connection, table, ids, known, "trajectory")
    rows = [known[run_id] for run_id in dict.fromkeys(ids)]
    counted = rows_with(connection, select(func.count().label("n")), scores.c.trajectory_id, known)
    fresh = [row for row in rows if row.forgotten_at is None]
    sources = dict.fromkeys(_source_of(row.document) for row in fresh)
    return RemovedContent(
        now=tuple(row.id for row in fresh),
        before=tuple(row.id for row in rows if row.forgotten_at is not None),
        scores=sum(row.n for row in counted),
        sources=tuple(uri for uri in sources if uri),
        made_by=(*dict.fromkeys(row.job_id for row in rows if row.job_id), *_taken_over_by(connection, rows)),
    )


def _source_of(document: str) -> str | None:
    """Return the file or URL that a run came from. None: it has none, or is too damaged to say."""
    with suppress(ValueError, AttributeError):
        source: str | None = json.loads(document).get("source", {}).get("uri")
        return source
    return None


def _taken_over_by(connection: Connection, runs: Sequence[Any]) -> Sequence[str]:
    """Return the jobs that have taken over some of these runs, and so have them in their folders."""
    taken = select(links.c.target_id).distinct().where(links.c.source_kind == TAKEN_OVER)
    found = rows_with(connection, taken, links.c.source_id, (row.id for row in runs))
    return list(dict.fromkeys(row.target_id for row in found))


def remove_content(connection: Connection, ids: Sequence[str], now: datetime) -> None:
    """Delete the content of stored runs, keeping ids, hashes, the job and the agent that produced them."""
    if not ids:
        return
    leave_no_copy(connection)
    for row in list(rows_with(connection, select(_c.seq, _c.id, _c.tags), _c.id, ids)):
        remove_tags(connection, row.seq, row.tags)
        kept = [tag for tag in json.loads(row.tags) if tag in _KEPT_TAGS]
        changed = {"tags": json.dumps(kept), "forgotten_at": now, "updated_at": now}
        connection.execute(update(table).where(_c.seq == row.seq).values(_EMPTY | changed))
        delete_preferences(connection, row.id)
        connection.execute(delete(scores).where(scores.c.trajectory_id == row.id))
    purge_deleted_text(connection)


def twins_of(connection: Connection, ids: Sequence[str]) -> list[str]:
    """Return the stored runs with the content of one of these, under other ids, oldest first.

    Equal runs of several episodes or sessions are separate rows. Those with the same beginning of the prompt and number
    of turns are read and compared by their content.
    """
    forgotten, hashes = set(ids), set[str]()
    likely: set[tuple[str, int]] = set()
    current = select(_c.seq, _c.id, _c.prompt, _c.n_steps).where(_c.forgotten_at.is_(None))
    for row in rows_with(connection, current.add_columns(_c.document), _c.id, forgotten):
        if content := _content_hash(row.document):
            likely.add((row.prompt, row.n_steps))
            hashes.add(content)
    others = rows_with(connection, current, _c.prompt, {prompt for prompt, _ in likely})
    alike = [row.id for row in others if (row.prompt, row.n_steps) in likely and row.id not in forgotten]
    read = rows_with(connection, select(_c.seq, _c.id, _c.document), _c.id, alike)
    return [run_id for _, run_id in sorted((row.seq, row.id) for row in read if _content_hash(row.document) in hashes)]


def _content_hash(document: str) -> str | None:
    """Return the hash of a run's content; None if it cannot be read, which must not keep it from being forgotten."""
    with suppress(Conflict):
        return Trajectory.from_stored(document).content_hash
    return None


_EMPTY = {
    "environment": None,
    "task_id": None,
    "task_type": None,
    "prompt": "",
    "outcome": OutcomeStatus.UNKNOWN.value,
    "reward": None,
    "personal_data": "unknown",
    "n_steps": 0,
    "text": "",
    "document": "",
}


def block_session(connection: Connection, session_id: str, run_id: str, now: datetime) -> None:
    """Reject future runs of this session."""
    upsert(connection, forgotten_sessions, [{"session_id": session_id, "trajectory_id": run_id, "forgotten_at": now}])


def any_forgotten(connection: Connection) -> bool:
    """Whether any run was ever forgotten."""
    return connection.scalar(select(_c.seq).where(_c.forgotten_at.is_not(None)).limit(1)) is not None


def forgotten_ids(connection: Connection, ids: Sequence[str]) -> set[str]:
    """Return those of these runs that were forgotten."""
    return {row.id for row in rows_with(connection, select(_c.id).where(_c.forgotten_at.is_not(None)), _c.id, ids)}


def datasets_with_forgotten(
    connection: Connection, dataset_ids: Collection[str], also: Collection[str] = ()
) -> dict[str, int]:
    """Return dataset -> number of its forgotten runs, of those of these datasets that have some; runs of `also` count, too."""
    m = dataset_members.c
    gone = select(_c.id).where(_c.forgotten_at.is_not(None) | _c.id.in_(also))
    counted = select(m.dataset_id, func.count().label("n")).where(m.trajectory_id.in_(gone)).group_by(m.dataset_id)
    return {row.dataset_id: row.n for row in rows_with(connection, counted, m.dataset_id, dataset_ids)}
