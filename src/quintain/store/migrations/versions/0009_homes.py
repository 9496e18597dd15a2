"""The folders that claim the ids of homes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table, without claims."""
    op.create_table(
        "homes",
        sa.Column("id", sa.String(120), primary_key=True),
        sa.Column("token", sa.String(32), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
    )
