"""Rows of job events: each event once, and each step of a job once, as its newest attempt reported it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, delete, select

from quintain.records.job_events import JobEvent
from quintain.store.engine import insert_missing
from quintain.store.tables import job_events


def add_events(connection: Connection, events_of: Mapping[str, Sequence[JobEvent]]) -> None:
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
        if (JobEvent.model_validate_json(row.body).step or 0) < step:
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
