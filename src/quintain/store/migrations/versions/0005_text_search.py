"""An index of the searched text, and the reward in the indexes of runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from quintain.store.trajectories.text_index import create_text_index

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Index the text of all stored runs, and add the reward to the indexes by which runs are listed."""
    create_text_index(op.get_bind())
    remembered = sa.text("forgotten_at IS NULL")
    for name in ("agent", "agent_label", "environment", "outcome"):
        op.drop_index(f"ix_trajectories_{name}", "trajectories")
        _index(name, [name, "seq", "reward"], remembered)
    _index("reward", ["seq", "reward"], remembered)


def _index(name: str, columns: list[str], remembered: sa.TextClause) -> None:
    op.create_index(
        f"ix_trajectories_{name}",
        "trajectories",
        columns,
        sqlite_where=remembered,
        postgresql_where=remembered,
    )
