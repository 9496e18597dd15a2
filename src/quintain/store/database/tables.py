"""Declarations of all tables.

`document` contains the complete record as JSON. The other columns exist for selection and order. `seq` is the order of
insertion, so newest first is `seq` descending. A change to a table needs a new revision in `migrations/versions`.
The index of the searched text is in `trajectories/text_index.py`, because SQLAlchemy cannot declare it.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    text,
)


class Moment(TypeDecorator[datetime]):
    """UTC timestamp as text of fixed width, `2026-01-02T03:04:05.000006Z`, which sorts correctly on every database."""

    impl = String(27)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:
        """Convert to text. A timestamp without a time zone is a programming error."""
        return None if value is None else self.text_of(value)

    @staticmethod
    def text_of(value: datetime) -> str:
        """Return a timestamp as stored."""
        if value.tzinfo is None:
            raise ValueError(f"expected a timestamp with a time zone, got {value!r}; pass UTC")
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def process_result_value(self, value: str | None, dialect: Dialect) -> datetime | None:
        """Convert to a timestamp with a time zone."""
        return None if value is None else datetime.fromisoformat(value)


metadata = MetaData()
_ID = String(120)


_SEQ = BigInteger().with_variant(Integer, "sqlite")
# Conditions of indexes are named for SQLite alone; `create_schema` copies them for PostgreSQL, whose dialect takes 2 MB.
_REMEMBERED, _FORGOTTEN = text("forgotten_at IS NULL"), text("forgotten_at IS NOT NULL")


def _seq() -> Column[int]:
    return Column("seq", _SEQ, primary_key=True, autoincrement=True)


def _id() -> Column[str]:
    return Column("id", _ID, nullable=False, unique=True)


def _created_at() -> Column[datetime]:
    return Column("created_at", Moment, nullable=False)


def _removed_at() -> Column[datetime]:
    return Column("removed_at", Moment)  # if set, its files were deleted; the record is left for lineage


def _findable(name: str) -> Index:
    """Return an index for pages of runs by one column, newest first, without forgotten runs.

    The reward is in it, so that a bound on the reward is tested without reading the rows.
    """
    columns = ("seq", "reward") if name == "reward" else (name, "seq", "reward")
    return Index(f"ix_trajectories_{name}", *columns, sqlite_where=_REMEMBERED)


trajectories = Table(
    "trajectories",
    metadata,
    _seq(),
    _id(),
    Column("identity", String(64), nullable=False, unique=True),
    Column("session_id", Text),
    Column("opening", String(64)),  # hash of the steps before the agent's first, to find the session's earlier rows
    Column("job_id", Text),
    Column("agent", Text, nullable=False),
    Column("agent_label", Text, nullable=False),  # NAME@VERSION, or NAME if the version is unknown
    Column("environment", Text),
    Column("task_id", Text),
    Column("task_type", Text),
    Column("prompt", Text, nullable=False),  # prefix
    Column("outcome", String(20), nullable=False),
    Column("reward", Double),
    Column("n_steps", Integer, nullable=False),  # agent steps
    _created_at(),
    Column("updated_at", Moment, nullable=False),
    Column("personal_data", String(8), nullable=False, server_default="unknown"),
    Column("tags", Text, nullable=False, server_default="[]"),  # JSON, sorted; `trajectory_tags` is the index
    Column("forgotten_at", Moment),  # if set, only ids and hashes are left
    # Large columns are last, so that lists are read without their overflow pages.
    Column("text", Text, nullable=False, server_default=""),  # casefolded messages, calls and observations, for search
    Column("document", Text, nullable=False, server_default=""),
    Index("ix_trajectories_opening", "opening"),
    Index("ix_trajectories_session_id", "session_id"),
    Index("ix_trajectories_job_id", "job_id", "seq"),
    Index("ix_trajectories_forgotten", "forgotten_at", sqlite_where=_FORGOTTEN),
    *(_findable(name) for name in ("agent", "agent_label", "environment", "outcome", "personal_data", "reward")),
    sqlite_autoincrement=True,
)

trajectory_tags = Table(
    "trajectory_tags",
    metadata,
    Column("tag", Text, primary_key=True),
    Column("seq", _SEQ, ForeignKey("trajectories.seq", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)

scores = Table(
    "scores",
    metadata,
    _seq(),
    Column("trajectory_id", _ID, ForeignKey("trajectories.id", ondelete="CASCADE"), nullable=False),
    Column("identity", String(64), nullable=False),  # of the scored content; the trajectory can grow later
    Column("scorer", Text, nullable=False),
    Column("document", Text, nullable=False),
    _created_at(),
    Index("ix_scores_trajectory_id", "trajectory_id", "scorer", "seq"),
    sqlite_autoincrement=True,
)

preferences = Table(
    "preferences",
    metadata,
    _seq(),
    _id(),
    Column("a", _ID, ForeignKey("trajectories.id", ondelete="CASCADE"), nullable=False),
    Column("b", _ID, ForeignKey("trajectories.id", ondelete="CASCADE"), nullable=False),
    Column("source", String(20), nullable=False),
    Column("key", String(64), nullable=False, unique=True),  # hash of runs, step, source, rater and scorer
    Column("document", Text, nullable=False),
    _created_at(),
    Index("ix_preferences_a", "a"),
    Index("ix_preferences_b", "b"),
    Index("ix_preferences_source", "source", "seq"),
    sqlite_autoincrement=True,
)

judging_batches = Table(
    "judging_batches",
    metadata,
    _seq(),
    _id(),
    Column("document", Text, nullable=False),  # contains ids of runs, never their text
    _created_at(),
    sqlite_autoincrement=True,
)

calibrations = Table(
    "calibrations",
    metadata,
    _seq(),
    _id(),
    Column("scorer", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("document", Text, nullable=False),
    _created_at(),
    UniqueConstraint("scorer", "version"),
    sqlite_autoincrement=True,
)

datasets = Table(
    "datasets",
    metadata,
    _seq(),
    _id(),
    Column("name", String(100), nullable=False),
    Column("document", Text, nullable=False),
    _created_at(),
    _removed_at(),
    Index("ix_datasets_name", "name", "seq"),
    sqlite_autoincrement=True,
)

dataset_members = Table(
    "dataset_members",
    metadata,
    Column("dataset_id", _ID, ForeignKey("datasets.id", ondelete="CASCADE"), primary_key=True),
    Column("trajectory_id", _ID, ForeignKey("trajectories.id"), primary_key=True),
    Column("split", String(20)),
    Index("ix_dataset_members_trajectory_id", "trajectory_id"),
)

agents = Table(
    "agents",
    metadata,
    _seq(),
    _id(),
    Column("name", String(100), nullable=False),
    Column("version", Integer, nullable=False),
    Column("job_id", Text, unique=True),  # one agent per job, so that ingestion is idempotent
    Column("document", Text, nullable=False),
    _created_at(),
    _removed_at(),
    UniqueConstraint("name", "version"),
    sqlite_autoincrement=True,
)

evaluations = Table(
    "evaluations",
    metadata,
    _seq(),
    _id(),
    Column("agent_id", Text, nullable=False),
    Column("environment", Text, nullable=False),
    Column("document", Text, nullable=False),
    _created_at(),
    Index("ix_evaluations_agent_id", "agent_id", "seq"),
    Index("ix_evaluations_environment", "environment", "seq"),
    sqlite_autoincrement=True,
)

comparisons = Table(
    "comparisons",
    metadata,
    _seq(),
    _id(),
    Column("environment", Text, nullable=False),
    Column("document", Text, nullable=False),
    _created_at(),
    sqlite_autoincrement=True,
)

_UNFINISHED = text("status in ('queued', 'running')")

jobs = Table(
    "jobs",
    metadata,
    _seq(),
    _id(),
    Column("kind", String(40), nullable=False),
    Column("status", String(20), nullable=False),
    Column("request_key", Text, nullable=False),
    Column("spec", Text, nullable=False),  # JSON, like metrics, error, result, warnings and offsets
    Column("priority", Integer, nullable=False, default=0),
    Column("attempt", Integer, nullable=False, default=0),
    Column("max_attempts", Integer, nullable=False),
    Column("phase", Text),
    Column("step", Integer, nullable=False, default=0),
    Column("total_steps", Integer),
    Column("metrics", Text, nullable=False, default="{}"),
    Column("error", Text),
    Column("result", Text),
    Column("warnings", Text, nullable=False, default="[]"),
    Column("cancel_requested", Boolean, nullable=False, default=False),
    Column("resumed_from", Text),
    Column("offsets", Text, nullable=False, default="{}"),  # file name -> ingested bytes
    _created_at(),
    Column("started_at", Moment),
    Column("ended_at", Moment),
    Column("updated_at", Moment, nullable=False),
    Column("home", String(120)),  # id of the home with the job's folder; null in rows of earlier versions
    Column("lease_until", Moment),
    Column("name", Text),  # by a person, as `note`
    Column("note", Text),
    Index(
        "uq_jobs_request_key_unfinished",
        "request_key",
        unique=True,
        sqlite_where=_UNFINISHED,
    ),
    Index("ix_jobs_status", "status", "priority", "seq"),
    Index("ix_jobs_status_seq", "status", "seq"),
    Index("ix_jobs_kind", "kind", "seq"),
    Index("ix_jobs_kind_status", "kind", "status", "seq"),
    sqlite_autoincrement=True,
)

homes = Table(
    "homes",
    metadata,
    Column("id", String(120), primary_key=True),
    Column("token", String(32), nullable=False),
    Column("place", Text, nullable=False),
)
"""The newest claim of a folder to each home's id."""

job_events = Table(
    "job_events",
    metadata,
    Column("job_id", _ID, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("type", String(20), nullable=False),
    Column("time", Moment, nullable=False),
    Column("body", Text, nullable=False),  # JSON of the event
)

links = Table(
    "links",
    metadata,
    Column("target_kind", String(20), primary_key=True),
    Column("target_id", _ID, primary_key=True),
    Column("source_kind", String(20), primary_key=True),
    Column("source_id", _ID, primary_key=True),
    Index("ix_links_source", "source_kind", "source_id"),
)
"""Links from sources to targets. Runs of a dataset or job, and scores, have separate tables."""

imported_files = Table(
    "imported_files",
    metadata,
    Column("uri", Text, primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("mtime_ns", BigInteger, nullable=False),
    Column("format", Text),
    Column("imported_at", Moment, nullable=False),
)

forgotten_sessions = Table(
    "forgotten_sessions",
    metadata,
    Column("session_id", Text, primary_key=True),
    Column("trajectory_id", _ID, nullable=False),  # id of one of its runs
    Column("forgotten_at", Moment, nullable=False),
)
"""Sessions whose runs are rejected."""
