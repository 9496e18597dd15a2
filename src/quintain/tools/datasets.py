"""Datasets: freeze chosen trajectories into an immutable folder."""

from __future__ import annotations

import uuid
from typing import Annotated, Literal, get_args

from pydantic import Field

from quintain.errors import InvalidInput
from quintain.formats.sft import ExportOptions, read_rows, write_sft
from quintain.records.dataset import SplitName
from quintain.records.filters import TrajectoryFilter
from quintain.records.trajectory import OutcomeStatus
from quintain.rewards.registry import scorer as find_scorer
from quintain.tools.results import ExportResult
from quintain.tools.selection import select
from quintain.tools.services import Services

_SPLITS: tuple[SplitName, ...] = get_args(SplitName)


def export_dataset(
    services: Services,
    kind: Annotated[Literal["sft"], Field(description="What it is for: `sft`, supervised fine-tuning on good runs.")],
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", description="Name of the dataset.")],
    filter: Annotated[TrajectoryFilter | None, Field(description="Which runs; at least one condition.")] = None,
    trajectory_ids: Annotated[list[str] | None, Field(max_length=100_000, description="Which runs, by id.")] = None,
    scorer: Annotated[
        str | None, Field(description="Select by this scorer's stored scores; needs `min_score`.")
    ] = None,
    min_score: Annotated[float | None, Field(ge=0, le=1, description="Keep runs whose score is at least this.")] = None,
    outcomes: Annotated[
        list[Literal["success", "failure", "error", "truncated", "unknown"]] | None,
        Field(
            min_length=1,
            description="Keep runs with these outcomes; default: success, or any where a `scorer` selects.",
        ),
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

    By default only successful runs are kept, runs on held-out (evaluation) tasks never. The dataset is immutable and
    remembers which runs it was made of.
    """
    if (scorer is None) != (min_score is None):
        raise InvalidInput(
            "`scorer` and `min_score` go together: name the scorer whose stored scores decide, and the bound"
        )
    runs = list(dict.fromkeys(run.id for run in select(services, filter, trajectory_ids) if run.id))
    options = ExportOptions(
        name=name,
        dataset_id=f"ds-{uuid.uuid4().hex[:10]}",
        seed=seed,
        validation_share=validation_share,
        include_held_out=include_held_out,
        outcomes=frozenset(map(OutcomeStatus, outcomes)) if outcomes else None,
        min_score=min_score,
        scores=_stored_scores(services, scorer, runs) if scorer is not None else None,
        created_at=services.clock(),
    )
    folder = services.settings.datasets_dir / options.dataset_id
    dataset = write_sft(services.store.trajectories.iterate(ids=runs), folder, options)
    members = [row.trajectory.id for split in _SPLITS for row in read_rows(folder, split) if row.trajectory.id]
    stored = services.store.datasets.add(dataset, members, services.clock())
    return ExportResult(
        dataset_id=stored.id,
        rows=stored.rows,
        dropped=stored.dropped,
        splits=stored.splits,
        path=stored.path,
        resource_uri=f"dataset://{stored.id}",
        next_step=f"Train on it: start_training(method='sft', model=..., dataset_id={stored.id!r}, name=...).",
    )


def _stored_scores(services: Services, scorer: str | dict[str, float], runs: list[str]) -> dict[str, float]:
    latest = services.store.scores.latest(find_scorer(scorer).name, runs)
    return {run: score.value for run, score in latest.items() if score.value is not None}
