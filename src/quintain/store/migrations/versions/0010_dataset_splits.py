"""The split of each run of a dataset, null in datasets that are older."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; splits of earlier datasets stay unknown."""
    op.add_column("dataset_members", sa.Column("split", sa.String(20)))
