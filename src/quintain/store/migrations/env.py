"""Alembic entry point: runs the revisions on the connection of `store.py`, inside its transaction."""

from __future__ import annotations

from alembic import context

from quintain.store.database.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # The engine opens every transaction explicitly, so DDL is transactional on SQLite too.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
