"""Preferences, judging batches and calibrations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_MOMENT = sa.String(27)
_ID = sa.String(120)


def _seq() -> sa.Column[int]:
    return sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=True)


def upgrade() -> None:
    """Create the three tables."""
    op.create_table(
        "preferences",
        _seq(),
        sa.Column("id", _ID, nullable=False, unique=True),
        sa.Column("a", _ID, sa.ForeignKey("trajectories.id", ondelete="CASCADE"), nullable=False),
        sa.Column("b", _ID, sa.ForeignKey("trajectories.id", ondelete="CASCADE"), nullable=False),
        sa.Column("source", sa.String(20), nullable=False),
        sa.Column("key", sa.String(64), nullable=False, unique=True),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_preferences_a", "preferences", ["a"])
    op.create_index("ix_preferences_b", "preferences", ["b"])
    op.create_index("ix_preferences_source", "preferences", ["source", "seq"])
    op.create_table(
        "judging_batches",
        _seq(),
        sa.Column("id", _ID, nullable=False, unique=True),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "calibrations",
        _seq(),
        sa.Column("id", _ID, nullable=False, unique=True),
        sa.Column("scorer", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.UniqueConstraint("scorer", "version"),
        sqlite_autoincrement=True,
    )
