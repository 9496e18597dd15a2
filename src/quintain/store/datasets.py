"""Stored datasets: one row per frozen folder, and the trajectories in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine, insert, or_, select, update

from quintain.errors import Conflict, NotFound
from quintain.next_step import Hint, call
from quintain.records.dataset import Dataset, SplitName
from quintain.records.filters import Page
from quintain.store.database.documents import chunks, encode, require_stored, rows_with
from quintain.store.database.engine import read_transaction, write_transaction
from quintain.store.database.paging import contain_words, fetch_page
from quintain.store.database.tables import dataset_members, trajectories
from quintain.store.database.tables import datasets as table

Members = Iterable[str] | Mapping[str, SplitName]
"""Ids of trajectories, with the split of each where it is known; unknown ones count as trained on."""


@dataclass(frozen=True)
class Datasets:
    """Table of datasets and their members."""

    engine: Engine

    def add(self, dataset: Dataset, members: Members, now: datetime) -> Dataset:
        """Store a dataset and its members.

        Raises:
            Conflict: The id exists (datasets are immutable), or a member was forgotten.
            NotFound: A member is not stored.
        """
        with write_transaction(self.engine) as connection:
            if _exists(connection, dataset):
                raise Conflict(f"expected a new dataset id, got {dataset.id}, which exists; export under another id")
            stored, forgotten = _insert(connection, dataset, members, now)
            if forgotten:
                raise Conflict(
                    f"expected stored members, but {forgotten[0]} was forgotten during the export; export again",
                    code="forgotten",
                )
        return stored

    def add_from_job(self, dataset: Dataset, members: Members, now: datetime) -> None:
        """Store a dataset that a job already trains on. Do nothing if it is stored.

        A member that was forgotten in the meantime remains a member, so that the dataset and its agents are marked.

        Raises:
            NotFound: A member is not stored.
        """
        with write_transaction(self.engine) as connection:
            if not _exists(connection, dataset):
                _insert(connection, dataset, members, now)

    def get(self, id_or_name: str, *, removed: bool = False) -> Dataset:
        """Return the dataset with this id, or the newest dataset with this name; with `removed` also a removed one.

        Raises:
            NotFound: The dataset does not exist, or was removed. The message lists the newest ones.
        """
        named = or_(table.c.id == id_or_name, table.c.name == id_or_name)
        query = select(table.c.id, table.c.document, table.c.removed_at).where(named)
        query = query.order_by(table.c.removed_at.is_not(None), (table.c.id == id_or_name).desc(), table.c.seq.desc())
        with read_transaction(self.engine) as connection:
            row = connection.execute(query.limit(1)).first()
        if row is None or (row.removed_at is not None and not removed):
            raise self._unknown(id_or_name, "" if row is None else f", which was removed on {row.removed_at:%Y-%m-%d}")
        return Dataset.from_stored(row.document, row.id)

    def names(self, ids: Iterable[str]) -> dict[str, str]:
        """Return the names of datasets by id, of removed ones too."""
        with read_transaction(self.engine) as connection:
            rows = rows_with(connection, select(table.c.id, table.c.name), table.c.id, ids)
            return {row.id: row.name for row in rows}

    def _known(self, names: Iterable[str]) -> list[Dataset]:
        """Return the datasets of those names or ids that exist."""
        known = []
        for name in dict.fromkeys(names):
            with suppress(NotFound):
                known.append(self.get(name))
        return known

    def remove(self, dataset_id: str, now: datetime) -> None:
        """Hide a dataset from all but lineage. Its id is not given again; its files are the caller's."""
        with write_transaction(self.engine) as connection:
            connection.execute(update(table).where(table.c.id == dataset_id).values(removed_at=now))

    def _unknown(self, id_or_name: str, removed: str) -> NotFound:
        parts = [part for part in re.split(r"[^A-Za-z0-9._-]+", id_or_name) if part != id_or_name]
        if len(found := self._known(parts)) > 1:
            join = call("export_dataset", kind=found[0].kind, name="joined", path="+".join(one.name for one in found))
            return NotFound(Hint(f"expected one dataset, got {id_or_name!r}; join them first: ", join))
        newest = ", ".join(f"{d.id} ({d.name})" for d in self.page(limit=3).items)
        create = Hint("none exists; create one with ", call("export_dataset", kind="sft", name="good", filter=...))
        known = f"the newest are {newest}" if newest else create
        return NotFound(Hint(f"expected a dataset id or name, got {id_or_name!r}{removed}; ", known))

    def page(self, *, text: str = "", limit: int = 50, cursor: str | None = None) -> Page[Dataset]:
        """Return one page of the datasets, newest first, whose ids or names contain all words of `text`."""
        words = contain_words(text, table.c.id, table.c.name)
        return fetch_page(self.engine, table, Dataset, table.c.removed_at.is_(None), *words, limit=limit, cursor=cursor)

    def member_ids(self, dataset_id: str) -> list[str]:
        """Return the ids of the trajectories in a dataset, oldest first."""
        query = (
            select(trajectories.c.id)
            .join(dataset_members, dataset_members.c.trajectory_id == trajectories.c.id)
            .where(dataset_members.c.dataset_id == dataset_id)
            .order_by(trajectories.c.seq)
        )
        with read_transaction(self.engine) as connection:
            return list(connection.scalars(query))


def _exists(connection: Connection, dataset: Dataset) -> bool:
    return connection.scalar(select(table.c.seq).where(table.c.id == dataset.id)) is not None


def _insert(connection: Connection, dataset: Dataset, members: Members, now: datetime) -> tuple[Dataset, list[str]]:
    """Insert the row and its members. Return the dataset with its timestamp, and the members that were forgotten."""
    dataset = dataset if dataset.created_at else dataset.model_copy(update={"created_at": now})
    row = {"id": dataset.id, "name": dataset.name, "created_at": dataset.created_at}
    connection.execute(insert(table), row | {"document": encode(dataset, "dataset")})
    c = trajectories.c
    splits = members if isinstance(members, Mapping) else dict.fromkeys(members)
    stored = rows_with(connection, select(c.id, c.forgotten_at), c.id, splits)
    forgotten_at = {row.id: row.forgotten_at for row in stored}
    require_stored(connection, trajectories, splits, forgotten_at, "trajectory")
    for chunk in chunks(list(splits)):
        connection.execute(
            insert(dataset_members), [{"dataset_id": dataset.id, "trajectory_id": i, "split": splits[i]} for i in chunk]
        )
    return dataset, [run for run in splits if forgotten_at[run] is not None]
