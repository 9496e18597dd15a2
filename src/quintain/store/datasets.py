"""Datasets: the row of each frozen folder, and which trajectories went into it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine, insert, or_, select

from quintain.errors import Conflict, NotFound
from quintain.records.dataset import Dataset
from quintain.records.filters import Page
from quintain.store.documents import chunks, encode, missing
from quintain.store.engine import reading, writing
from quintain.store.paging import fetch_page
from quintain.store.tables import dataset_members, trajectories
from quintain.store.tables import datasets as table


@dataclass(frozen=True)
class Datasets:
    """The stored datasets."""

    engine: Engine

    def add(self, dataset: Dataset, trajectory_ids: Iterable[str], now: datetime) -> Dataset:
        """Store a dataset and its members.

        Raises:
            Conflict: the id is taken, for a dataset never changes; or a member was forgotten.
            NotFound: a member that is not stored.
        """
        with writing(self.engine) as connection:
            if _exists(connection, dataset):
                raise Conflict(f"dataset {dataset.id} exists and never changes; export under a new id")
            stored, forgotten = _insert(connection, dataset, trajectory_ids, now)
            if forgotten:
                raise Conflict(
                    f"{forgotten[0]} was forgotten while this dataset was made; export it again", code="forgotten"
                )
        return stored

    def take_over(self, dataset: Dataset, trajectory_ids: Iterable[str], now: datetime) -> None:
        """Store a dataset on which a job trains already; one that is known stays as it is.

        What was forgotten meanwhile stays a member: it marks the dataset, and the agents that learned from it.

        Raises:
            NotFound: a member that is not stored.
        """
        with writing(self.engine) as connection:
            if not _exists(connection, dataset):
                _insert(connection, dataset, trajectory_ids, now)

    def get(self, id_or_name: str) -> Dataset:
        """The dataset with this id, or the newest of this name.

        Raises:
            NotFound: lists the newest datasets.
        """
        named = or_(table.c.id == id_or_name, table.c.name == id_or_name)
        query = select(table.c.document).where(named).order_by((table.c.id == id_or_name).desc(), table.c.seq.desc())
        with reading(self.engine) as connection:
            document = connection.scalar(query.limit(1))
            if document is None:
                raise self._unknown(id_or_name)
        return Dataset.model_validate_json(document)

    def _unknown(self, id_or_name: str) -> NotFound:
        newest = ", ".join(f"{d.id} ({d.name})" for d in self.page(limit=3).items)
        known = f"the newest are {newest}" if newest else "there is none yet: make one with export_dataset"
        return NotFound(f"no dataset has the id or name {id_or_name!r}; {known}")

    def page(self, *, limit: int = 50, cursor: str | None = None) -> Page[Dataset]:
        """One page of the datasets, newest first."""
        with reading(self.engine) as connection:
            return fetch_page(
                connection,
                select(table.c.seq, table.c.document),
                table,
                lambda rows: [Dataset.model_validate_json(row.document) for row in rows],
                limit=limit,
                cursor=cursor,
            )

    def members(self, dataset_id: str) -> list[str]:
        """The trajectories that went into a dataset, oldest first."""
        query = (
            select(trajectories.c.id)
            .join(dataset_members, dataset_members.c.trajectory_id == trajectories.c.id)
            .where(dataset_members.c.dataset_id == dataset_id)
            .order_by(trajectories.c.seq)
        )
        with reading(self.engine) as connection:
            return list(connection.scalars(query))


def _exists(connection: Connection, dataset: Dataset) -> bool:
    return connection.scalar(select(table.c.seq).where(table.c.id == dataset.id)) is not None


def _insert(
    connection: Connection, dataset: Dataset, trajectory_ids: Iterable[str], now: datetime
) -> tuple[Dataset, list[str]]:
    """The dataset with its moment, and those of its members that were forgotten."""
    dataset = dataset if dataset.created_at else dataset.model_copy(update={"created_at": now})
    row = {"id": dataset.id, "name": dataset.name, "created_at": dataset.created_at}
    connection.execute(insert(table), row | {"document": encode(dataset, "dataset")})
    forgotten: list[str] = []
    c = trajectories.c
    for chunk in chunks(list(dict.fromkeys(trajectory_ids))):
        known = {row.id: row for row in connection.execute(select(c.id, c.forgotten_at).where(c.id.in_(chunk)))}
        if unknown := [i for i in chunk if i not in known]:
            raise missing(connection, trajectories, unknown, "trajectory")
        forgotten += [i for i in chunk if known[i].forgotten_at is not None]
        connection.execute(insert(dataset_members), [{"dataset_id": dataset.id, "trajectory_id": i} for i in chunk])
    return dataset, forgotten
