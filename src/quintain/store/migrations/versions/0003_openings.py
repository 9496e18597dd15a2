"""Openings end before the agent's first turn, which may be incomplete in the first import of a session."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from quintain.records.trajectory import Trajectory
from quintain.store.trajectories.rows import opening_hash

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_BATCH = 100


def upgrade() -> None:
    """Recompute the opening hashes of all session runs that were not forgotten."""
    connection, last = op.get_bind(), 0
    query = sa.text(
        "SELECT seq, document FROM trajectories WHERE session_id IS NOT NULL AND forgotten_at IS NULL AND seq > :last "
        f"ORDER BY seq LIMIT {_BATCH}"
    )
    update = sa.text("UPDATE trajectories SET opening = :opening WHERE seq = :seq")
    while rows := connection.execute(query, {"last": last}).all():
        last = rows[-1].seq
        openings = [
            {"seq": row.seq, "opening": opening_hash(Trajectory.model_validate_json(row.document))} for row in rows
        ]
        connection.execute(update, openings)
    # The old hashes of forgotten runs no longer keep their grown sessions away, so the sessions as a whole are closed.
    op.execute(
        "INSERT INTO forgotten_sessions (session_id, trajectory_id, forgotten_at) "
        "SELECT session_id, MIN(id), MIN(forgotten_at) FROM trajectories WHERE forgotten_at IS NOT NULL "
        "AND session_id IS NOT NULL AND session_id NOT IN (SELECT session_id FROM forgotten_sessions) GROUP BY session_id"
    )
