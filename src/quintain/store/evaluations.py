"""Stored evaluations of agents, and comparisons between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Engine, Table, func, select

from quintain.records.evaluation import Comparison, Evaluation
from quintain.records.filters import Page
from quintain.store.database.documents import encode, fetch, get, read_all
from quintain.store.database.engine import insert_missing, write_transaction
from quintain.store.database.paging import contain_words, fetch_page
from quintain.store.database.tables import comparisons, links
from quintain.store.database.tables import evaluations as table
from quintain.store.lineage.links import Link, add_links, comparison_links, evaluation_links

E = TypeVar("E", Evaluation, Comparison)


@dataclass(frozen=True)
class Evaluations:
    """Tables of evaluations and comparisons."""

    engine: Engine

    def add(self, evaluation: Evaluation, now: datetime) -> Evaluation:
        """Store an evaluation, or return the stored one with the same id."""
        stamped = evaluation if evaluation.created_at is not None else evaluation.model_copy(update={"created_at": now})
        row = {"agent_id": stamped.agent_id, "environment": stamped.environment}
        return self._add(table, stamped, row, evaluation_links(stamped), "evaluation")

    def get(self, evaluation_id: str) -> Evaluation:
        """Return the evaluation with this id."""
        return get(self.engine, table, Evaluation, evaluation_id, "evaluation")

    def of_agent(self, agent_id: str) -> list[Evaluation]:
        """Return all evaluations of an agent (`agent:NAME@VERSION`), newest first."""
        query = select(table.c.id, table.c.document).where(table.c.agent_id == agent_id).order_by(table.c.seq.desc())
        return read_all(self.engine, Evaluation, query)

    def page(
        self, *, environment: str | None = None, text: str = "", limit: int = 50, cursor: str | None = None
    ) -> Page[Evaluation]:
        """Return one page of the evaluations, newest first, optionally of one environment.

        Their ids, agents or environments contain all words of `text`.
        """
        conditions = contain_words(text, table.c.id, table.c.agent_id, table.c.environment)
        if environment is not None:
            conditions.append(table.c.environment == environment)
        return fetch_page(self.engine, table, Evaluation, *conditions, limit=limit, cursor=cursor)

    def add_comparison(self, comparison: Comparison, now: datetime) -> Comparison:
        """Store a comparison, or return the stored one with the same id."""
        stamped = comparison if comparison.created_at is not None else comparison.model_copy(update={"created_at": now})
        return self._add(
            comparisons, stamped, {"environment": stamped.environment}, comparison_links(stamped), "comparison"
        )

    def page_comparisons(self, *, text: str = "", limit: int = 50, cursor: str | None = None) -> Page[Comparison]:
        """Return one page of the comparisons, newest first.

        Their ids, environments or compared agents contain all words of `text`.
        """
        compared = (links.c.target_kind == "comparison") & (links.c.target_id == comparisons.c.id)
        measured = (links.c.source_kind == "evaluation") & (links.c.source_id == table.c.id)
        agents = select(func.aggregate_strings(table.c.agent_id, " ")).where(compared, measured).scalar_subquery()
        words = contain_words(text, comparisons.c.id, comparisons.c.environment, agents)
        return fetch_page(self.engine, comparisons, Comparison, *words, limit=limit, cursor=cursor)

    def find_comparison(self, comparison_id: str) -> Comparison | None:
        """Return the comparison with this id, or None."""
        query = select(comparisons.c.id, comparisons.c.document).where(comparisons.c.id == comparison_id)
        return next(iter(read_all(self.engine, Comparison, query)), None)

    def get_comparison(self, comparison_id: str) -> Comparison:
        """Return the comparison with this id."""
        return get(self.engine, comparisons, Comparison, comparison_id, "comparison")

    def _add(self, table: Table, record: E, row: dict[str, Any], edges: Iterable[Link], noun: str) -> E:
        row |= {"id": record.id, "document": encode(record, noun), "created_at": record.created_at}
        with write_transaction(self.engine) as connection:
            if insert_missing(connection, table, [row]):
                add_links(connection, edges)
            return fetch(connection, table, type(record), record.id, noun)
