"""Batches that were given to judges: which item stands for which runs, and which items were answered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Engine, insert, select, update

from quintain.records.judging import JudgingBatch, Vote
from quintain.store.documents import chunks, encode, fetch
from quintain.store.engine import reading, writing
from quintain.store.tables import judging_batches as table


@dataclass(frozen=True)
class JudgingBatches:
    """The stored batches."""

    engine: Engine

    def add(self, batch: JudgingBatch, now: datetime) -> JudgingBatch:
        """Store a new batch."""
        stamped = batch.model_copy(update={"created_at": now})
        row = {"id": stamped.id, "document": encode(stamped, "batch"), "created_at": now}
        with writing(self.engine) as connection:
            connection.execute(insert(table), row)
        return stamped

    def get(self, batch_id: str) -> JudgingBatch:
        """The batch with this id.

        Raises:
            NotFound: names the three newest ids.
        """
        with reading(self.engine) as connection:
            return fetch(connection, table, JudgingBatch, batch_id, "judging batch")

    def answered(
        self,
        batch_id: str,
        item_ids: Sequence[str],
        votes: Mapping[str, Vote | None] | None = None,
        corrections: Mapping[str, str | None] | None = None,
    ) -> JudgingBatch:
        """Note that items were answered; gives back the batch as it is then.

        Args:
            batch_id: The batch.
            item_ids: Its items that have an answer now.
            votes: Of pairs: item -> which place was preferred, kept beside earlier answers to the same item; None: all are
                taken back.
            corrections: Item -> the run that its correction became; None: it has none any more.

        Raises:
            NotFound: names the three newest ids.
        """
        with writing(self.engine) as connection:
            batch = fetch(connection, table, JudgingBatch, batch_id, "judging batch")
            done = tuple(dict.fromkeys((*batch.answered, *item_ids)))
            cast = {item: (*batch.votes.get(item, ()), vote) if vote else () for item, vote in (votes or {}).items()}
            runs = {item: run for item, run in {**batch.corrections, **(corrections or {})}.items() if run}
            update_of = {"answered": done, "votes": {**batch.votes, **cast}, "corrections": runs}
            batch = batch.model_copy(update=update_of)
            connection.execute(update(table).where(table.c.id == batch_id).values(document=encode(batch, "batch")))
        return batch

    def opened(self, batch_id: str) -> JudgingBatch:
        """Note that the open items can be answered without a form, because the client could show none.

        Raises:
            NotFound: names the three newest ids.
        """
        with writing(self.engine) as connection:
            batch = fetch(connection, table, JudgingBatch, batch_id, "judging batch")
            batch = batch.model_copy(update={"forms": tuple(one for one in batch.forms if one in batch.answered)})
            connection.execute(update(table).where(table.c.id == batch_id).values(document=encode(batch, "batch")))
        return batch

    def everything(self, rater: str | None = None) -> Iterator[JudgingBatch]:
        """Every batch, oldest first; with `rater`, those that were given to them."""
        query = select(table.c.id).order_by(table.c.seq)
        with reading(self.engine) as connection:
            ids = list(connection.scalars(query))
        for chunk in chunks(ids):
            found = select(table.c.document).where(table.c.id.in_(chunk)).order_by(table.c.seq)
            with reading(self.engine) as connection:
                documents = list(connection.scalars(found))
            for batch in map(JudgingBatch.model_validate_json, documents):
                if rater is None or batch.rater == rater:
                    yield batch

    def newest(self, n: int) -> list[JudgingBatch]:
        """The newest batches, newest first."""
        query = select(table.c.document).order_by(table.c.seq.desc()).limit(n)
        with reading(self.engine) as connection:
            return [JudgingBatch.model_validate_json(document) for document in connection.scalars(query)]
