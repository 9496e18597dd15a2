"""Alembic's entry: runs the revisions on the connection that `store.py` hands over, inside its transaction."""

from __future__ import annotations

from alembic import context

from quintain.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # Our engine opens every transaction itself, so DDL on SQLite is all-or-nothing too.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
