"""A column and an index for whether redaction found personal data in a run."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_KINDS = frozenset({"email", "phone", "national_id", "card", "iban", "private_ip"})
_BATCH = 100


def upgrade() -> None:
    """Add the column. Runs with counts of personal data have some; of all others it is unknown."""
    op.add_column("trajectories", sa.Column("personal_data", sa.String(8), nullable=False, server_default="unknown"))
    connection, last = op.get_bind(), 0
    query = sa.text(
        "SELECT seq, document FROM trajectories WHERE forgotten_at IS NULL AND seq > :last "
        f"AND document NOT LIKE '%\"redactions\":{{}}%' ORDER BY seq LIMIT {_BATCH}"
    )
    update = sa.text("UPDATE trajectories SET personal_data = 'found' WHERE seq = :seq")
    while rows := connection.execute(query, {"last": last}).all():
        last = rows[-1].seq
        if found := [
            {"seq": row.seq} for row in rows if _KINDS & json.loads(row.document).get("redactions", {}).keys()
        ]:
            connection.execute(update, found)
    remembered = sa.text("forgotten_at IS NULL")
    op.create_index(
        "ix_trajectories_personal_data",
        "trajectories",
        ["personal_data", "seq", "reward"],
        sqlite_where=remembered,
        postgresql_where=remembered,
    )
