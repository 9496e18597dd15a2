"""Stored jobs and their events. Every state transition is guarded by the job's state and attempt."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Engine, Row, func, or_, select, true, tuple_, update

from quintain.errors import Conflict
from quintain.records.filters import Page
from quintain.records.jobs.job import UNFINISHED, Job, JobError, JobResult, JobStatus
from quintain.records.jobs.job_events import JobEvent
from quintain.store.database.documents import not_found_error, rows_with
from quintain.store.database.engine import insert_missing, read_transaction, write_transaction
from quintain.store.database.paging import fetch_rows, readable_page
from quintain.store.database.tables import job_events, jobs
from quintain.store.job_rows import JSON_COLUMNS, is_readable, job_of_row, read_job, read_jobs
from quintain.store.job_spans import Lease, Span, row_changes, store_spans
from quintain.store.lineage.links import add_links, job_links

_UNFINISHED = jobs.c.status.in_(sorted(UNFINISHED))
_MOST_SHOWN = 1000

LIGHT_AT_ONCE = 64
"""Jobs without a slot that run at once in a home."""

MOST_QUEUED = 10_000
"""Queued jobs of a home from which on it takes no more."""


class InsertedJob(NamedTuple):
    """A job, and whether it existed before."""

    job: Job
    deduplicated: bool


class SlotLimit(NamedTuple):
    """Most jobs that may run at once; those of light kinds have a limit of their own."""

    slots: int
    light_kinds: frozenset[str]


class JobState(NamedTuple):
    """State of a job, which every change of its row changes."""

    status: str
    updated_at: datetime
    offsets: str
    """JSON of the offsets up to which its files were ingested."""


class RunningJob(NamedTuple):
    """Fields of a running job that reconciliation reads in each pass."""

    id: str
    home: str | None
    attempt: int
    cancel_requested: bool
    lease_until: datetime | None
    offsets: dict[str, int]
    """File name -> number of its bytes that were ingested."""


class Jobs:
    """Tables of jobs and job events."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def insert(self, job: Job) -> InsertedJob:
        """Insert a job, or return the unfinished one with the same request key.

        Raises:
            Conflict: The home has `MOST_QUEUED` queued jobs (`queue_full`).
        """
        row = {name: value for name, value in job.model_dump(mode="json").items() if name in jobs.c}
        row |= {name: json.dumps(row[name]) for name in JSON_COLUMNS if row[name] is not None}
        row |= {name: getattr(job, name) for name in ("created_at", "started_at", "ended_at", "updated_at")}
        with write_transaction(self._engine) as connection:
            created = insert_missing(connection, jobs, [row])
            if created:
                _require_room(connection, job.home)
                add_links(connection, job_links(connection, job))
            same = jobs.c.request_key == job.request_key, _UNFINISHED
            found = connection.execute(select(jobs).where(*same)).all()
            return InsertedJob(read_jobs(connection, found)[0], not created)

    def get(self, job_id: str) -> Job:
        """Return the job with this id.

        Raises:
            NotFound: The id does not exist. The message lists the newest ids.
        """
        with read_transaction(self._engine) as connection:
            return self._get(connection, job_id)

    def page(
        self, *, status: JobStatus | None = None, kind: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[Job]:
        """Return one page of jobs, newest first, without their pace."""
        statement = select(jobs)
        if status is not None:
            statement = statement.where(jobs.c.status == status)
        if kind is not None:
            statement = statement.where(jobs.c.kind == kind)
        with read_transaction(self._engine) as connection:
            rows, following = fetch_rows(connection, statement, jobs, limit=limit, cursor=cursor)
        return readable_page(rows, job_of_row, following)

    def unfinished(self) -> list[Job]:
        """Return queued and running jobs, oldest first."""
        with read_transaction(self._engine) as connection:
            return read_jobs(connection, connection.execute(select(jobs).where(_UNFINISHED).order_by(jobs.c.seq)).all())

    def states(self, job_ids: Iterable[str] | None = None) -> dict[str, JobState]:
        """Return job -> state, of these jobs; of none named: of the running jobs and the newest queued ones."""
        rows = select(jobs.c.id, *(jobs.c[name] for name in JobState._fields))
        queued = rows.where(jobs.c.status == JobStatus.QUEUED).order_by(jobs.c.seq.desc()).limit(_MOST_SHOWN)
        with read_transaction(self._engine) as connection:
            if job_ids is None:
                running = connection.execute(rows.where(jobs.c.status == JobStatus.RUNNING)).all()
                found = [*running, *connection.execute(queued)]
            else:
                found = list(rows_with(connection, rows, jobs.c.id, job_ids))
        return {row.id: JobState(*row[1:]) for row in found}

    def get_many(self, job_ids: Iterable[str]) -> list[Job]:
        """Return these jobs, oldest first. Unknown ids, and jobs that this version cannot read, are left out."""
        with read_transaction(self._engine) as connection:
            rows = sorted(rows_with(connection, select(jobs), jobs.c.id, job_ids), key=lambda row: row.seq)
            return list(readable_page(rows, partial(read_job, connection), None).items)

    def running(self, home: str | None = None) -> list[RunningJob]:
        """Return the running jobs of a home, or of all, oldest first, without their specs."""
        columns = (jobs.c[name] for name in RunningJob._fields)
        running = select(*columns).where(jobs.c.status == JobStatus.RUNNING, _in_home(home)).order_by(jobs.c.seq)
        with read_transaction(self._engine) as connection:
            rows = connection.execute(running).all()
        return [RunningJob(**{**row._mapping, "offsets": json.loads(row.offsets)}) for row in rows]

    def has_unfinished(self, home: str | None = None) -> bool:
        """Whether a home, or any, has a queued or running job."""
        with read_transaction(self._engine) as connection:
            return (
                connection.execute(select(jobs.c.seq).where(_UNFINISHED, _in_home(home)).limit(1)).first() is not None
            )

    def startable(self, slots: int, light_kinds: frozenset[str], home: str | None = None) -> list[Job]:
        """Return queued jobs of a home, or of all, that may start now, by descending priority, then oldest first.

        At most `slots` jobs run at once, and `LIGHT_AT_ONCE` of light kinds. A job that this version cannot read does not hold up
        others.
        """
        heavy = jobs.c.kind.not_in(sorted(light_kinds))
        order = jobs.c.priority.desc(), jobs.c.seq
        queued = select(jobs).where(jobs.c.status == JobStatus.QUEUED, _in_home(home)).order_by(*order)
        rows: list[Row[Any]] = []
        with read_transaction(self._engine) as connection:
            for group, most in ((~heavy, LIGHT_AT_ONCE), (heavy, slots)):
                free = most - _running(connection, group, home)
                with connection.execute(queued.where(group), execution_options={"yield_per": 50}) as found:
                    rows += islice(filter(is_readable, found), max(0, free))
            return read_jobs(connection, rows)

    def queue(self, light_kinds: frozenset[str], home: str | None = None) -> tuple[list[Job], list[str]]:
        """Return the running jobs that need a slot, without their pace, and the ids of the queued ones in the order of their starts."""
        needs_slot = jobs.c.kind.not_in(sorted(light_kinds)), _in_home(home)
        running = select(jobs).where(jobs.c.status == JobStatus.RUNNING, *needs_slot).order_by(jobs.c.seq)
        queued = select(jobs.c.id).where(jobs.c.status == JobStatus.QUEUED, *needs_slot)
        with read_transaction(self._engine) as connection:
            ids = connection.scalars(queued.order_by(jobs.c.priority.desc(), jobs.c.seq)).all()
            return list(readable_page(connection.execute(running), job_of_row, None).items), list(ids)

    def events(self, job_id: str, *, type: str | None = None, after: tuple[int, int] | None = None) -> list[JobEvent]:
        """Return all events of a job in order, or those after the event of an attempt and its `seq`.

        A step that a later attempt repeated is there once, as of that attempt.
        """
        statement = select(job_events.c.body).where(job_events.c.job_id == job_id)
        if after is not None:
            statement = statement.where(tuple_(job_events.c.attempt, job_events.c.seq) > tuple_(*after))
        if type is not None:
            statement = statement.where(job_events.c.type == type)
        with read_transaction(self._engine) as connection:
            bodies = connection.scalars(statement.order_by(job_events.c.attempt, job_events.c.seq)).all()
        return [JobEvent.from_stored(body) for body in bodies]

    def progress(self, job_id: str) -> list[JobEvent]:
        """Return one progress event per step in step order, each from the newest attempt that reported the step."""
        newest = {
            event.step: event for event in self.events(job_id, type="progress")
        }  # rows of earlier versions repeat
        return [newest[step] for step in sorted(step for step in newest if step is not None)]

    def begin_attempt(
        self,
        job_id: str,
        before: int,
        attempt: int,
        now: datetime,
        *,
        home: str | None = None,
        lease_until: datetime | None = None,
        slots: SlotLimit | None = None,
        note: str | None = None,
        max_attempts: int | None = None,
        is_new: bool = False,
    ) -> bool:
        """Move an unfinished job from attempt `before`, which the caller has read, to running `attempt`.

        Return False if it has moved on, or is queued and no slot is free.

        Args:
            job_id: The job.
            before: The attempt that the caller has read.
            attempt: The attempt that begins.
            now: Time of the beginning.
            home: Home that starts it, for rows of earlier versions, which have none.
            lease_until: End of the attempt's first lease.
            slots: Limit for a queued job, also against starts that this process has not seen. None: no limit.
            note: A warning for the job's row.
            max_attempts: Attempts that the job may have. None: unchanged.
            is_new: Whether its folder is new, with nothing ingested, as after the one before was deleted.
        """
        changes = {"status": JobStatus.RUNNING, "attempt": attempt, "error": None, "updated_at": now}
        given = {"home": home, "max_attempts": max_attempts, "offsets": "{}" if is_new else None}
        changes |= {"lease_until": lease_until} | {name: value for name, value in given.items() if value is not None}
        with write_transaction(self._engine) as connection:
            if slots is not None and not _has_slot(connection, job_id, slots, home):
                return False
            if note is not None:
                row = connection.execute(select(jobs).where(jobs.c.id == job_id)).one()
                changes |= row_changes(row, (), [note])
            started = self._transition(connection, job_id, before, UNFINISHED, changes)
            if started:
                first = jobs.c.id == job_id, jobs.c.started_at.is_(None)
                connection.execute(update(jobs).where(*first).values(started_at=now))
            return started

    def put_back(self, job_id: str, attempt: int, before: int, now: datetime, warning: str) -> bool:
        """Queue a job again, in attempt `before`, whose attempt could not begin. Return False if it has moved on."""
        with write_transaction(self._engine) as connection:
            row = connection.execute(select(jobs).where(jobs.c.id == job_id)).one()
            changes = row_changes(row, (), [warning])
            changes |= {"status": JobStatus.QUEUED, "attempt": before, "lease_until": None, "updated_at": now}
            return self._transition(connection, job_id, attempt, {JobStatus.RUNNING}, changes)

    def finish(
        self,
        job_id: str,
        attempt: int,
        status: JobStatus,
        now: datetime,
        *,
        error: JobError | None = None,
        result: JobResult | None = None,
    ) -> bool:
        """Finish an unfinished job that is in this attempt. Return False if it has moved on."""
        changes = {
            "status": status,
            "error": error and error.model_dump_json(),
            "result": result and result.model_dump_json(),
            "ended_at": now,
            "updated_at": now,
        }
        with write_transaction(self._engine) as connection:
            return self._transition(connection, job_id, attempt, UNFINISHED, changes)

    def request_cancel(self, job_id: str, now: datetime) -> Job:
        """Request cancellation of a running job. A queued or interrupted job is cancelled at once, others are unchanged."""
        idle = {JobStatus.QUEUED, JobStatus.INTERRUPTED}
        ended = {"status": JobStatus.CANCELLED, "cancel_requested": True, "ended_at": now, "updated_at": now}
        with write_transaction(self._engine) as connection:
            job = self._get(connection, job_id)
            if not self._transition(connection, job_id, job.attempt, idle, ended) and not job.cancel_requested:
                requested = {"cancel_requested": True, "updated_at": now}
                self._transition(connection, job_id, job.attempt, {JobStatus.RUNNING}, requested)
            return self._get(connection, job_id)

    def put_first(self, job_id: str, now: datetime) -> Job:
        """Let a queued job start before the others that wait.

        Raises:
            Conflict: It is not queued.
        """
        with write_transaction(self._engine) as connection:
            job = self._get(connection, job_id)
            highest = connection.scalar(select(func.max(jobs.c.priority)).where(jobs.c.status == JobStatus.QUEUED)) or 0
            changes = {"priority": highest + 1, "updated_at": now}
            if not self._transition(connection, job_id, job.attempt, {JobStatus.QUEUED}, changes):
                raise Conflict(f"expected a queued job, got {job_id}, which is {job.status}; name a job that waits")
            return self._get(connection, job_id)

    def annotate(self, job_id: str, changes: Mapping[str, str | None], now: datetime) -> Job:
        """Set the `name` or the `note` of a job, or both."""
        with write_transaction(self._engine) as connection:
            self._get(connection, job_id)
            connection.execute(update(jobs).where(jobs.c.id == job_id).values(**changes, updated_at=now))
            return self._get(connection, job_id)

    def requeue(self, job_id: str, now: datetime) -> Job:
        """Give an interrupted job one more attempt.

        Raises:
            Conflict: The job is not interrupted, or an unfinished job has the same request key.
        """
        with write_transaction(self._engine) as connection:
            job = self._get(connection, job_id)
            same = jobs.c.request_key == job.request_key, jobs.c.id != job_id, _UNFINISHED
            if twin := connection.scalar(select(jobs.c.id).where(*same)):
                raise Conflict(
                    f"expected no unfinished job with the same work as {job_id}, got {twin}; wait for it or cancel it"
                )
            changes = {
                "status": JobStatus.QUEUED,
                "max_attempts": max(job.max_attempts, job.attempt + 1),
                "error": None,
                "ended_at": None,
                "updated_at": now,
            }
            if not self._transition(connection, job_id, job.attempt, {JobStatus.INTERRUPTED}, changes):
                raise Conflict(f"expected an interrupted job, got {job_id}, which is {job.status}; start a new job")
            return self._get(connection, job_id)

    def offsets(self, job_id: str) -> dict[str, int]:
        """Return file name -> number of its bytes that were ingested."""
        with read_transaction(self._engine) as connection:
            stored = connection.scalar(select(jobs.c.offsets).where(jobs.c.id == job_id))
        return dict(json.loads(stored or "{}"))

    def ingest_spans(self, spans: Sequence[Span], now: datetime, leases: Sequence[Lease] = ()) -> set[str]:
        """Ingest spans as `store_spans` and extend leases in one transaction. Return the ids whose spans were stored."""
        with write_transaction(self._engine) as connection:
            for job_id, attempt, until in leases:
                self._transition(connection, job_id, attempt, {JobStatus.RUNNING}, {"lease_until": until})
            return store_spans(connection, spans, now)

    def _transition(
        self,
        connection: Connection,
        job_id: str,
        attempt: int,
        states: frozenset[JobStatus] | set[JobStatus],
        changes: Mapping[str, Any],
    ) -> bool:
        """Apply changes only in these states and this attempt. Return whether they were applied."""
        guard = jobs.c.id == job_id, jobs.c.attempt == attempt, jobs.c.status.in_(sorted(states))
        return connection.execute(update(jobs).where(*guard).values(dict(changes))).rowcount == 1

    def _get(self, connection: Connection, job_id: str) -> Job:
        row = connection.execute(select(jobs).where(jobs.c.id == job_id)).first()
        if row is None:
            raise not_found_error(connection, jobs, [job_id], "job")
        return read_jobs(connection, [row])[0]


def _has_slot(connection: Connection, job_id: str, limit: SlotLimit, home: str | None) -> bool:
    """Whether a job runs already, or one more of its kinds may run."""
    kind = connection.scalar(select(jobs.c.kind).where(jobs.c.id == job_id, jobs.c.status == JobStatus.QUEUED))
    heavy = jobs.c.kind.not_in(sorted(limit.light_kinds))
    group, most = (~heavy, LIGHT_AT_ONCE) if kind in limit.light_kinds else (heavy, limit.slots)
    return kind is None or _running(connection, group, home) < most


def _require_room(connection: Connection, home: str | None) -> None:
    queued = select(jobs.c.seq).where(jobs.c.status == JobStatus.QUEUED, _in_home(home)).offset(MOST_QUEUED).limit(1)
    if connection.execute(queued).first() is not None:
        raise Conflict(
            f"expected at most {MOST_QUEUED:,} queued jobs, got one more; wait until some have run, or cancel those that nobody needs",
            code="queue_full",
        )


def _running(connection: Connection, group: ColumnElement[bool], home: str | None) -> int:
    """Return the number of running jobs of a group of kinds."""
    running = select(func.count()).where(jobs.c.status == JobStatus.RUNNING, group, _in_home(home))
    return connection.scalar(running) or 0


def _in_home(home: str | None) -> ColumnElement[bool]:
    """Restrict jobs to a home. Rows of earlier versions, without one, belong to every home."""
    return true() if home is None else or_(jobs.c.home == home, jobs.c.home.is_(None))
