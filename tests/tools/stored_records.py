"""What tests of tools put into the store, and what they read of a job or an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from quintain.datasets.selection import ExportCounts
from quintain.datasets.splits import KeyedRow
from quintain.errors import QuintainError
from quintain.records.dataset import DatasetRow, Row
from quintain.records.trajectory import Trajectory
from quintain.tools.data.dataset_folders import freeze, new_options
from quintain.tools.services import Services
from trajectory_runs import NOW


def add_runs(services: Services, *runs: Trajectory) -> list[str]:
    """Store runs; return their ids."""
    return [added.id for added in services.store.trajectories.add_many(runs, NOW)]


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


def error_of(action: Callable[..., Any], *arguments: Any, **named: Any) -> QuintainError:
    """Return the error that a call raises."""
    with pytest.raises(QuintainError) as raised:
        action(*arguments, **named)
    return raised.value
