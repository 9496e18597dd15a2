"""The home to which a job belongs, and the time until which its side counts as alive."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add home and lease to jobs. Both stay null in existing rows, which any home with their folder reconciles."""
    op.add_column("jobs", sa.Column("home", sa.String(120), nullable=True))
    op.add_column("jobs", sa.Column("lease_until", sa.String(27), nullable=True))
