"""Trajectories: every run of an agent that was recorded, imported or rolled out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import ColumnElement, Connection, Dialect, Engine, bindparam, func, select

from quintain.errors import Conflict, NotFound
from quintain.records.filters import Page, TrajectoryFilter, TrajectorySummary
from quintain.records.imports import RunLink
from quintain.records.trajectory import Trajectory
from quintain.store.documents import chunks, missing
from quintain.store.engine import reading, writing
from quintain.store.paging import PAGE_VALUES, page_bound, page_of
from quintain.store.tables import trajectories as table
from quintain.store.trajectories.additions import Added, Addition, add_run_links, overwrite
from quintain.store.trajectories.filtering import matching, values_of
from quintain.store.trajectories.runs import EncodedRun, encode_run
from quintain.store.trajectories.statements import Prepared, prepare, rows_with

_BATCH = 50
"""Documents held in memory at once while streaming."""

_c = table.c
_SHOWN = select(
    *(_c.seq, _c.id, _c.agent_label, _c.environment, _c.task_id, _c.task_type, _c.prompt, _c.outcome, _c.reward),
    *(_c.n_steps, _c.tags, _c.job_id, _c.created_at),
)

_DOCUMENTS = select(_c.document).where(_c.forgotten_at.is_(None)).order_by(_c.seq)
"""A run can be forgotten while its reader is under way."""


@dataclass(frozen=True)
class Trajectories:
    """The stored trajectories; a forgotten one is in no list, stream or count."""

    engine: Engine

    def add_many(self, trajectories: Iterable[Trajectory], now: datetime) -> list[Added]:
        """Store trajectories, all or none, in one transaction; the same run again adds nothing.

        A session that has grown replaces the row that holds its beginning, under the same id; a session that is shorter
        than the stored one is known already. A run that was forgotten, or goes on from one, stays away: it gets the id of
        what was forgotten.

        Raises:
            Conflict: a trajectory has the id of another run.
            InvalidInput: NaN, Infinity or a lone surrogate in a free field.
        """
        # Encoding is the slow part, so it comes before the write lock.
        return self.add_encoded(list(map(encode_run, trajectories)), now)

    def add_encoded(self, rows: Sequence[EncodedRun], now: datetime) -> list[Added]:
        """As `add_many`, of runs that `encode_run` made rows of."""
        if rows and not any(row.columns["session_id"] for row in rows):
            # Savepoints and inserts that pass over what is known cost SQLite a third more; most batches are all new.
            with suppress(self.engine.dialect.loaded_dbapi.IntegrityError), writing(self.engine) as connection:
                return Addition(connection, now).add_new(rows)
        with writing(self.engine) as connection:
            return Addition(connection, now).add(rows)

    def get(self, trajectory_id: str) -> Trajectory:
        """The trajectory with this id.

        Raises:
            NotFound: names the three newest ids, or says that the run was forgotten.
        """
        with reading(self.engine) as connection:
            return _fetch(connection, trajectory_id)

    def grow(self, trajectory_id: str, change: Callable[[Trajectory], Trajectory], now: datetime) -> Trajectory:
        """Change a live recording under its id; read and written in one transaction, so no other change is lost.

        Args:
            trajectory_id: The recording.
            change: From what is stored to what shall be; the id stays. What it raises undoes everything.
            now: When it happens.

        Raises:
            NotFound: nothing is stored under the id.
            Conflict: another row already holds exactly the new run.
        """
        with writing(self.engine) as connection:
            stored = _fetch(connection, trajectory_id)
            grown = change(stored).model_copy(update={"id": trajectory_id})
            row = encode_run(grown)
            twin = connection.scalar(
                select(_c.id).where(_c.identity == row.columns["identity"], _c.id != trajectory_id)
            )
            if twin is not None:
                raise Conflict(f"{twin} already holds exactly this run; use it in place of {trajectory_id}")
            overwrite(connection, row, now)
        return grown

    def link(self, links: Sequence[RunLink]) -> int:
        """Tell runs of their subagents and of what they continue; links that they have already stay.

        Args:
            links: By identity hash, as they are known when logs are read.

        Returns:
            How many of the named runs are not stored (or were forgotten); these links are left out.
        """
        named = {name for link in links for name in (link.identity, *link.subagents, link.continues) if name}
        with writing(self.engine) as connection:
            ids: dict[str, str] = {}
            for chunk in chunks(sorted(named)):
                found = select(_c.identity, _c.id).where(_c.identity.in_(chunk), _c.forgotten_at.is_(None))
                ids.update((identity, run_id) for identity, run_id in connection.execute(found))
            for link in links:
                if link.identity in ids:
                    subagents = [ids[name] for name in link.subagents if name in ids]
                    _set_links(connection, ids[link.identity], subagents, ids.get(link.continues or ""))
        return len(named) - len(ids)

    def search(
        self, filter: TrajectoryFilter, *, limit: int = 50, cursor: str | None = None
    ) -> Page[TrajectorySummary]:
        """One page of the trajectories that match, newest first.

        Raises:
            InvalidInput: a limit outside 1..200 or a cursor of another list.
        """
        bound = page_bound(table.name, limit, cursor)
        values = {**values_of(filter), **bound}
        statement = _page_statement(tuple(values), self.engine.dialect)
        with reading(self.engine) as connection:
            rows = statement.rows(connection, values)
        return page_of(rows, table.name, _summaries, limit=limit)

    def iterate(self, filter: TrajectoryFilter | None = None, ids: Sequence[str] | None = None) -> Iterator[Trajectory]:
        """Stream what matches, oldest first; rows that arrive meanwhile are not part of it.

        No lock is held between two batches, however slow the reader.

        Args:
            filter: Conditions; None: every trajectory.
            ids: Only these; None: no such bound. Forgotten ones are left out.

        Raises:
            NotFound: ids that do not exist, at once and by name.
        """
        values = values_of(filter or TrajectoryFilter())
        conditions, key = matching(tuple(values))
        with reading(self.engine) as connection:
            if ids is None:
                seqs = list(connection.scalars(select(key).where(*conditions).order_by(key), values))
            else:
                seqs = _seqs_of(connection, ids, conditions, values)
        return self._stream(seqs)

    def _stream(self, seqs: Sequence[int]) -> Iterator[Trajectory]:
        for start in range(0, len(seqs), _BATCH):
            with reading(self.engine) as connection:
                found = rows_with(connection, _DOCUMENTS, _c.seq, seqs[start : start + _BATCH])
            for (document,) in found:
                yield Trajectory.model_validate_json(document)

    def forgotten(self, ids: Sequence[str]) -> tuple[str, ...]:
        """Those of these ids whose content was removed."""
        found: set[str] = set()
        with reading(self.engine) as connection:
            for chunk in chunks(list(ids)):
                query = select(_c.id).where(_c.id.in_(chunk), _c.forgotten_at.is_not(None))
                found.update(connection.scalars(query))
        return tuple(dict.fromkeys(run for run in ids if run in found))

    def count(self, filter: TrajectoryFilter) -> int:
        """How many trajectories match."""
        values = values_of(filter)
        counted = select(func.count()).select_from(table).where(*matching(tuple(values)).conditions)
        with reading(self.engine) as connection:
            return connection.scalar(counted, values) or 0


def _fetch(connection: Connection, trajectory_id: str) -> Trajectory:
    row = connection.execute(select(_c.document, _c.forgotten_at).where(_c.id == trajectory_id)).first()
    if row is None:
        raise missing(connection, table, [trajectory_id], "trajectory")
    if row.forgotten_at is not None:
        raise NotFound(
            f"trajectory {trajectory_id!r} was forgotten on {row.forgotten_at:%Y-%m-%d} and its content removed; "
            "get_lineage shows what it had touched",
            code="forgotten",
        )
    return Trajectory.model_validate_json(row.document)


def _set_links(connection: Connection, run_id: str, subagents: Sequence[str], continues: str | None) -> None:
    run = _fetch(connection, run_id)
    linked = run.model_copy(
        update={
            "subagents": tuple(dict.fromkeys((*run.subagents, *subagents))),
            "continues": continues or run.continues,
        }
    )
    if linked != run:
        # Links are part of the document alone: the run is the same, so its row stays as it is.
        document = encode_run(linked).columns["document"]
        connection.execute(table.update().where(_c.id == run_id).values(document=document))
        add_run_links(connection, [linked])


def _seqs_of(
    connection: Connection, ids: Sequence[str], conditions: Sequence[ColumnElement[bool]], values: Mapping[str, Any]
) -> list[int]:
    wanted = list(dict.fromkeys(ids))
    known: set[str] = set()
    seqs: list[int] = []
    for chunk in chunks(wanted):
        known.update(connection.scalars(select(_c.id).where(_c.id.in_(chunk))))
        seqs += connection.scalars(select(_c.seq).where(_c.id.in_(chunk), *conditions), values)
    if len(known) < len(wanted):
        raise missing(connection, table, [i for i in wanted if i not in known], "trajectory")
    return sorted(seqs)


@lru_cache(maxsize=256)
def _page_statement(names: tuple[str, ...], dialect: Dialect) -> Prepared:
    conditions, key = matching(tuple(name for name in names if name not in PAGE_VALUES))
    statement = _SHOWN.where(*conditions)
    if "before" in names:
        statement = statement.where(key < bindparam("before"))
    return prepare(statement.order_by(key.desc()).limit(bindparam("most")), dialect)


_SUMMARIES = TypeAdapter(tuple[TrajectorySummary, ...])


def _summaries(rows: Sequence[tuple[Any, ...]]) -> tuple[TrajectorySummary, ...]:
    # All in one call of the validator: a page is made in a fraction of a millisecond.
    return _SUMMARIES.validate_python(
        [
            {
                "id": run_id,
                "agent": agent,
                "environment": environment,
                "task_id": task_id,
                "task_type": task_type,
                "prompt": prompt,
                "outcome": outcome,
                "reward": reward,
                "steps": steps,
                "tags": _tags(tags),
                "job_id": job_id,
                "created_at": datetime.fromisoformat(created_at),
            }
            for _, run_id, agent, environment, task_id, task_type, prompt, outcome, reward, steps, tags, job_id, created_at in rows
        ]
    )


@lru_cache(maxsize=1000)
def _tags(tags: str) -> tuple[str, ...]:
    return tuple(json.loads(tags))
