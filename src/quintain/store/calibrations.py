"""Stored calibrations of scorers. Every version is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Engine, func, insert, select

from quintain.records.filters import Page
from quintain.records.labels.calibration import Calibration
from quintain.store.database.documents import encode, get, read_all
from quintain.store.database.engine import write_transaction
from quintain.store.database.paging import fetch_page
from quintain.store.database.tables import calibrations as table


@dataclass(frozen=True)
class Calibrations:
    """Table of calibrations."""

    engine: Engine

    def add(self, scorer: str, make: Callable[[int], Calibration], now: datetime) -> Calibration:
        """Store the next version of a scorer's calibration, which `make` builds from the version assigned here."""
        with write_transaction(self.engine) as connection:
            newest = connection.scalar(select(func.max(table.c.version)).where(table.c.scorer == scorer))
            stored = make((newest or 0) + 1).model_copy(update={"created_at": now})
            row = {
                "id": stored.id,
                "scorer": scorer,
                "version": stored.version,
                "document": encode(stored, "calibration"),
                "created_at": now,
            }
            connection.execute(insert(table), row)
        return stored

    def get(self, calibration_id: str) -> Calibration:
        """Return the calibration with this id."""
        return get(self.engine, table, Calibration, calibration_id, "calibration")

    def newest(self, scorer: str) -> Calibration | None:
        """Return the newest calibration of a scorer, or None."""
        query = (
            select(table.c.id, table.c.document)
            .where(table.c.scorer == scorer)
            .order_by(table.c.version.desc())
            .limit(1)
        )
        return next(iter(read_all(self.engine, Calibration, query)), None)

    def page(self, *, limit: int = 50, cursor: str | None = None) -> Page[Calibration]:
        """Return one page of the calibrations, newest first."""
        return fetch_page(self.engine, table, Calibration, limit=limit, cursor=cursor)
