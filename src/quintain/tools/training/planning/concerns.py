"""Concerns about a dataset: blockers of a plan, warnings of a training that is started all the same."""

from __future__ import annotations

from typing import NamedTuple

from quintain.next_step import Hint, call
from quintain.records.dataset import Dataset
from quintain.records.filters import TrajectoryFilter
from quintain.records.hyperparameters.methods import DATASET_KINDS, GRPOConfig, TrainingConfig
from quintain.records.jobs.plan import Blocker
from quintain.records.record import counted
from quintain.records.trajectory import OutcomeStatus
from quintain.tools.services import Services
from quintain.tools.training.planning.data import DataFacts

FEWEST_ROWS = 10
"""Minimum of training rows; a run on fewer memorises them."""


class Concerns(NamedTuple):
    """What speaks against training on a dataset."""

    blockers: tuple[Blocker, ...]
    notes: tuple[Hint, ...]


def data_concerns(services: Services, method: str, dataset: Dataset) -> Concerns:
    """Return what speaks against training by a method on a dataset: too few rows, failed runs only, unknown outcomes."""
    blockers, notes = list[Blocker](), list[Hint]()
    if (rows := dataset.splits.get("train", 0)) < FEWEST_ROWS:
        blockers.append(_too_few(dataset, rows))
    if DATASET_KINDS.get(method) == "sft":
        outcomes = count_outcomes(services, TrajectoryFilter(dataset_id=dataset.id))
        if not outcomes["success"] and outcomes["failure"] and not outcomes["unknown"]:
            blockers.append(
                Blocker(
                    code="no_successes",
                    message=f"all {outcomes['failure']} runs in {dataset.id} failed, and {method} would teach to fail",
                    remedy=Hint(
                        call("export_dataset", kind="sft", name="good-runs", filter={"outcome": "success"}),
                        " takes successful runs; kind 'kto' learns from failures too",
                    ),
                )
            )
        elif not outcomes["success"] and outcomes["unknown"]:
            score = call("score_trajectories", scorer="rules", filter={"dataset_id": dataset.id})
            notes.append(
                Hint("The outcome of these runs is unknown: score them before you rely on them, with ", score, ".")
            )
    if not dataset.splits.get("validation"):
        notes.append(
            Hint("There is no validation split, so overfitting goes unnoticed: export with validation_share=0.1.")
        )
    return Concerns(tuple(blockers), tuple(notes))


def step_value_notes(config: TrainingConfig, data: DataFacts | None) -> tuple[Hint, ...]:
    """Return a note on runs whose steps would all weigh alike although the settings weigh steps."""
    weighs = getattr(config, "step_weighting", "none") == "reward" or (
        isinstance(config, GRPOConfig) and config.step_level and config.reward_model is None
    )
    if not weighs or data is None or not (n := sum(data.weightless.values())):
        return ()
    reasons = ", ".join(f"{reason} {k}" for reason, k in sorted(data.weightless.items()))
    score = call("score_trajectories", scorer="rules", filter=...)
    export = call("export_dataset", kind=..., name=..., scorer="rules", filter=...)
    return (
        Hint(
            f"The steps of {n} of {counted(data.sampled, 'run')} that were looked at would all weigh alike ({reasons}): ",
            score,
            ", then ",
            export,
            " gives steps values.",
        ),
    )


def _too_few(dataset: Dataset, rows: int) -> Blocker:
    more = Hint(
        "record or collect more runs (",
        call("collect_rollouts", agent="starter", environment="quintain/inventory"),
        "), then export them again",
    )
    split = Hint(more, ", with a smaller validation_share where that took them") if dataset.rows > rows else more
    message = f"dataset {dataset.id} has {counted(rows, 'training row')}; a training wants {FEWEST_ROWS} at least"
    return Blocker(code="too_few_rows", message=message, remedy=split)


def count_outcomes(services: Services, filter: TrajectoryFilter) -> dict[str, int]:
    """Count matching runs by outcome."""
    return {
        status.value: services.store.trajectories.count(filter.model_copy(update={"outcome": status}))
        for status in OutcomeStatus
    }
