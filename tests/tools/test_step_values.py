"""Step values: from a scorer into datasets, previews, plans and the weights of training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from quintain.datasets.rows import read_rows
from quintain.datasets.step_labels import unweighted_reason
from quintain.records.dataset import Curation, DatasetRow, GroupRow
from quintain.records.filters import TrajectoryFilter
from quintain.records.score import StepScore
from quintain.records.trajectory import OutcomeStatus
from quintain.tools.data.datasets import export_dataset
from quintain.tools.data.preview import preview_dataset
from quintain.tools.services import Services
from quintain.tools.training.planning.plan import plan_training
from tools.stored_records import add_runs, add_scores, new_score
from trajectory_runs import answer, call, run, user

RUNS = TrajectoryFilter(tags=("k",))


@pytest.fixture
def stored(services: Services) -> list[str]:
    """Six runs of two tasks with two calls and a closing message; the scorer `mine` values the calls of all but the last."""
    runs = [
        run(
            task,
            user(),
            call(item=f"box {i}"),
            call("take", item=f"box {i}"),
            answer(f"Done {i}."),
            status=OutcomeStatus.SUCCESS if i % 2 else OutcomeStatus.FAILURE,
            tags=("k",),
        )
        for task in ("a", "b")
        for i in range(3)
    ]
    ids = add_runs(services, *runs)
    steps = (StepScore(step=0, value=0.2), StepScore(step=1, value=0.8), StepScore(step=2))
    for i, run_id in enumerate(ids):
        add_scores(services, new_score(run_id, "mine", 0.5 + 0.1 * i, steps=steps if i < 5 else ()))
    return ids


def rows(services: Services, kind: Any, **arguments: Any) -> list[Any]:
    made = export_dataset(services, kind, f"d-{kind}", filter=RUNS, scorer="mine", **arguments)
    return list(read_rows(Path(made.path), "train", kind=kind))


def test_datasets_carry_the_step_scores_of_the_scorer_that_they_were_exported_with(
    services: Services, stored: list[str]
) -> None:
    for extra in ({}, {"curation": Curation(max_rows=6)}):
        single: list[DatasetRow] = rows(services, "sft", min_score=0.0, outcomes=["success", "failure"], **extra)
        found = {row.trajectory.id: row.step_values for row in single}
        assert [found[one] for one in stored] == [(0.2, 0.8, None)] * 5 + [()]
    groups: list[GroupRow] = rows(services, "grpo")
    of_run = {r.id: v for group in groups for r, v in zip(group.trajectories, group.step_values, strict=True)}
    assert [of_run[one] for one in stored] == [(0.2, 0.8, None)] * 5 + [()]


@pytest.mark.usefixtures("jobs_in_process")
def test_runs_whose_steps_cannot_be_weighted_are_counted_in_preview_and_plan(
    services: Services, stored: list[str]
) -> None:
    rows(services, "sft", min_score=0.0, outcomes=["success", "failure"])
    settings = {"step_weighting": "reward"}
    seen = preview_dataset(services, "d-sft", "starter", method="sft", hyperparameters=settings)
    (warning,) = [one for one in seen.warnings if "unweighted_steps" in one]
    assert "the steps of 1 run weigh alike" in warning
    assert "no_step_values 1" in warning
    weights = {span["weight"] for row in json.loads(seen.model_dump_json())["rows"] for span in row["spans"]}
    assert {round(weight, 4) for weight in weights} >= {0.4, 1.6, 1.0}
    plan = plan_training(services, dataset_id="d-sft", method="sft", hyperparameters=settings)
    assert any("1 of 6 runs" in note and "no_step_values 1" in note for note in plan.notes)
    assert not any("weigh alike" in note for note in plan_training(services, dataset_id="d-sft", method="sft").notes)


def test_why_values_rank_no_step_has_a_name() -> None:
    assert unweighted_reason([0.2, None, 0.8]) is None
    assert unweighted_reason([None, None]) == "no_step_values"
    assert unweighted_reason([None, 0.3]) == "one_step_value"
    assert unweighted_reason([0.3, 0.3]) == "equal_step_values"
    assert (unweighted_reason([-1, 0.5]), unweighted_reason([-1, 0.5], positive=True)) == (
        None,
        "step_values_not_positive",
    )
