"""Reports of acting: turns once a second, and episodes that ended in errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from quintain.errors import Unavailable
from quintain.evaluation.turn_counts import TurnCount
from quintain.records.agent import Sampling
from quintain.records.jobs.job import EvaluateSpec, RolloutSpec
from quintain.records.jobs.job_events import Activity
from quintain.worker.job_kinds import rollouts
from quintain.worker.rollouts.acting_reports import TurnReports
from worker.ending_environment import Ending
from worker.job_folder import STARTER, Stopping, events, warnings

SHORT = Sampling(max_new_tokens=8)


@pytest.fixture(autouse=True)
def _sources(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = {"test/closed": Ending(*["no key"] * 4), "test/half-open": Ending(1.0, 1.0, 1.0, "no key")}
    monkeypatch.setattr(rollouts, "open_source", sources.__getitem__)


def spec(environment: str, kind: type[EvaluateSpec | RolloutSpec] = EvaluateSpec) -> EvaluateSpec | RolloutSpec:
    return kind(agent=STARTER, environment=environment, split="held_out", n_tasks=4, sampling=SHORT)


@pytest.mark.parametrize("kind", [EvaluateSpec, RolloutSpec])
def test_a_job_whose_episodes_all_end_in_errors_fails_with_the_cause(
    tmp_path: Path, kind: type[EvaluateSpec | RolloutSpec]
) -> None:
    with pytest.raises(Unavailable, match=r"all 4 \(environment_error 4, first: RuntimeError: no key\)") as error:
        rollouts.run(spec("test/closed", kind), tmp_path, Stopping(tmp_path))
    assert error.value.code == "episodes_failed"
    assert not (tmp_path / "outputs" / "evaluation.jsonl").exists()


def test_errors_of_some_episodes_are_a_warning_and_the_report_has_kinds_and_failures(tmp_path: Path) -> None:
    twice = spec("test/half-open").model_copy(update={"repeats": 2})
    result = rollouts.run(twice, tmp_path, Stopping(tmp_path))
    assert (result.n, result.n_error, result.n_unknown, result.success_rate) == (6, 2, 0, 1.0)
    # Clopper-Pearson for 3 tasks, each with two equal episodes: 0.025 ** (1 / 3) to 1.
    rate = result.report["rate"]
    assert (rate["n"], round(rate["ci_low"], 4), rate["ci_high"]) == (6, 0.2924, 1.0)
    ((code, message),) = warnings(tmp_path)
    assert code == "episodes_failed"
    assert message.startswith("2 of 8 episodes in test/half-open ended in errors")
    assert "(environment_error 2, first: RuntimeError: no key)" in message
    types = {name: (rate["successes"], rate["n"]) for name, rate in result.report["by_type"].items()}
    assert types == {"door": (4, 4), "gate": (2, 2)}
    assert result.report["failures"]["environment_error"]["n"] == 2
    assert {"metrics", "forbidden", "by_environment"}.isdisjoint(result.report), "nothing is said of what was not asked"
    assert [(one["k"], one["value"], one["n"]) for one in result.report["pass_at_k"]] == [(1, 1.0, 3), (2, 1.0, 3)]
    steps = [event for event in events(tmp_path) if event.type == "progress"]
    assert [event.metrics for event in steps] == [{}] * 8, "a running mean is no curve"
    assert steps[-1].totals == {"success_rate": 1.0, "mean_turns": 0.0, "errors": 2.0, "unknown": 0.0}


def test_a_count_that_does_not_grow_is_no_progress(tmp_path: Path) -> None:
    times = iter(range(9))
    report = TurnReports(Stopping(tmp_path), clock=lambda: float(next(times)))
    for turns in (0, 3, 3, 3, 4, 4):
        report(TurnCount(0, 5, turns, 20.0))
    activities = [event.activity for event in events(tmp_path) if event.type == "activity"]
    assert [activity.turns for activity in activities if activity is not None] == [0, 3, 4]


def test_turns_are_reported_at_the_start_and_once_a_second_with_the_time_left(tmp_path: Path) -> None:
    """4 turns of 20 expected after 2 s: 0.5 s a turn, 16 left. With as many episodes after: 36 turns, 18 s.

    Within the first turns, the time left is unknown.
    """
    times = iter([0.0, 0.1, 0.5, 2.0, 2.5, 0.0, 2.0, 0.0, 4.0])
    plain = TurnReports(Stopping(tmp_path), before=1, clock=lambda: next(times))
    for turns in (0, 1, 4, 5):
        plain(TurnCount(0, 5, turns, 20.0, tokens=30 * turns))
    TurnReports(Stopping(tmp_path), after=5, clock=lambda: next(times))(TurnCount(2, 5, 4, 20.0))
    TurnReports(Stopping(tmp_path), clock=lambda: next(times))(TurnCount(0, 5, 0, 20.0, running=4, share=0.25))
    assert [event.activity for event in events(tmp_path) if event.type == "activity"] == [
        Activity(episodes=1, planned=6, turns=0, expected_turns=20),
        Activity(episodes=1, planned=6, turns=4, expected_turns=20, tokens=120, left_s=8.0),
        Activity(episodes=2, planned=10, turns=4, expected_turns=40, left_s=18.0),
        Activity(episodes=0, planned=5, turns=0, expected_turns=20, current_turn=0.25),
    ]
