"""When a dataset or an agent was removed; its record stays for lineage."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    for table in ("datasets", "agents"):
        op.add_column(table, sa.Column("removed_at", sa.String(27)))
