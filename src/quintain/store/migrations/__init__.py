"""Schema migrations. Alembic is imported only if a database is outdated."""

from quintain.errors import Unavailable

REVISIONS: tuple[str, ...] = tuple(f"{number:04}" for number in range(1, 15))
"""Revisions, oldest first. The last one is the schema in `tables.py`."""


def require_known(revision: str | None) -> None:
    """Check that this version of the program knows a database's schema.

    Raises:
        Unavailable: A newer version wrote the database (`database_newer`).
    """
    if revision is not None and revision not in REVISIONS:
        raise Unavailable(
            f"expected database schema {REVISIONS[-1]} or older, got {revision}, written by a newer version of quintain; "
            "upgrade this installation, or set QUINTAIN_HOME to another folder",
            code="database_newer",
        )
