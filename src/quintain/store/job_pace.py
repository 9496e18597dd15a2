"""Pace of a running job, from the events of its current attempt: newest report, usual gap, time left, episodes played."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from quintain.records.job_events import Activity, JobEvent

PACE_EVENTS = 40
"""Number of newest events from which the pace is estimated."""


class Pace(NamedTuple):
    """Pace of a running job. None is unknown."""

    eta_s: float | None = None
    last_progress_at: datetime | None = None
    usual_gap_s: float | None = None
    activity: Activity | None = None


def pace_of(events: Sequence[JobEvent], kind: str) -> Pace:
    """Return the pace of an attempt.

    Args:
        events: The newest events in order.
        kind: Kind of the job. Where a job only plays episodes, their turns give the time left.
    """
    if not events:
        return Pace()
    newest = events[-1]
    activity = newest.activity if newest.type == "activity" else None
    eta_s = activity.left_s if activity is not None and kind in {"rollout", "evaluate"} else _eta_s(events)
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
