"""Stored batches of runs given to judges, and their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, insert, select, update

from quintain.records.labels.judging import JudgingBatch, Vote
from quintain.store.database.documents import chunks, encode, fetch, get, read_all
from quintain.store.database.engine import read_transaction, write_transaction
from quintain.store.database.tables import judging_batches as table


@dataclass(frozen=True)
class JudgingBatches:
    """Table of judging batches."""

    engine: Engine

    def add(self, batch: JudgingBatch, now: datetime) -> JudgingBatch:
        """Store a new batch."""
        stamped = batch.model_copy(update={"created_at": now})
        row = {"id": stamped.id, "document": encode(stamped, "batch"), "created_at": now}
        with write_transaction(self.engine) as connection:
            connection.execute(insert(table), row)
        return stamped

    def get(self, batch_id: str) -> JudgingBatch:
        """Return the batch with this id."""
        return get(self.engine, table, JudgingBatch, batch_id, "judging batch")

    def record_answers(
        self,
        batch_id: str,
        item_ids: Sequence[str],
        votes: Mapping[str, Vote | None] | None = None,
        corrections: Mapping[str, str | None] | None = None,
    ) -> JudgingBatch:
        """Record answers to items of a batch. Return the updated batch.

        Args:
            batch_id: The batch.
            item_ids: Items that are answered now.
            votes: Pair item -> preferred place, appended to earlier votes on the item. None withdraws all of them.
            corrections: Item -> id of the run created from its correction. None removes the correction.
        """

        def answer(batch: JudgingBatch) -> Mapping[str, Any]:
            done = tuple(dict.fromkeys((*batch.answered, *item_ids)))
            cast = {item: (*batch.votes.get(item, ()), vote) if vote else () for item, vote in (votes or {}).items()}
            runs = {item: run for item, run in {**batch.corrections, **(corrections or {})}.items() if run}
            return {"answered": done, "votes": {**batch.votes, **cast}, "corrections": runs}

        return self._change(batch_id, answer)

    def allow_without_form(self, batch_id: str) -> JudgingBatch:
        """Allow answers to the open items without a form, for clients that cannot show one."""
        return self._change(
            batch_id, lambda batch: {"forms": tuple(one for one in batch.forms if one in batch.answered)}
        )

    def show_longer(self, batch_id: str, item_id: str) -> JudgingBatch:
        """Record that the person sees more of an item from now on."""
        return self._change(batch_id, lambda batch: {"longer": tuple(dict.fromkeys((*batch.longer, item_id)))})

    def _change(self, batch_id: str, changes: Callable[[JudgingBatch], Mapping[str, Any]]) -> JudgingBatch:
        """Change fields of a batch by its current state, in one transaction."""
        with write_transaction(self.engine) as connection:
            batch = fetch(connection, table, JudgingBatch, batch_id, "judging batch")
            batch = batch.model_copy(update=changes(batch))
            connection.execute(update(table).where(table.c.id == batch_id).values(document=encode(batch, "batch")))
        return batch

    def iterate(self, rater: str | None = None) -> Iterator[JudgingBatch]:
        """Yield every batch, oldest first, optionally of one rater only."""
        query = select(table.c.id).order_by(table.c.seq)
        with read_transaction(self.engine) as connection:
            ids = list(connection.scalars(query))
        for chunk in chunks(ids):
            found = select(table.c.id, table.c.document).where(table.c.id.in_(chunk)).order_by(table.c.seq)
            for batch in read_all(self.engine, JudgingBatch, found):
                if rater is None or batch.rater == rater:
                    yield batch

    def newest(self, n: int) -> list[JudgingBatch]:
        """Return the `n` newest batches, newest first."""
        query = select(table.c.id, table.c.document).order_by(table.c.seq.desc()).limit(n)
        return read_all(self.engine, JudgingBatch, query)
