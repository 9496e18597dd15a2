"""Initial schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_MOMENT = sa.String(27)
_SEQ = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _seq() -> sa.Column[int]:
    return sa.Column("seq", _SEQ, primary_key=True, autoincrement=True)


def upgrade() -> None:
    """Create all tables."""
    _trajectories()
    _datasets_and_agents()
    _evaluations()
    _jobs()


def _trajectories() -> None:
    op.create_table(
        "trajectories",
        _seq(),
        sa.Column("id", sa.String(120), nullable=False, unique=True),
        sa.Column("identity", sa.String(64), nullable=False, unique=True),
        sa.Column("session_id", sa.Text(), nullable=True),
        sa.Column("opening", sa.String(64), nullable=True),
        sa.Column("job_id", sa.Text(), nullable=True),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("agent_label", sa.Text(), nullable=False),
        sa.Column("environment", sa.Text(), nullable=True),
        sa.Column("task_id", sa.Text(), nullable=True),
        sa.Column("task_type", sa.Text(), nullable=True),
        sa.Column("prompt", sa.Text(), nullable=False),
        sa.Column("outcome", sa.String(20), nullable=False),
        sa.Column("reward", sa.Double(), nullable=True),
        sa.Column("n_steps", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("updated_at", _MOMENT, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_trajectories_opening", "trajectories", ["opening"])
    op.create_index("ix_trajectories_job_id", "trajectories", ["job_id", "seq"])
    op.create_index("ix_trajectories_agent", "trajectories", ["agent", "seq"])
    op.create_table(
        "trajectory_tags",
        sa.Column(
            "trajectory_id", sa.String(120), sa.ForeignKey("trajectories.id", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("tag", sa.Text(), primary_key=True),
    )
    op.create_index("ix_trajectory_tags_tag", "trajectory_tags", ["tag"])
    op.create_table(
        "scores",
        _seq(),
        sa.Column(
            "trajectory_id", sa.String(120), sa.ForeignKey("trajectories.id", ondelete="CASCADE"), nullable=False
        ),
        sa.Column("identity", sa.String(64), nullable=False),
        sa.Column("scorer", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_scores_trajectory_id", "scores", ["trajectory_id", "scorer", "seq"])


def _datasets_and_agents() -> None:
    op.create_table(
        "datasets",
        _seq(),
        sa.Column("id", sa.String(120), nullable=False, unique=True),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_datasets_name", "datasets", ["name", "seq"])
    op.create_table(
        "dataset_members",
        sa.Column("dataset_id", sa.String(120), sa.ForeignKey("datasets.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("trajectory_id", sa.String(120), sa.ForeignKey("trajectories.id"), primary_key=True),
    )
    op.create_index("ix_dataset_members_trajectory_id", "dataset_members", ["trajectory_id"])
    op.create_table(
        "agents",
        _seq(),
        sa.Column("id", sa.String(120), nullable=False, unique=True),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=True, unique=True),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.UniqueConstraint("name", "version"),
        sqlite_autoincrement=True,
    )


def _evaluations() -> None:
    op.create_table(
        "evaluations",
        _seq(),
        sa.Column("id", sa.String(120), nullable=False, unique=True),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("environment", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_evaluations_agent_id", "evaluations", ["agent_id", "seq"])
    op.create_index("ix_evaluations_environment", "evaluations", ["environment", "seq"])
    op.create_table(
        "comparisons",
        _seq(),
        sa.Column("id", sa.String(120), nullable=False, unique=True),
        sa.Column("environment", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sqlite_autoincrement=True,
    )


def _jobs() -> None:
    op.create_table(
        "jobs",
        _seq(),
        sa.Column("id", sa.String(120), nullable=False, unique=True),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("request_key", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=True),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("total_steps", sa.Integer(), nullable=True),
        sa.Column("metrics", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("warnings", sa.Text(), nullable=False),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("resumed_from", sa.Text(), nullable=True),
        sa.Column("offsets", sa.Text(), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("started_at", _MOMENT, nullable=True),
        sa.Column("ended_at", _MOMENT, nullable=True),
        sa.Column("updated_at", _MOMENT, nullable=False),
        sqlite_autoincrement=True,
    )
    unfinished = sa.text("status in ('queued', 'running')")
    op.create_index(
        "uq_jobs_request_key_unfinished",
        "jobs",
        ["request_key"],
        unique=True,
        sqlite_where=unfinished,
        postgresql_where=unfinished,
    )
    op.create_index("ix_jobs_status", "jobs", ["status", "priority", "seq"])
    op.create_table(
        "job_events",
        sa.Column("job_id", sa.String(120), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("attempt", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("seq", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("type", sa.String(20), nullable=False),
        sa.Column("time", _MOMENT, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
    )
