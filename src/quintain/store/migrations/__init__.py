"""Schema migrations. Alembic is imported only if a database is outdated."""

REVISIONS: tuple[str, ...] = ("0001", "0002", "0003", "0004", "0005", "0006")
"""Revisions, oldest first. The last one is the schema in `tables.py`."""
