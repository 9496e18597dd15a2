"""Imports and lineage: imported files, links between records, forgotten runs; faster pages of runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_MOMENT = sa.String(27)
_SEQ = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_ID = sa.String(120)
_BATCH = 500


def upgrade() -> None:
    """Create the new tables and columns, and derive the links from stored documents."""
    _new_tables()
    _trajectories()
    _tags()
    _links()


def _new_tables() -> None:
    op.create_table(
        "links",
        sa.Column("target_kind", sa.String(20), primary_key=True),
        sa.Column("target_id", _ID, primary_key=True),
        sa.Column("source_kind", sa.String(20), primary_key=True),
        sa.Column("source_id", _ID, primary_key=True),
    )
    op.create_index("ix_links_source", "links", ["source_kind", "source_id"])
    op.create_table(
        "imported_files",
        sa.Column("uri", sa.Text(), primary_key=True),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("mtime_ns", sa.BigInteger(), nullable=False),
        sa.Column("format", sa.Text(), nullable=True),
        sa.Column("imported_at", _MOMENT, nullable=False),
    )
    op.create_table(
        "forgotten_sessions",
        sa.Column("session_id", sa.Text(), primary_key=True),
        sa.Column("trajectory_id", _ID, nullable=False),
        sa.Column("forgotten_at", _MOMENT, nullable=False),
    )


def _trajectories() -> None:
    """Move the two large columns to the end of the row, without dropping targets of foreign keys."""
    for name in ("text", "document"):
        op.execute(f"ALTER TABLE trajectories RENAME COLUMN {name} TO old_{name}")
    op.add_column("trajectories", sa.Column("tags", sa.Text(), nullable=False, server_default="[]"))
    op.add_column("trajectories", sa.Column("forgotten_at", _MOMENT, nullable=True))
    for name in ("text", "document"):
        op.add_column("trajectories", sa.Column(name, sa.Text(), nullable=False, server_default=""))
    op.execute("UPDATE trajectories SET text = old_text, document = old_document")
    for name in ("text", "document"):
        op.execute(f"ALTER TABLE trajectories DROP COLUMN old_{name}")
    op.drop_index("ix_trajectories_agent", "trajectories")
    op.create_index("ix_trajectories_session_id", "trajectories", ["session_id"])
    forgotten, remembered = sa.text("forgotten_at IS NOT NULL"), sa.text("forgotten_at IS NULL")
    op.create_index(
        "ix_trajectories_forgotten",
        "trajectories",
        ["forgotten_at"],
        sqlite_where=forgotten,
        postgresql_where=forgotten,
    )
    for name in ("agent", "agent_label", "environment", "outcome"):
        op.create_index(
            f"ix_trajectories_{name}",
            "trajectories",
            [name, "seq"],
            sqlite_where=remembered,
            postgresql_where=remembered,
        )


def _tags() -> None:
    op.drop_index("ix_trajectory_tags_tag", "trajectory_tags")
    op.rename_table("trajectory_tags", "old_tags")
    op.create_table(
        "trajectory_tags",
        sa.Column("tag", sa.Text(), primary_key=True),
        sa.Column(
            "seq",
            _SEQ,
            sa.ForeignKey("trajectories.seq", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        ),
        sqlite_with_rowid=False,
    )
    op.execute(
        "INSERT INTO trajectory_tags (tag, seq) SELECT old_tags.tag, trajectories.seq FROM old_tags "
        "JOIN trajectories ON trajectories.id = old_tags.trajectory_id"
    )
    op.drop_table("old_tags")
    rows = op.get_bind().execute(sa.text("SELECT seq, tag FROM trajectory_tags ORDER BY seq, tag")).all()
    tagged = [
        {"seq": seq, "tags": json.dumps([row.tag for row in group], ensure_ascii=False)}
        for seq, group in groupby(rows, key=lambda row: row.seq)
    ]
    if tagged:
        op.get_bind().execute(sa.text("UPDATE trajectories SET tags = :tags WHERE seq = :seq"), tagged)


def _links() -> None:
    found = {
        *_job_links(),
        *_agent_links(),
        *_evaluation_links(),
        *_trajectory_links(),
    }
    table = sa.table("links", *map(sa.column, ("source_kind", "source_id", "target_kind", "target_id")))
    names = [column.name for column in table.columns]
    if found:
        op.bulk_insert(table, [dict(zip(names, link, strict=True)) for link in sorted(found)])


_Link = tuple[str, str, str, str]
"""Source kind, source id, target kind, target id."""


def _documents(table: str, column: str = "document") -> Iterator[tuple[str, Any]]:
    """Yield id and parsed document of every row, oldest first, in batches."""
    last = 0
    query = sa.text(f"SELECT seq, id, {column} FROM {table} WHERE seq > :last ORDER BY seq LIMIT {_BATCH}")
    while rows := op.get_bind().execute(query, {"last": last}).all():
        last = rows[-1][0]
        yield from ((row[1], json.loads(row[2])) for row in rows)


def _job_links() -> Iterator[_Link]:
    newest_of_buffer: dict[str, str] = {}
    for job_id, spec in _documents("jobs", "spec"):
        if spec.get("kind") not in {"train", "rollout", "evaluate", "recipe"}:
            continue
        if agent_id := spec.get("agent", {}).get("id"):
            yield "agent", agent_id, "job", job_id
        for part in (spec, *spec.get("stages", ())):
            if part.get("dataset_id"):
                yield "dataset", part["dataset_id"], "job", job_id
            if buffer := ((part.get("config") or {}).get("replay") or {}).get("buffer"):
                yield "replay", buffer, "job", job_id
                before = newest_of_buffer.get(buffer, job_id)
                newest_of_buffer[buffer] = job_id
                if before != job_id:
                    yield "job", before, "job", job_id
    resumed = sa.text("SELECT resumed_from, id FROM jobs WHERE resumed_from IS NOT NULL")
    for before, job_id in op.get_bind().execute(resumed).all():
        yield "job", before, "job", job_id


def _agent_links() -> Iterator[_Link]:
    for agent_id, agent in _documents("agents"):
        if agent.get("job_id"):
            yield "job", agent["job_id"].split("/")[0], "agent", agent_id
        elif agent.get("parent"):
            yield "agent", agent["parent"], "agent", agent_id


def _evaluation_links() -> Iterator[_Link]:
    for evaluation_id, evaluation in _documents("evaluations"):
        yield "agent", evaluation["agent_id"], "evaluation", evaluation_id
        if evaluation.get("job_id"):
            yield "job", evaluation["job_id"], "evaluation", evaluation_id
    for comparison_id, comparison in _documents("comparisons"):
        for pair in comparison["comparisons"]:
            yield "evaluation", pair["evaluation_a"], "comparison", comparison_id
            yield "evaluation", pair["evaluation_b"], "comparison", comparison_id


def _trajectory_links() -> Iterator[_Link]:
    for run_id, run in _documents("trajectories"):
        for subagent in run.get("subagents", ()):
            yield "trajectory", run_id, "trajectory", subagent
        if run.get("continues"):
            yield "trajectory", run["continues"], "trajectory", run_id
