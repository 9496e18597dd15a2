"""The pace of a running job, by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from quintain.records.jobs.job_events import Activity, JobEvent
from quintain.store.job_rows import pace_of

MOMENT = datetime(2026, 1, 2, tzinfo=UTC)


def at(*events: tuple[float, str, dict[str, Any]]) -> list[JobEvent]:
    """Events at these seconds."""
    return [
        JobEvent(attempt=1, seq=n, time=MOMENT + timedelta(seconds=s), type=kind, **fields)  # type: ignore[arg-type]
        for n, (s, kind, fields) in enumerate(events)
    ]


def step(s: float, n: int) -> tuple[float, str, dict[str, Any]]:
    return s, "progress", {"step": n, "total_steps": 100}


def phase(s: float, name: str) -> tuple[float, str, dict[str, Any]]:
    return s, "phase", {"name": name}


def test_the_usual_gap_is_that_of_steady_steps_and_of_the_pause_between_bursts() -> None:
    steady = pace_of(at(phase(0, "training"), *(step(2.0 * n, n) for n in range(1, 9))), "train")
    assert steady.usual_gap_s == 2.0
    assert steady.last_progress_at == MOMENT + timedelta(seconds=16)
    bursts = [step(60.0 * (n // 4), n) for n in range(12)]
    assert pace_of(at(*bursts), "evaluate").usual_gap_s == 60.0, "four at 0, four at 60 s, four at 120 s"


def test_a_phase_is_compared_with_itself_alone() -> None:
    acting = [phase(0, "acting"), (30, "activity", {}), (60, "activity", {})]
    training = [phase(61, "training"), step(63, 1), step(65, 2)]
    assert pace_of(at(*acting, *training), "train").usual_gap_s == 2.0
    assert pace_of(at(*acting, *training, phase(66, "acting")), "train").usual_gap_s == 30.0
    assert pace_of(at(*acting, *training, phase(66, "saving")), "train").usual_gap_s is None


@pytest.mark.parametrize(("kind", "eta_s"), [("evaluate", 42.0), ("train", 194.0)])
def test_the_time_left_of_an_evaluation_follows_its_turns_and_of_a_training_its_steps(kind: str, eta_s: float) -> None:
    """Steps 1 and 3 at 2 and 6 s: 2 s a step, 97 left."""
    turns = Activity(episodes=3, planned=100, turns=9, expected_turns=300, left_s=42.0)
    pace = pace_of(at(step(2, 1), step(6, 3), (7, "activity", {"activity": turns})), kind)
    assert (pace.eta_s, pace.activity) == (eta_s, turns)
    assert pace_of([], kind) == (None, None, None, None)
