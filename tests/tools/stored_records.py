"""What tests of tools put into the store, and what they read of a job or an error."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from quintain.datasets.selection import ExportCounts
from quintain.datasets.splits import KeyedRow
from quintain.errors import QuintainError
from quintain.records.dataset import DatasetRow, Row
from quintain.records.jobs.job import Job
from quintain.records.score import Score
from quintain.records.trajectory import Trajectory
from quintain.tools.data.dataset_folders import freeze, new_options
from quintain.tools.services import Services
from trajectory_runs import NOW


def add_runs(services: Services, *runs: Trajectory) -> list[str]:
    """Store runs; return their ids."""
    return [added.id for added in services.store.trajectories.add_many(runs, NOW)]


def new_score(run_id: str, scorer: str, value: float | None, **fields: Any) -> Score:
    """Return a score; without a value the run is unscored."""
    known = (
        {"status": "scored"} if value is not None else {"status": "unscored", "reason": "the rater could not judge it"}
    )
    return Score(trajectory_id=run_id, scorer=scorer, value=value, **(known | fields))


def add_scores(services: Services, *scores: Score) -> None:
    """Store scores, the newest last."""
    services.store.scores.add_many(scores, NOW)


def write_rows(path: Path, *rows: Any) -> Path:
    """Write a file of JSON lines into a folder that may not exist yet; a text is a line as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def freeze_rows(services: Services, kind: str, rows: Sequence[Row], name: str = "") -> str:
    """Make a dataset of rows, called `some-KIND` without a name; return its id."""
    options = new_options(services, name or f"some-{kind}", kind)
    return freeze(services, [KeyedRow("", row) for row in rows], options, ExportCounts()).dataset.id


def freeze_runs(services: Services, *runs: Trajectory, name: str = "") -> str:
    """Store runs, and make a dataset of kind `sft` of them; return its id."""
    add_runs(services, *runs)
    return freeze_rows(services, "sft", [DatasetRow(trajectory=one) for one in runs], name)


def spec_of(services: Services, started: Any) -> Any:
    """Return the spec of a job that was started."""
    return services.store.jobs.get(started.job_id).spec


def ended(services: Services, started: Any) -> Job:
    """Return a job that ran in this process as it is stored at its end, which draws no picture as the tool does."""
    services.jobs.reconcile()
    return services.store.jobs.get(started.job_id)


def error_of(action: Callable[..., Any], *arguments: Any, **named: Any) -> QuintainError:
    """Return the error that a call raises."""
    with pytest.raises(QuintainError) as raised:
        action(*arguments, **named)
    return raised.value
