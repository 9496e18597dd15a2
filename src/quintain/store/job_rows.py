"""Jobs of complete rows, the running ones with their pace."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, select

from quintain.records.job import Job, JobStatus
from quintain.records.job_events import JobEvent
from quintain.store.job_pace import PACE_EVENTS, Pace, pace_of
from quintain.store.tables import job_events, jobs

JSON_COLUMNS = ("spec", "metrics", "error", "result", "warnings")

UNKNOWN_PACE = Pace()

_COLUMNS = tuple(column.name for column in jobs.c if column.name in Job.model_fields)


def read_jobs(connection: Connection, rows: Sequence[Row[Any]]) -> list[Job]:
    """Build jobs from complete rows, the running ones with their pace."""
    return [
        job_of_row(row, _pace(connection, row) if row.status == JobStatus.RUNNING else UNKNOWN_PACE) for row in rows
    ]


def find_job(connection: Connection, job_id: str) -> Job | None:
    """Return the job without its pace, or None."""
    row = connection.execute(select(jobs).where(jobs.c.id == job_id)).first()
    return None if row is None else job_of_row(row)


def job_of_row(row: Row[Any], pace: Pace = UNKNOWN_PACE) -> Job:
    """Build a job from a complete row."""
    columns = row._mapping
    values = {name: columns[name] for name in _COLUMNS}
    values |= {name: json.loads(values[name]) for name in JSON_COLUMNS if values[name] is not None}
    return Job.model_validate(values | pace._asdict())


def _pace(connection: Connection, row: Row[Any]) -> Pace:
    """Return the pace of a running job. Without a report, the attempt's begin is the newest."""
    mine = job_events.c.job_id == row.id, job_events.c.attempt == row.attempt
    newest = select(job_events.c.body).where(*mine).order_by(job_events.c.seq.desc()).limit(PACE_EVENTS)
    events = [JobEvent.model_validate_json(body) for body in connection.scalars(newest)]
    pace = pace_of(events[::-1], row.kind)
    return pace if events else pace._replace(last_progress_at=row.updated_at)
