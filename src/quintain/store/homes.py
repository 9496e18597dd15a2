"""Claims of job folders to the ids of their homes (jobs/home_claim.py)."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Engine, select, update

from quintain.store.database.engine import insert_missing, read_transaction, write_transaction
from quintain.store.database.tables import homes


class Claim(NamedTuple):
    """The newest claim to a home's id."""

    token: str
    place: str
    """Machine and folder that made it."""


class Homes:
    """Table of homes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def claim(self, home: str) -> Claim | None:
        """Return the newest claim to a home's id, or None."""
        with read_transaction(self._engine) as connection:
            row = connection.execute(select(homes.c.token, homes.c.place).where(homes.c.id == home)).first()
        return None if row is None else Claim(*row)

    def replace(self, home: str, before: str | None, claim: Claim) -> bool:
        """Store a claim in the place of the one with token `before`, or of none. Return False if another was first."""
        with write_transaction(self._engine) as connection:
            if before is None:
                return insert_missing(connection, homes, [{"id": home, **claim._asdict()}]) == 1
            changed = update(homes).where(homes.c.id == home, homes.c.token == before).values(claim._asdict())
            return connection.execute(changed).rowcount == 1
