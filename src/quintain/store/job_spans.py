"""Ingested parts of job files: their events, the changes of the jobs' rows, and the new offsets, in one transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, bindparam, delete, select, update

from quintain.records.jobs.job_events import JobEvent
from quintain.store.database.documents import rows_with
from quintain.store.database.engine import insert_missing
from quintain.store.database.tables import job_events, jobs

_FIRST_WARNINGS, _NEWEST_WARNINGS = 25, 24
"""Warnings kept on a job's row. Its log and its events contain all of its worker's."""

_LEFT_OUT = f"more_warnings: between the first {_FIRST_WARNINGS} and the newest {_NEWEST_WARNINGS} some are left out; see the log"


class Span(NamedTuple):
    """A part of a job's file with its content."""

    job_id: str
    file: str
    """Its name in the job's directory."""
    start: int
    """Offset of the first byte."""
    end: int
    """Offset after the last byte."""
    events: Sequence[JobEvent] = ()
    warnings: Sequence[str] = ()
    """Further warnings for the job's row."""


class Lease(NamedTuple):
    """The time until which a running attempt counts as alive."""

    job_id: str
    attempt: int
    until: datetime


def store_spans(connection: Connection, spans: Sequence[Span], now: datetime) -> set[str]:
    """Store the events of spans, one of each file, and advance the offsets.

    The spans of a job are stored together, and left out if one does not begin at the offset ingested so far. Events known by
    (attempt, seq) are skipped.

    Returns:
        Ids of the jobs whose spans were stored.
    """
    by_job: dict[str, list[Span]] = {}
    for span in spans:
        by_job.setdefault(span.job_id, []).append(span)
    events: dict[str, list[JobEvent]] = {}
    changes = []
    for row in list(rows_with(connection, select(jobs), jobs.c.id, by_job)):
        own, offsets = by_job[row.id], json.loads(row.offsets)
        if any(offsets.get(span.file, 0) != span.start for span in own):
            continue
        events[row.id] = [event for span in own for event in span.events]
        warnings = [warning for span in own for warning in span.warnings]
        kept = {"phase": row.phase, "step": row.step, "total_steps": row.total_steps}
        changed = kept | row_changes(row, events[row.id], warnings)
        offsets |= {span.file: span.end for span in own}
        changes.append(changed | {"offsets": json.dumps(offsets), "updated_at": now, "key": row.id})
    if changes:
        _add_events(connection, events)
        values: dict[str, Any] = {name: bindparam(name) for name in changes[0] if name != "key"}
        connection.execute(update(jobs).where(jobs.c.id == bindparam("key")).values(values), changes)
    return set(events)


def row_changes(row: Row[Any], events: Sequence[JobEvent], warnings: Sequence[str]) -> dict[str, Any]:
    """Return the changes to a job's row after these events: phase, step, newest metrics, warnings."""
    changes: dict[str, Any] = {}
    metrics: dict[str, float | None] = json.loads(row.metrics)
    kept: list[str] = json.loads(row.warnings)
    new_warnings = list(warnings)
    for event in events:
        if event.type == "phase":
            changes["phase"] = event.name
        elif event.type == "progress":
            changes |= {"step": event.step, "total_steps": event.total_steps}
            metrics |= (event.metrics or {}) | (event.totals or {})
        elif event.type == "warning":
            new_warnings.append(f"{event.code}: {event.message}")
    kept = list(dict.fromkeys(kept + new_warnings))
    if len(kept) > _FIRST_WARNINGS + 1 + _NEWEST_WARNINGS:
        kept = [*kept[:_FIRST_WARNINGS], _LEFT_OUT, *kept[-_NEWEST_WARNINGS:]]
    return changes | {"metrics": json.dumps(metrics), "warnings": json.dumps(kept)}


def _add_events(connection: Connection, events_of: Mapping[str, Sequence[JobEvent]]) -> None:
    """Store the events of jobs in their order. Those already known by (attempt, seq) are skipped."""
    rows: list[dict[str, Any]] = []
    for job_id, events in events_of.items():
        for attempt, batch in groupby(events, key=lambda event: event.attempt):
            new = list(batch)
            steps = [event.step for event in new if event.type == "progress" and event.step is not None]
            if steps and attempt > 1:
                insert_missing(connection, job_events, rows)  # earlier attempts first
                rows = []
                _delete_repeated(connection, job_id, attempt, steps[0])
            rows += [_row(job_id, event) for event in new]
    insert_missing(connection, job_events, rows)


def _delete_repeated(connection: Connection, job_id: str, attempt: int, step: int) -> None:
    """Delete the steps of earlier attempts from `step` on, if it is the first of this attempt."""
    steps = job_events.c.job_id == job_id, job_events.c.type == "progress"
    if connection.execute(select(job_events.c.seq).where(*steps, job_events.c.attempt == attempt).limit(1)).first():
        return
    newest_first = job_events.c.attempt.desc(), job_events.c.seq.desc()
    earlier = select(job_events).where(*steps, job_events.c.attempt < attempt).order_by(*newest_first)
    for row in connection.execute(earlier).all():
        if (JobEvent.from_stored(row.body).step or 0) < step:
            return
        key = job_events.c.attempt == row.attempt, job_events.c.seq == row.seq
        connection.execute(delete(job_events).where(*steps, *key))


def _row(job_id: str, event: JobEvent) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "attempt": event.attempt,
        "seq": event.seq,
        "type": event.type,
        "time": event.time,
        "body": event.model_dump_json(exclude_none=True),
    }
