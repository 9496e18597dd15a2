"""Agents without a name are called by their models."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from quintain.records.trajectory import AgentInfo
from quintain.store.trajectories.rows import agent_names

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Rename them, model by model. Older programs read the rows as before."""
    connection = op.get_bind()
    is_postgres = connection.dialect.name == "postgresql"
    extracted = "CASE WHEN json_valid(document) THEN json_extract(document, '$.agent.model') END"
    model = "(document::json)->'agent'->>'model'" if is_postgres else extracted
    nameless = "FROM trajectories WHERE agent = 'unknown' AND agent_label = 'unknown' AND forgotten_at IS NULL"
    rows = connection.execute(sa.text(f"SELECT seq, {model} AS model {nameless}"))
    found = [(row.seq, *agent_names(AgentInfo(model=row.model))) for row in rows if row.model]
    if found:
        update = sa.text("UPDATE trajectories SET agent = :agent, agent_label = :label WHERE seq = :seq")
        connection.execute(update, [dict(zip(("seq", "agent", "label"), row, strict=True)) for row in found])
