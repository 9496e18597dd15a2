"""Names and notes that people give to jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    for name in ("name", "note"):
        op.add_column("jobs", sa.Column(name, sa.Text()))
