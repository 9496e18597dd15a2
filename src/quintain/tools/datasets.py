"""Datasets: freeze chosen trajectories into an immutable folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from quintain.errors import InvalidInput
from quintain.formats.export import Written
from quintain.formats.selection import Criteria, Tally
from quintain.records.filters import TrajectoryFilter
from quintain.records.training import DATASET_KINDS
from quintain.records.trajectory import OutcomeStatus
from quintain.rewards.registry import scorer as find_scorer
from quintain.tools.dataset_folders import freeze, new_options
from quintain.tools.dataset_lines import lines_of
from quintain.tools.results import ExportResult
from quintain.tools.selection import select
from quintain.tools.services import Services

_DESIRABLE_FROM = 0.5
_PAIRS_PER_TASK = 4


def export_dataset(
    services: Services,
    kind: Annotated[
        Literal["sft", "dpo", "kto", "grpo"],
        Field(
            description="sft: good runs; dpo: pairs of a task; kto: runs marked good or bad; grpo: groups of a task."
        ),
    ],
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", description="Name of the dataset.")],
    filter: Annotated[TrajectoryFilter | None, Field(description="Which runs; at least one condition.")] = None,
    trajectory_ids: Annotated[list[str] | None, Field(max_length=100_000, description="Which runs, by id.")] = None,
    scorer: Annotated[
        str | None, Field(description="Whose stored scores value the runs; null: the outcome. sft: needs `min_score`.")
    ] = None,
    min_score: Annotated[
        float | None, Field(ge=0, le=1, description="sft: keep from here on; kto: good from here on (0.5).")
    ] = None,
    margin: Annotated[float | None, Field(ge=0, lt=1, description="dpo: chosen is better by more (0).")] = None,
    max_pairs_per_task: Annotated[int | None, Field(ge=1, le=100, description="dpo: at most so many (4).")] = None,
    outcomes: Annotated[
        list[Literal["success", "failure", "error", "truncated", "unknown"]] | None,
        Field(min_length=1, description="Keep these outcomes; default: any, for sft without `scorer` success."),
    ] = None,
    validation_share: Annotated[
        float, Field(ge=0, lt=1, description="Share of the tasks held back for validation loss.")
    ] = 0.0,
    include_held_out: Annotated[
        bool, Field(description="Also take evaluation tasks; that makes evaluating on them worthless.")
    ] = False,
    seed: Annotated[int, Field(ge=0, description="Seed of the split, which goes by task, never by row.")] = 0,
    format: Annotated[Literal["quintain"], Field(description="File format of the rows.")] = "quintain",
) -> ExportResult:
    """Freeze chosen runs into a dataset that start_training can use; every run left out is counted with its reason.

    Runs on held-out (evaluation) tasks are never taken. dpo and grpo compare several attempts of one task. A run without a
    verdict is left out, not taken as bad. The dataset is immutable and remembers which runs it was made of.
    """
    making = _making(kind, scorer, min_score, {"margin": margin, "max_pairs_per_task": max_pairs_per_task})
    criteria = Criteria(
        outcomes=_kept(kind, scorer, outcomes),
        scorer=scorer,
        needs_value=kind != "sft" or scorer is not None,
        min_value=min_score if kind == "sft" else None,
        include_held_out=include_held_out,
        keep_repeats=kind == "grpo",
    )
    options = replace(
        new_options(services, name, kind),
        seed=seed,
        shares={"validation": validation_share},
        criteria=criteria,
        making=making,
    )
    tally = Tally()
    lines = lines_of(services, select(services, filter, trajectory_ids), options, tally)
    return _result(freeze(services, lines, options, tally))


def _making(kind: str, scorer: str | None, min_score: float | None, mining: dict[str, Any]) -> dict[str, Any]:
    """What decides the rows of this kind besides the criteria, defaults filled in; arguments of another kind are refused."""
    if kind == "sft" and (scorer is None) != (min_score is None):
        raise InvalidInput(
            "`scorer` and `min_score` go together: name the scorer whose stored scores decide, and the bound"
        )
    if kind in {"dpo", "grpo"} and min_score is not None:
        raise InvalidInput(f"`min_score` is {min_score}, but kind {kind!r} takes good and bad runs; leave it out")
    if kind != "dpo" and (given := [name for name, value in mining.items() if value is not None]):
        raise InvalidInput(f"`{given[0]}` is {mining[given[0]]}, but only kind 'dpo' makes pairs; leave it out")
    # A mix has stored scores under its own name, which no single scorer is known by.
    if scorer is not None and not scorer.startswith("mix("):
        find_scorer(scorer)
    if kind == "kto":
        return {"desirable_from": _DESIRABLE_FROM if min_score is None else min_score}
    if kind == "dpo":
        return {
            "margin": mining["margin"] or 0.0,
            "max_pairs_per_task": mining["max_pairs_per_task"] or _PAIRS_PER_TASK,
        }
    return {}


def _kept(kind: str, scorer: str | None, outcomes: Sequence[str] | None) -> frozenset[OutcomeStatus]:
    if outcomes is not None:
        return frozenset(map(OutcomeStatus, outcomes))
    return frozenset({OutcomeStatus.SUCCESS} if kind == "sft" and scorer is None else OutcomeStatus)


def _result(written: Written) -> ExportResult:
    dataset = written.dataset
    methods = [method for method, kind in DATASET_KINDS.items() if kind == dataset.kind and method != dataset.kind]
    others = f" {' and '.join(methods)} learn from it too." if methods else ""
    labels = ", ".join(f"{n} {label}" for label, n in written.counts.items() if label != "trajectories")
    return ExportResult(
        dataset_id=dataset.id,
        kind=dataset.kind,
        rows=dataset.rows,
        trajectories=written.counts["trajectories"],
        dropped=dataset.dropped,
        splits=dataset.splits,
        path=dataset.path,
        resource_uri=f"dataset://{dataset.id}",
        next_step=f"{f'It holds {labels} runs. ' if labels else ''}Train on it: start_training(method={dataset.kind!r}, "
        f"model=..., dataset_id={dataset.id!r}, name=...).{others}",
    )
