"""A few trials of `make faults`, small: each has to report figures, and to reach every goal."""

from __future__ import annotations

import pytest
from benchmarks import fault_files, fault_store
from benchmarks.fault_safeties import TRIALS
from benchmarks.figures import is_met, reported


@pytest.fixture(autouse=True)
def _figures_of_this_test() -> None:
    reported.clear()


def require_goals() -> None:
    assert any(figure["goal"] is not None for figure in reported)
    assert [figure for figure in reported if not is_met(figure)] == []


def test_a_server_whose_database_is_damaged_in_six_ways_answers_plainly_and_goes_on() -> None:
    fault_store.damaged_databases(1)
    require_goals()


def test_a_killed_migration_leaves_the_old_or_the_new_schema() -> None:
    fault_store.migrations(1)
    require_goals()


def test_a_damaged_dataset_is_refused_by_the_name_of_its_file() -> None:
    fault_files.corrupt_datasets(2)
    require_goals()


@pytest.mark.parametrize("name", ["transactions that lock before they read", "files that appear by rename"])
def test_a_trial_without_its_safety_shows_the_fault(name: str) -> None:
    assert TRIALS[name](True) == 0
    assert TRIALS[name](False) > 0
