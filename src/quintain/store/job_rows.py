"""Jobs of complete rows, the running ones with their pace: newest report, usual gap, time left, episodes played."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, select

from quintain.errors import Conflict
from quintain.records.jobs.job import Job, JobStatus
from quintain.records.jobs.job_events import Activity, JobEvent
from quintain.records.record import STORED, unreadable
from quintain.store.database.tables import job_events, jobs

PACE_EVENTS = 40
"""Number of newest events from which the pace is estimated."""


class Pace(NamedTuple):
    """Pace of a running job. None is unknown."""

    eta_s: float | None = None
    last_progress_at: datetime | None = None
    usual_gap_s: float | None = None
    activity: Activity | None = None


JSON_COLUMNS = ("spec", "metrics", "error", "result", "warnings")

UNKNOWN_PACE = Pace()

_COLUMNS = tuple(column.name for column in jobs.c if column.name in Job.model_fields)


def read_jobs(connection: Connection, rows: Sequence[Row[Any]]) -> list[Job]:
    """Build jobs from complete rows, the running ones with their pace.

    Raises:
        Conflict: This version cannot read one (`record_unreadable`).
    """
    return [read_job(connection, row) for row in rows]


def read_job(connection: Connection, row: Row[Any]) -> Job:
    """Build a job from a complete row, a running one with its pace."""
    return job_of_row(row, _pace(connection, row) if row.status == JobStatus.RUNNING else UNKNOWN_PACE)


def find_job(connection: Connection, job_id: str) -> Job | None:
    """Return the job without its pace, or None."""
    row = connection.execute(select(jobs).where(jobs.c.id == job_id)).first()
    return None if row is None else job_of_row(row)


def job_of_row(row: Row[Any], pace: Pace = UNKNOWN_PACE) -> Job:
    """Build a job from a complete row."""
    columns = row._mapping
    values = {name: columns[name] for name in _COLUMNS}
    try:
        values |= {name: json.loads(values[name]) for name in JSON_COLUMNS if values[name] is not None}
        return Job.model_validate(values | pace._asdict(), context=STORED)
    except ValueError as error:
        raise unreadable(columns["id"], error) from error


def is_readable(row: Row[Any]) -> bool:
    """Whether this version can read a job's row."""
    with suppress(Conflict):
        job_of_row(row)
        return True
    return False


def _pace(connection: Connection, row: Row[Any]) -> Pace:
    """Return the pace of a running job. Without a report, the attempt's begin is the newest."""
    mine = job_events.c.job_id == row.id, job_events.c.attempt == row.attempt
    newest = select(job_events.c.body).where(*mine).order_by(job_events.c.seq.desc()).limit(PACE_EVENTS)
    events = [JobEvent.from_stored(body) for body in connection.scalars(newest)]
    pace = pace_of(events[::-1], row.kind)
    return pace if events else pace._replace(last_progress_at=row.updated_at)


def pace_of(events: Sequence[JobEvent], kind: str) -> Pace:
    """Return the pace of an attempt from its newest events in order.

    Where a job only plays episodes, by its kind, their turns give the time left: its steps come in bursts, a batch of
    episodes at a time.
    """
    if not events:
        return Pace()
    newest = events[-1]
    activity = newest.activity if newest.type == "activity" else None
    if kind in {"rollout", "evaluate"}:
        turns = next((event.activity for event in reversed(events) if event.activity is not None), None)
        eta_s = None if turns is None else turns.left_s
    else:
        eta_s = _eta_s(events)
    return Pace(eta_s, newest.time, _usual_gap_s(events), activity)


def _eta_s(events: Sequence[JobEvent]) -> float | None:
    """Return the seconds left at the rate of the newest steps, or None if unknown."""
    steps = [event for event in events if event.type == "progress"]
    if len(steps) < 2:
        return None
    first, last = steps[0], steps[-1]
    if last.step is None or first.step is None or last.total_steps is None or last.step <= first.step:
        return None
    seconds_a_step = (last.time - first.time).total_seconds() / (last.step - first.step)
    if seconds_a_step < 0:  # the clock was set back meanwhile
        return None
    return round(max(0.0, (last.total_steps - last.step) * seconds_a_step), 1)


def _usual_gap_s(events: Sequence[JobEvent]) -> float | None:
    """Return the usual seconds between reports in the current phase, or None if unknown.

    It is the median weighted by time: half of the past time lies in gaps up to this long. Reports that come in bursts,
    such as those of a batch of episodes, have a median of zero, while the time lies in the gaps between the bursts.
    """
    phase: str | None = None
    by_phase: dict[str | None, list[float]] = {}
    for event, following in pairwise(events):
        phase = event.name if event.type == "phase" else phase
        if following.type in {"progress", "activity"}:
            by_phase.setdefault(phase, []).append((following.time - event.time).total_seconds())
    phase = events[-1].name if events[-1].type == "phase" else phase
    gaps = sorted(max(gap, 0.0) for gap in by_phase.get(phase, ()))
    if len(gaps) < 2 or not (total := sum(gaps)):
        return None
    passed = 0.0
    for gap in gaps:
        passed += gap
        if 2 * passed >= total:
            return gap
    return None
