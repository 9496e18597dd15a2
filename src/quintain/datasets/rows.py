"""Read the rows of a dataset folder, one JSON object a line; their shape depends on the dataset kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, overload

from pydantic import ValidationError

from quintain.datasets.manifest import read_manifest
from quintain.errors import InvalidInput, NotFound
from quintain.files import sha256_of
from quintain.records.dataset import ROW_OF_KIND, BenchmarkRow, DatasetRow, GroupRow, PairRow, Row, SplitName, TextRow
from quintain.records.trajectory import Actor, Step, Task, Trajectory
from quintain.records.wording import explain


@overload
def read_rows(
    folder: Path, split: SplitName, sha256: str | None = None, *, kind: Literal["sft"] = "sft"
) -> Iterator[DatasetRow]: ...
@overload
def read_rows(folder: Path, split: SplitName, sha256: str | None = None, *, kind: str) -> Iterator[Row]: ...
def read_rows(folder: Path, split: SplitName, sha256: str | None = None, *, kind: str = "sft") -> Iterator[Row]:
    """Stream the rows of one split; a missing split is empty.

    Args:
        folder: A dataset folder.
        split: `train`, `validation` or `test`.
        sha256: Refuse a file that has another hash, before its first row; None: no check.
        kind: The dataset's kind, which decides the shape of the rows.

    Raises:
        NotFound: the folder or a file that its manifest names is missing.
        InvalidInput: another hash, or a line that is not a row of this kind, with its number.
    """
    path = folder / f"{split}.jsonl"
    if not path.is_file():
        if split in read_manifest(folder).splits:
            raise NotFound(f"{path} is missing though the manifest names it; export the dataset again")
        return iter(())
    if sha256 is not None and (found := sha256_of(path)) != sha256:
        raise InvalidInput(
            f"{path} has SHA-256 {found}, expected {sha256}: it was changed after the export; export the dataset again",
            code="dataset_changed",
        )
    return _rows_of(path, kind)


def _rows_of(path: Path, kind: str) -> Iterator[Row]:
    shape = ROW_OF_KIND[kind]
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                row = shape.model_validate_json(line)
            except ValidationError as error:
                raise InvalidInput(f"{explain(error, f'{path}:{number}: row')}; kind {kind!r} expected") from None
            yield row


def trajectories_of(row: Row) -> tuple[Trajectory, ...]:
    """Return the runs in a row of any kind."""
    if isinstance(row, PairRow):
        return row.chosen, row.rejected
    if isinstance(row, GroupRow):
        return row.trajectories
    return () if isinstance(row, TextRow | BenchmarkRow) else (row.trajectory,)


def with_trajectories(row: Row, runs: Sequence[Trajectory]) -> Row:
    """Return a row with these runs in place of those that `trajectories_of` returns."""
    if isinstance(row, PairRow):
        return row.model_copy(update={"chosen": runs[0], "rejected": runs[1]})
    if isinstance(row, GroupRow):
        return row.model_copy(update={"trajectories": tuple(runs)})
    return row.model_copy(update={"trajectory": runs[0]})


def cut_after(run: Trajectory, step: int) -> Trajectory:
    """Cut a run after one agent step (counted from 0) and exclude the steps before it from training.

    What the environment answered to that step is left out; the id stays that of the whole run.

    Raises:
        InvalidInput: the run has no such step.
    """
    place, steps = -1, list[Step]()
    for each in run.steps:
        place += each.actor is Actor.AGENT
        if each.actor is Actor.AGENT and place == step:
            steps.append(each.model_copy(update={"observations": ()}))
            return run.model_copy(update={"steps": tuple(steps)})
        steps.append(each.model_copy(update={"train": False}) if each.actor is Actor.AGENT else each)
    raise InvalidInput(f"step is {step}, but {run.id} has {place + 1} agent steps; valid: 0..{place}")


def task_of(row: Row) -> Task | None:
    """Return the task of a row; None for plain text."""
    if isinstance(row, BenchmarkRow):
        return row.task
    runs = trajectories_of(row)
    return runs[0].task if runs else None


def members_of(row: Row) -> tuple[str, ...]:
    """Return the ids of the runs in a row."""
    if isinstance(row, BenchmarkRow):
        return tuple(reference.trajectory_id for reference in row.references)
    return tuple(run.identified().id or "" for run in trajectories_of(row))
