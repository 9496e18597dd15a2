"""Datasets in the format `quintain`: an immutable folder of rows with its manifest, which appears whole or not at all."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from quintain.errors import Conflict, InvalidInput, Unavailable
from quintain.formats.manifest import write_manifest
from quintain.formats.rows import trajectories_of
from quintain.formats.selection import Criteria, Tally, remedy
from quintain.formats.splits import check_shares, split_of
from quintain.records.dataset import Dataset, DatasetKind, LabelledRow, Row, SplitName
from quintain.records.trajectory import Trajectory


class Line(NamedTuple):
    """A row, and the key of the task that decides its split."""

    key: str
    row: Row


@dataclass(frozen=True)
class ExportOptions:
    """What a dataset is called, how it is split, and what its manifest tells of its making."""

    dataset_id: str
    name: str
    kind: DatasetKind = "sft"
    seed: int = 0
    """Seed of the split."""
    shares: Mapping[SplitName, float] = field(default_factory=dict)
    """Share of the tasks of each split except train, which gets the rest; none: train only."""
    criteria: Criteria = field(default_factory=Criteria)
    """How the runs were chosen."""
    making: Mapping[str, Any] = field(default_factory=dict)
    """What else decided the rows, as JSON values."""
    created_at: datetime | None = None
    """When the dataset is made."""


class Written(NamedTuple):
    """A dataset that lies on the disk."""

    dataset: Dataset
    members: list[str]
    """Ids of the distinct trajectories in it."""
    counts: dict[str, int]
    """Distinct `trajectories`; of kind `kto` also `desirable` and `undesirable` rows."""


@dataclass
class _Contents:
    """What the rows so far hold; a run that stands in several rows counts once."""

    rows: Counter[str] = field(default_factory=Counter)
    members: dict[str, None] = field(default_factory=dict)
    models: Counter[str] = field(default_factory=Counter)
    environments: Counter[str] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)

    def add(self, row: Row, split: SplitName) -> None:
        self.rows[split] += 1
        if isinstance(row, LabelledRow):
            self.labels["desirable" if row.desirable else "undesirable"] += 1
        for trajectory in trajectories_of(row):
            member = trajectory.identified().id or ""
            if member not in self.members:
                self.members[member] = None
                self._count_sources(trajectory)

    def _count_sources(self, trajectory: Trajectory) -> None:
        for step in trajectory.agent_steps:
            self.models[step.model or trajectory.agent.model or "unknown"] += 1
        if trajectory.task.environment:
            self.environments[trajectory.task.environment] += 1


def write_dataset(lines: Iterable[Line], folder: Path, options: ExportOptions, tally: Tally) -> Written:
    """Stream rows into a new dataset folder, which appears whole or not at all.

    Args:
        lines: Read once, one at a time; all rows are of the kind that `options` names.
        folder: The dataset's final place; must not exist.
        options: How to split, and what the manifest tells.
        tally: What was left out; may still be filled while `lines` is read.

    Raises:
        Conflict: the folder exists.
        InvalidInput: no row is left to train on; lists the drops and the remedy.
        Unavailable: the disk did not take it.
    """
    check_shares(options.shares)
    if folder.exists():
        raise Conflict(f"{folder} exists and a dataset never changes; export under a new id")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            written = _fill(lines, aside, folder, options, tally)
            aside.rename(folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise Unavailable(
            f"the dataset could not be written to {folder}: {error}; free disk space, then export again"
        ) from error
    return written


def _fill(lines: Iterable[Line], aside: Path, folder: Path, options: ExportOptions, tally: Tally) -> Written:
    shares = {name: share for name, share in options.shares.items() if share != 0}
    names: list[SplitName] = ["train", *shares]
    hashes = {name: hashlib.sha256() for name in names}
    contents = _Contents()
    with ExitStack() as stack:
        files: dict[SplitName, BinaryIO] = {
            name: stack.enter_context((aside / f"{name}.jsonl").open("wb")) for name in names
        }
        for key, row in lines:
            split = split_of(key, shares, options.seed)
            line = row.model_dump_json().encode() + b"\n"
            files[split].write(line)
            hashes[split].update(line)
            contents.add(row, split)
        for file in files.values():
            file.flush()
            os.fsync(file.fileno())
    if not contents.rows["train"]:
        raise InvalidInput(_nothing_left(contents.rows, tally, options), code="empty_dataset")
    dataset = Dataset(
        id=options.dataset_id,
        name=options.name,
        kind=options.kind,
        path=str(folder),
        rows=contents.rows.total(),
        splits={name: contents.rows[name] for name in names},
        dropped=dict(tally.dropped),
        files={f"{name}.jsonl": hashes[name].hexdigest() for name in names},
        source_models=dict(contents.models),
        environments=dict(contents.environments),
        seed=options.seed,
        created_at=options.created_at,
    )
    counts = {"trajectories": len(contents.members), **contents.labels}
    facts = {**counts, "tasks_without_row": dict(tally.tasks_dropped)}
    write_manifest(aside, dataset, selection=_selection(options), counts=facts)
    return Written(dataset, list(contents.members), counts)


def _nothing_left(rows: Counter[str], tally: Tally, options: ExportOptions) -> str:
    noun = "text" if options.kind == "text" else "trajectory"
    if +rows:
        return (
            f"all {rows.total()} rows fell into {', '.join(+rows)}, none into train: too few tasks for the "
            f"shares {dict(options.shares)}; set validation_share to 0, or take another seed"
        )
    if not tally.dropped:
        return f"no {noun} was selected; widen the filter, or record or import runs first"
    drops = ", ".join(f"{reason} {n}" for reason, n in tally.dropped.most_common())
    largest = tally.dropped.most_common(1)[0][0]
    return (
        f"none of {tally.seen} {'texts' if noun == 'text' else 'trajectories'} is left for training; dropped: {drops}. "
        f"For {largest}: {remedy(largest, options.criteria.outcomes)}"
    )


def _selection(options: ExportOptions) -> dict[str, Any]:
    criteria = options.criteria
    chosen: dict[str, Any] = {}
    if options.kind != "text":
        chosen = {
            "outcomes": sorted(criteria.outcomes),
            "scorer": criteria.scorer,
            "min_score": criteria.min_value,
            "include_held_out": criteria.include_held_out,
        }
    return {**chosen, **options.making, "shares": dict(options.shares)}
