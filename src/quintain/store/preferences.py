"""Stored preferences between runs. Repeated preferences are stored once; a changed one replaces the old."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Column, Connection, Engine, delete, insert, or_, select

from quintain.records.filters import Page
from quintain.records.labels.preference import Preference
from quintain.store.database.documents import chunks, encode, require_stored, rows_with
from quintain.store.database.engine import read_transaction, write_transaction
from quintain.store.database.paging import fetch_page
from quintain.store.database.tables import preferences as table
from quintain.store.database.tables import trajectories


@dataclass(frozen=True)
class Preferences:
    """Table of preferences."""

    engine: Engine

    def add_many(self, preferences: Sequence[Preference], now: datetime) -> list[Preference]:
        """Store preferences, all or none. The newest preference of a rater on two runs (and a step) replaces the previous.

        Returns:
            The preferences as stored, in the same order, with each pair of runs sorted by id.

        Raises:
            NotFound: A run is not stored, or was forgotten.
        """
        with read_transaction(self.engine) as connection:
            contents = _contents(connection, [run for one in preferences for run in (one.a, one.b)])
        stored = [_with_contents(_sort_runs(preference, now), contents) for preference in preferences]
        rows = {
            key: {
                "id": preference.id,
                "a": preference.a,
                "b": preference.b,
                "source": preference.source,
                "key": key,
                "document": encode(preference, "preference"),
                "created_at": preference.created_at,
            }
            for key, preference in ((_key(preference), preference) for preference in stored)
        }
        with write_transaction(self.engine) as connection:
            runs = [run for preference in stored for run in (preference.a, preference.b)]
            require_stored(connection, trajectories, runs, _contents(connection, runs), "trajectory")
            for chunk in chunks(list(rows)):
                connection.execute(delete(table).where(table.c.key.in_(chunk)))
            if rows:
                connection.execute(insert(table), list(rows.values()))
        return stored

    def among(self, trajectory_ids: Collection[str], *, sources: Collection[str] = ()) -> list[Preference]:
        """Return preferences whose runs are both among these, oldest first, optionally of some sources only.

        A preference between whole runs no longer counts once one of the runs has grown.
        """
        wanted = set(trajectory_ids)
        with read_transaction(self.engine) as connection:
            found = _involving(connection, wanted, (table.c.a,), sources)
            return _current(connection, [one for _, one in sorted(found.items()) if one.b in wanted])

    def involving(self, trajectory_ids: Collection[str], *, sources: Collection[str] = ()) -> list[Preference]:
        """Return preferences that involve at least one of these runs, oldest first; otherwise as `among`."""
        with read_transaction(self.engine) as connection:
            found = _involving(connection, set(trajectory_ids), (table.c.a, table.c.b), sources)
            return _current(connection, [one for _, one in sorted(found.items())])

    def connected_to(self, trajectory_ids: Collection[str]) -> list[Preference]:
        """Return preferences connected to these runs, directly or through other preferences, oldest first."""
        found: dict[int, Preference] = {}
        known: set[str] = set()
        frontier = set(trajectory_ids)
        with read_transaction(self.engine) as connection:
            while frontier:
                found |= _involving(connection, frontier, (table.c.a, table.c.b))
                known |= frontier
                frontier = {run for preference in found.values() for run in (preference.a, preference.b)} - known
            return _current(connection, [preference for _, preference in sorted(found.items())])

    def previous(self, preferences: Sequence[Preference]) -> list[Preference | None]:
        """Return each rater's stored preference on the same two runs (and step), or None."""
        keys = [_key(_sort_runs(preference, None)) for preference in preferences]
        found: dict[str, Preference] = {}
        with read_transaction(self.engine) as connection:
            for key, document in rows_with(connection, select(table.c.key, table.c.document), table.c.key, keys):
                found[key] = Preference.from_stored(document)
        return [found.get(key) for key in keys]

    def withdraw(self, ids: Collection[str]) -> int:
        """Delete preferences by id. Return how many existed."""
        with write_transaction(self.engine) as connection:
            deleted = (connection.execute(delete(table).where(table.c.id.in_(chunk))) for chunk in chunks(sorted(ids)))
            return sum(result.rowcount for result in deleted)

    def comparable(self, trajectory_ids: Collection[str]) -> set[str]:
        """Return those of these runs that can be compared: stored and not forgotten."""
        with read_transaction(self.engine) as connection:
            return set(_contents(connection, trajectory_ids))

    def page(self, *, trajectory_id: str | None = None, limit: int = 50, cursor: str | None = None) -> Page[Preference]:
        """Return one page of the preferences, newest first, optionally of one run."""
        of_run = () if trajectory_id is None else (or_(table.c.a == trajectory_id, table.c.b == trajectory_id),)
        return fetch_page(self.engine, table, Preference, *of_run, limit=limit, cursor=cursor)


def delete_preferences(connection: Connection, trajectory_id: str) -> int:
    """Delete every preference that involves a run. Return how many there were."""
    involved = delete(table).where(or_(table.c.a == trajectory_id, table.c.b == trajectory_id))
    return connection.execute(involved).rowcount


def _involving(
    connection: Connection, ids: Collection[str], columns: Sequence[Column[str]], sources: Collection[str] = ()
) -> dict[int, Preference]:
    """Return `seq` -> preference that has one of these runs in one of the columns."""
    query = select(table.c.seq, table.c.document)
    if sources:
        query = query.where(table.c.source.in_(sources))
    documents = {seq: document for column in columns for seq, document in rows_with(connection, query, column, ids)}
    return {seq: Preference.from_stored(document) for seq, document in documents.items()}


def _sort_runs(preference: Preference, now: datetime | None) -> Preference:
    """Sort the two runs by id, so that the key does not depend on their order."""
    swapped = preference.a > preference.b
    changes: dict[str, object] = {"created_at": preference.created_at or now}
    if swapped:
        better = {"a": "b", "b": "a", "tie": "tie"}[preference.better]
        changes |= {"a": preference.b, "b": preference.a, "better": better}
    ordered = preference.model_copy(update=changes)
    return ordered.model_copy(update={"id": f"pref-{_key(ordered)[:12]}"})


def _key(preference: Preference) -> str:
    p = preference
    return hashlib.sha256(json.dumps([p.a, p.b, p.step, p.source, p.rater, p.scorer]).encode()).hexdigest()


def _with_contents(one: Preference, contents: Mapping[str, str]) -> Preference:
    sides = contents.get(one.a), contents.get(one.b)
    return one.model_copy(update={"contents": sides}) if all(sides) else one


def _current(connection: Connection, found: Sequence[Preference]) -> list[Preference]:
    """Drop preferences between whole runs of which one has grown. A single step does not change."""
    whole = [one for one in found if one.step is None and one.contents is not None]
    contents = _contents(connection, [run for one in whole for run in (one.a, one.b)])
    outdated = {one.id for one in whole if one.contents != (contents.get(one.a), contents.get(one.b))}
    return [one for one in found if one.id not in outdated]


def _contents(connection: Connection, ids: Collection[str]) -> dict[str, str]:
    """Return run -> prefix of its identity hash, for stored runs that were not forgotten."""
    c = trajectories.c
    known = select(c.id, c.identity).where(c.forgotten_at.is_(None))
    return {run: identity[:_CONTENT_CHARS] for run, identity in rows_with(connection, known, c.id, ids)}


_CONTENT_CHARS = 16
