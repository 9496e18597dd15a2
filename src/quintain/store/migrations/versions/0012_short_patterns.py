"""Texts end in two line breaks in their index, so that a search for one or two characters is served by it."""

from __future__ import annotations

from alembic import op

from quintain.store.trajectories.text_index import create_text_index

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the index anew on SQLite; runs are indexed beside the work that follows."""
    connection = op.get_bind()
    if connection.dialect.name == "sqlite":
        for change in ("delete", "update"):
            op.execute(f"DROP TRIGGER trajectories_text_{change}")
        op.execute("DROP TABLE IF EXISTS trajectories_text_trigrams")
        op.execute("DROP TABLE trajectories_text")
        op.execute("DROP TABLE trajectories_text_state")
        create_text_index(connection)
