"""Indexes for pages of jobs by state, by kind, and by both."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the indexes, each in the order of the pages."""
    op.create_index("ix_jobs_status_seq", "jobs", ["status", "seq"])
    op.create_index("ix_jobs_kind", "jobs", ["kind", "seq"])
    op.create_index("ix_jobs_kind_status", "jobs", ["kind", "status", "seq"])
