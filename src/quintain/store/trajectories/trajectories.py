"""Stored trajectories: recorded, imported and generated runs of agents."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic import TypeAdapter
from sqlalchemy import ColumnElement, Connection, Engine, func, select
from sqlalchemy.exc import IntegrityError

from quintain.errors import Conflict, NotFound
from quintain.next_step import Hint, call
from quintain.records.filters import Page, TrajectoryFilter, TrajectorySummary
from quintain.records.imports import RunLink, TakenOver
from quintain.records.trajectory import Trajectory
from quintain.store.database.documents import chunks, json_of, not_found_error, require_stored, rows_with
from quintain.store.database.engine import read_transaction, write_transaction
from quintain.store.database.paging import fetch_rows
from quintain.store.database.tables import trajectories as table
from quintain.store.lineage.links import TAKEN_OVER, Link, Ref, add_links
from quintain.store.trajectories.filters import filter_clause
from quintain.store.trajectories.inserts import InsertResult, TrajectoryInserter, add_run_links, overwrite
from quintain.store.trajectories.rows import EncodedRun, encode_document, encode_run
from quintain.store.trajectories.run_names import RunNames, runs_by_columns, runs_by_content
from quintain.store.trajectories.text_index import index_new_texts

_BATCH = 50
"""Documents in memory at once while streaming."""

_LINKED_CHARS = 2_000_000
"""Characters of documents after which a transaction that links runs ends."""

_c = table.c
_SHOWN = select(
    *(_c.seq, _c.id, _c.agent_label.label("agent"), _c.environment, _c.task_id, _c.task_type, _c.prompt, _c.outcome),
    *(_c.reward, _c.n_steps.label("steps"), _c.tags, _c.job_id, _c.created_at),
)

_DOCUMENTS = select(_c.id, _c.document).where(_c.forgotten_at.is_(None)).order_by(_c.seq)
"""Excludes runs that are forgotten while they are streamed."""


@dataclass(frozen=True)
class Trajectories:
    """Table of trajectories. Forgotten runs are excluded from lists, streams and counts."""

    engine: Engine

    def add_many(self, trajectories: Iterable[Trajectory], now: datetime) -> list[InsertResult]:
        """Store trajectories in one transaction, all or none. Known runs are skipped.

        A session that has grown replaces the row with its beginning under the same id. A shorter version of a stored session
        is known. A forgotten run, or a run that continues one, is not stored and gets the id of the forgotten run.
        """
        # Encoding is the slow part, so it precedes the write lock.
        return self.add_encoded(list(map(encode_run, trajectories)), now)

    def add_encoded(self, rows: Sequence[EncodedRun], now: datetime) -> list[InsertResult]:
        """Store rows from `encode_run` like `add_many`."""
        if rows and not any(row.columns["session_id"] for row in rows) and not self._has_some(rows):
            # Savepoints and inserts that skip known rows cost SQLite a third more, and most batches are all new.
            with suppress(IntegrityError), write_transaction(self.engine) as connection:
                return TrajectoryInserter(connection, now).add_new(rows)
        with write_transaction(self.engine) as connection:
            return TrajectoryInserter(connection, now).add(rows)

    def _has_some(self, rows: Sequence[EncodedRun]) -> bool:
        """Whether some of these runs are stored, such as those that a resumed job has taken over."""
        identities = [row.columns["identity"] for row in rows]
        with read_transaction(self.engine) as connection:
            return any(rows_with(connection, select(_c.seq).limit(1), _c.identity, identities))

    def get(self, trajectory_id: str) -> Trajectory:
        """Return the trajectory with this id.

        Raises:
            NotFound: The id is not stored (the message lists the three newest ids), or the run was forgotten.
        """
        with read_transaction(self.engine) as connection:
            return _fetch(connection, trajectory_id)

    def grow(self, trajectory_id: str, change: Callable[[Trajectory], Trajectory], now: datetime) -> Trajectory:
        """Change a live recording; its id is kept. Read and write share a transaction, so that concurrent changes are not lost.

        Raises:
            NotFound: The id is not stored.
            Conflict: Another row has the same content as the new run.
        """
        with write_transaction(self.engine) as connection:
            stored = _fetch(connection, trajectory_id)
            grown = change(stored).model_copy(update={"id": trajectory_id})
            row = encode_run(grown)
            twin = connection.scalar(
                select(_c.id).where(_c.identity == row.columns["identity"], _c.id != trajectory_id)
            )
            if twin is not None:
                raise Conflict(
                    f"expected a run that is not stored, but {twin} is the same run; use it instead of {trajectory_id}"
                )
            overwrite(connection, row, now)
        return grown

    def retag(self, ids: Sequence[str], add: Sequence[str], remove: Sequence[str], now: datetime) -> int:
        """Add and remove tags of runs, in transactions of some. Return the number of runs that changed; forgotten ones do not."""
        changed = 0
        for chunk in chunks(list(dict.fromkeys(ids))):
            with write_transaction(self.engine) as connection:
                stored = connection.execute(_DOCUMENTS.where(_c.id.in_(chunk))).all()
                for run in (Trajectory.from_stored(row.document, row.id) for row in stored):
                    kept = (tag for tag in (*run.tags, *add) if tag not in remove)
                    tagged = run.model_copy(update={"tags": tuple(dict.fromkeys(kept))})
                    if tagged != run:
                        overwrite(connection, encode_run(tagged), now)
                        changed += 1
        return changed

    def link(self, links: Sequence[RunLink]) -> int:
        """Add links to subagents and continued runs, by identity hash as known when logs are read. Existing links are kept.

        The documents of the runs are rewritten in transactions of `_LINKED_CHARS`, each of which SQLite keeps in memory. Return the number
        of named runs that are not stored or were forgotten, whose links are skipped.
        """
        named = {name for link in links for name in (link.identity, *link.subagents, link.continues) if name}
        stored = select(_c.identity, _c.id).where(_c.forgotten_at.is_(None))
        with read_transaction(self.engine) as connection:
            ids = {row.identity: row.id for row in rows_with(connection, stored, _c.identity, named)}
        waiting = deque(link for link in links if link.identity in ids)
        while waiting:
            with write_transaction(self.engine) as connection:
                size = 0
                while waiting and size < _LINKED_CHARS:
                    link = waiting.popleft()
                    subagents = [ids[name] for name in link.subagents if name in ids]
                    size += _set_links(connection, ids[link.identity], subagents, ids.get(link.continues or ""))
        return len(named) - len(ids)

    def take_over(self, job_id: str, runs: Sequence[TakenOver]) -> None:
        """Count runs as a job's, too, which the job that it resumes has played."""
        with write_transaction(self.engine) as connection:
            add_links(connection, (Link(Ref(TAKEN_OVER, run.trajectory_id), Ref("job", job_id)) for run in runs))

    def search(
        self, filter: TrajectoryFilter, *, limit: int = 50, cursor: str | None = None
    ) -> Page[TrajectorySummary]:
        """Return one page of the matching trajectories, newest first."""
        conditions, key = filter_clause(filter, self.engine)
        with read_transaction(self.engine) as connection:
            shown = _SHOWN.where(*conditions)
            rows, following = fetch_rows(connection, shown, table, limit=limit, cursor=cursor, key=key)
        return Page(items=_summaries(rows), next_cursor=following)

    def summaries(self, ids: Sequence[str]) -> tuple[TrajectorySummary, ...]:
        """Return the summaries of these trajectories, in the order of the ids. Unknown and forgotten ones are left out."""
        with read_transaction(self.engine) as connection:
            rows = list(rows_with(connection, _SHOWN.where(_c.forgotten_at.is_(None)), _c.id, ids))
        found = {summary.id: summary for summary in _summaries(rows)}
        return tuple(found[run_id] for run_id in ids if run_id in found)

    def rewards(self, filter: TrajectoryFilter) -> dict[str, float]:
        """Return trajectory -> reward of the matching trajectories whose reward is known."""
        known = select(_c.id, _c.reward).where(*filter_clause(filter, self.engine).conditions, _c.reward.is_not(None))
        with read_transaction(self.engine) as connection:
            return {row.id: row.reward for row in connection.execute(known)}

    def logged_scores(self, filter: TrajectoryFilter) -> dict[str, dict[str, float]]:
        """Return trajectory -> scores by name that its log states, of the matching trajectories that have some."""
        scores = json_of(self.engine, _c.document)["outcome", "scores"].as_string()
        query = select(_c.id, scores).where(*filter_clause(filter, self.engine).conditions, scores != "{}")
        with read_transaction(self.engine) as connection:
            return {run_id: json.loads(found) for run_id, found in connection.execute(query)}

    def iterate(self, filter: TrajectoryFilter | None = None, ids: Sequence[str] | None = None) -> Iterator[Trajectory]:
        """Stream the matching trajectories, oldest first, without rows added in the meantime and without forgotten runs.

        No lock is held between batches, so the reader may be slow.

        Raises:
            NotFound: Some ids do not exist; raised at once.
        """
        conditions, key = filter_clause(filter or TrajectoryFilter(), self.engine)
        with read_transaction(self.engine) as connection:
            if ids is None:
                seqs = list(connection.scalars(select(key).where(*conditions).order_by(key)))
            else:
                seqs = _matching_seqs(connection, ids, conditions)
        return self._stream(seqs)

    def _stream(self, seqs: Sequence[int]) -> Iterator[Trajectory]:
        for start in range(0, len(seqs), _BATCH):
            with read_transaction(self.engine) as connection:
                found = connection.execute(_DOCUMENTS.where(_c.seq.in_(seqs[start : start + _BATCH]))).all()
            for row in found:
                yield Trajectory.from_stored(row.document, row.id)

    def named(self, names: Collection[str], *, inside: bool = False) -> RunNames:
        """Return the runs with these names as their id, session or task; `inside`: in what was kept of their logs, which reads all."""
        return (runs_by_content if inside else runs_by_columns)(self.engine, names)

    def index_new_texts(self) -> bool:
        """Add new runs to the index of texts, a bounded amount at a time. Return whether all are in it now."""
        return index_new_texts(self.engine)

    def count(self, filter: TrajectoryFilter, most: int | None = None) -> int:
        """Return the number of matching trajectories; with `most` the search for more of them ends there."""
        # `seq` is in every index: no row is read.
        found = select(_c.seq).where(*filter_clause(filter, self.engine).conditions).limit(most)
        counted = select(func.count()).select_from(found.subquery())
        with read_transaction(self.engine) as connection:
            return connection.scalar(counted) or 0

    def names(self, field: Literal["agent", "environment", "task_type"]) -> list[str]:
        """Return the different values of a field of all trajectories, sorted."""
        column = _c[field]
        known = select(column).where(_c.forgotten_at.is_(None), column.is_not(None)).distinct().order_by(column)
        with read_transaction(self.engine) as connection:
            return list(connection.scalars(known))


