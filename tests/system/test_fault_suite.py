"""A few trials of `make faults`, small: each has to report figures, and to reach every goal."""

from __future__ import annotations

import json

import pytest
from benchmarks.faults import files, jobs, machine, store, tested_goals
from benchmarks.faults.home import fault_home
from benchmarks.faults.parts import PARTS
from benchmarks.faults.safeties import TRIALS
from benchmarks.faults.tested_goals import GOALS, ROOT
from benchmarks.figures import is_met, not_run, reported, summarize

from quintain.records.jobs.job import SelftestSpec


@pytest.fixture(autouse=True)
def _figures_of_this_test() -> None:
    reported.clear()


def require_goals() -> None:
    assert any(figure["goal"] is not None for figure in reported)
    assert [figure for figure in reported if not is_met(figure)] == []


def test_a_job_that_never_ended_is_a_fault_whatever_end_was_expected() -> None:
    with fault_home() as home:
        home.runner = home.runner_with(slots=0)
        home.runner.start(SelftestSpec())
        assert any("has not ended: queued" in fault for fault in home.audit(None))


def test_a_server_whose_database_is_damaged_in_six_ways_answers_plainly_and_goes_on() -> None:
    store.damaged_databases(1)
    require_goals()


def test_a_killed_migration_leaves_the_old_or_the_new_schema() -> None:
    store.migrations(1)
    require_goals()


@pytest.mark.soak
def test_jobs_whose_workers_and_supervisors_are_killed_at_random_moments_end_right() -> None:
    jobs.kills(20)
    assert {figure["name"]: figure["value"] for figure in reported}.items() >= {
        ("kills_of_workers_and_supervisors", 20.0),
        ("faults_after_kills", 0.0),
    }


@pytest.mark.soak
def test_a_damaged_dataset_is_refused_by_the_name_of_its_file() -> None:
    files.corrupt_datasets(2)
    require_goals()


def test_jobs_go_on_after_a_sleep_of_the_machine() -> None:
    machine.machine_sleep(1)
    require_goals()


def test_a_worker_without_memory_ends_with_the_reason_and_its_job_goes_on() -> None:
    machine.out_of_memory(1)
    require_goals()


@pytest.mark.parametrize(
    "name",
    [
        "transactions that lock before they read",
        "files that appear by rename",
        "slots in the transaction of a start",
    ],
)
def test_a_trial_without_its_safety_shows_the_fault(name: str) -> None:
    assert TRIALS[name](True) == 0
    assert TRIALS[name](False) > 0


def test_every_part_of_the_suite_and_every_test_that_shows_a_goal_exists() -> None:
    parts = [part.function.rsplit(".", 1) for part in PARTS.values()]
    places = [(f"benchmarks/{module.replace('.', '/')}.py", function) for module, function in parts]
    places += [
        (path, name) for goal in GOALS.values() for path, _, name in (test.partition("::") for test in goal.tests)
    ]
    for path, function in places:
        assert f"def {function}" in (ROOT / path).read_text(encoding="utf-8")


def test_a_goal_that_needs_another_machine_is_printed_as_not_run_and_is_not_met(
    capsys: pytest.CaptureFixture[str],
) -> None:
    not_run("faults_on_windows", "faults", 0, "lower", "needs a machine with Windows")
    summarize()
    output = capsys.readouterr()
    assert json.loads(output.out)["value"] is None
    assert output.err.split() == ["not", "run", "faults_on_windows", "needs", "a", "machine", "with", "Windows"]
    assert not is_met(reported[0])


@pytest.mark.soak
def test_a_goal_shown_by_tests_is_reported_with_the_cases_that_they_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested_goals, "GOALS", {"secrets": GOALS["secrets"]})
    tested_goals.tested_goals(1)
    assert [(figure["name"], figure["value"]) for figure in reported] == [("secrets_tried", 10), ("secrets_failed", 0)]
    require_goals()