def _fetch(connection: Connection, trajectory_id: str) -> Trajectory:
    row = connection.execute(select(_c.document, _c.forgotten_at).where(_c.id == trajectory_id)).first()
    if row is None:
        raise not_found_error(connection, table, [trajectory_id], "trajectory")
    if row.forgotten_at is not None:
        forgotten = f"got {trajectory_id!r}, forgotten on {row.forgotten_at:%Y-%m-%d}; its content was removed"
        raise NotFound(
            Hint(
                f"expected a stored trajectory, {forgotten}; see ",
                call("get_lineage", id=trajectory_id),
                " for the affected records",
            ),
            code="forgotten",
        )
    return Trajectory.from_stored(row.document, trajectory_id)


def _set_links(connection: Connection, run_id: str, subagents: Sequence[str], continues: str | None) -> int:
    """Add links to a run, unless it has been forgotten; return the characters that were written."""
    try:
        run = _fetch(connection, run_id)
    except NotFound:
        return 0
    linked = run.model_copy(
        update={
            "subagents": tuple(dict.fromkeys((*run.subagents, *subagents))),
            "continues": continues or run.continues,
        }
    )
    if linked == run:
        return 0
    # Links are part of the document only, so all other columns are unchanged.
    document = encode_document(linked)
    connection.execute(table.update().where(_c.id == run_id).values(document=document))
    add_run_links(connection, [linked])
    return len(document)


def _matching_seqs(connection: Connection, ids: Sequence[str], conditions: Sequence[ColumnElement[bool]]) -> list[int]:
    known = {row.id for row in rows_with(connection, select(_c.id), _c.id, ids)}
    require_stored(connection, table, ids, known, "trajectory")
    return sorted(row.seq for row in rows_with(connection, select(_c.seq).where(*conditions), _c.id, ids))


_SUMMARIES = TypeAdapter(tuple[TrajectorySummary, ...])


def _summaries(rows: Sequence[Any]) -> tuple[TrajectorySummary, ...]:
    _, *names = _SHOWN.selected_columns.keys()
    shown = [dict(zip(names, row[1:], strict=True)) | {"tags": json.loads(row.tags)} for row in rows]
    return _SUMMARIES.validate_python(shown)
