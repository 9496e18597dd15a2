"""The dataset kind `sft` in the format `quintain`: one trajectory a line, every drop counted with its reason."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import ValidationError

from quintain.errors import Conflict, InvalidInput, NotFound, Unavailable
from quintain.formats.manifest import read_manifest, sha256_of, write_manifest
from quintain.formats.splits import check_shares, split_of, task_key
from quintain.records.dataset import Dataset, DatasetRow, SplitName
from quintain.records.record import explain
from quintain.records.trajectory import Actor, OutcomeStatus, Trajectory, text_of

_REMEDIES = {
    "held_out_task": "these are evaluation tasks; collect rollouts of the train split, or set include_held_out if leaking "
    "them into training is what you want",
    "outcome_unknown": "give these runs an outcome or a score (score_trajectories) and export with min_score, or list "
    "'unknown' among the outcomes to keep",
    "outcome_failure": "collect successful runs, or list 'failure' among the outcomes to keep",
    "reward_unknown": "leave min_reward out, or record rewards",
    "below_min_reward": "lower min_reward",
    "unscored": "score these runs first (score_trajectories), or leave min_score out",
    "below_min_score": "lower min_score",
    "no_trainable_step": "no agent step holds text or calls that may be trained on; check `train` of the steps",
}


@dataclass(frozen=True)
class ExportOptions:
    """How a dataset is chosen and split."""

    dataset_id: str
    name: str
    seed: int = 0
    """Seed of the split."""
    validation_share: float = 0.1
    """Share of the tasks kept for validation; 0: off."""
    test_share: float = 0.0
    """Share of the tasks kept for a test; 0: off."""
    outcomes: frozenset[OutcomeStatus] | None = None
    """Outcomes to keep; None: success only, or every outcome where `min_score` is given."""
    min_reward: float | None = None
    """Keep outcome rewards of at least this; an unknown reward is dropped. None: off."""
    min_score: float | None = None
    """Keep scores of at least this, by `scores`; an unscored run is dropped. None: off."""
    scores: Mapping[str, float] | Callable[[Trajectory], float | None] | None = None
    """Trajectory id -> score in 0..1, or a function that gives it."""
    include_held_out: bool = False
    """Keep evaluation tasks too. They leak into training; off for good reason."""
    created_at: datetime | None = None
    """When the dataset is made."""

    @property
    def shares(self) -> dict[SplitName, float]:
        """Share of the tasks of each split except train."""
        wanted: dict[SplitName, float] = {"validation": self.validation_share, "test": self.test_share}
        return {name: share for name, share in wanted.items() if share != 0}

    @property
    def kept_outcomes(self) -> frozenset[OutcomeStatus]:
        """The outcomes that stay."""
        if self.outcomes is not None:
            return self.outcomes
        return frozenset({OutcomeStatus.SUCCESS}) if self.min_score is None else frozenset(OutcomeStatus)


@dataclass
class _Tally:
    """What has been seen so far."""

    seen: int = 0
    rows: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    models: Counter[str] = field(default_factory=Counter)
    environments: Counter[str] = field(default_factory=Counter)
    contents: set[str] = field(default_factory=set)


def write_sft(trajectories: Iterable[Trajectory], folder: Path, options: ExportOptions) -> Dataset:
    """Stream trajectories into a new dataset folder, which appears whole or not at all.

    Args:
        trajectories: Read once, one at a time.
        folder: The dataset's final place; must not exist.
        options: What to keep, and how to split.

    Returns:
        The dataset, as its manifest holds it.

    Raises:
        Conflict: the folder exists.
        InvalidInput: no row is left to train on; lists the drops and the remedy.
        Unavailable: the disk did not take it.
    """
    check_shares(options.shares)
    if options.min_score is not None and options.scores is None:
        raise InvalidInput("min_score is given without scores; pass `scores`: trajectory id -> score in 0..1")
    if folder.exists():
        raise Conflict(f"{folder} exists and a dataset never changes; export under a new id")
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        dataset = _fill(trajectories, aside, folder, options)
        aside.rename(folder)
    except OSError as error:
        raise Unavailable(
            f"the dataset could not be written to {folder}: {error}; free disk space, then export again"
        ) from (error)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return dataset


def _fill(trajectories: Iterable[Trajectory], aside: Path, folder: Path, options: ExportOptions) -> Dataset:
    names: list[SplitName] = ["train", *options.shares]
    hashes = {name: hashlib.sha256() for name in names}
    tally = _Tally()
    with ExitStack() as stack:
        files: dict[SplitName, BinaryIO] = {
            name: stack.enter_context((aside / f"{name}.jsonl").open("wb")) for name in names
        }
        for trajectory in trajectories:
            tally.seen += 1
            if reason := _reason_to_drop(trajectory, options, tally.contents):
                tally.dropped[reason] += 1
                continue
            split = split_of(task_key(trajectory), options.shares, options.seed)
            line = DatasetRow(trajectory=trajectory).model_dump_json().encode() + b"\n"
            files[split].write(line)
            hashes[split].update(line)
            tally.rows[split] += 1
            _count_sources(trajectory, tally)
        for file in files.values():
            file.flush()
            os.fsync(file.fileno())
    if not tally.rows["train"]:
        raise InvalidInput(_nothing_left(tally, options), code="empty_dataset")
    dataset = Dataset(
        id=options.dataset_id,
        name=options.name,
        kind="sft",
        path=str(folder),
        rows=tally.rows.total(),
        splits={name: tally.rows[name] for name in names},
        dropped=dict(tally.dropped),
        files={f"{name}.jsonl": hashes[name].hexdigest() for name in names},
        source_models=dict(tally.models),
        environments=dict(tally.environments),
        seed=options.seed,
        created_at=options.created_at,
    )
    write_manifest(aside, dataset, _selection(options))
    return dataset


def _reason_to_drop(trajectory: Trajectory, options: ExportOptions, contents: set[str]) -> str | None:
    outcome = trajectory.outcome
    if trajectory.task.metadata.get("split") == "held_out" and not options.include_held_out:
        return "held_out_task"
    if outcome.status not in options.kept_outcomes:
        return f"outcome_{outcome.status.value}"
    if options.min_reward is not None and (outcome.reward is None or outcome.reward < options.min_reward):
        return "reward_unknown" if outcome.reward is None else "below_min_reward"
    if options.min_score is not None:
        score = _score(trajectory, options)
        if score is None or score < options.min_score:
            return "unscored" if score is None else "below_min_score"
    if not any(_is_trainable(trajectory, i) for i in range(len(trajectory.steps))):
        return "no_trainable_step"
    # Two equal episodes of one task stay apart in the store, but teach nothing twice.
    content = trajectory.model_copy(update={"episode_key": "", "session_id": None}).identity
    if content in contents:
        return "duplicate"
    contents.add(content)
    return None


def _score(trajectory: Trajectory, options: ExportOptions) -> float | None:
    if callable(options.scores):
        return options.scores(trajectory)
    return (options.scores or {}).get(trajectory.identified().id or "")


def _is_trainable(trajectory: Trajectory, index: int) -> bool:
    step = trajectory.steps[index]
    if step.actor is not Actor.AGENT or step.train is False or step.copied_context:
        return False
    return bool(step.actions or (step.thought or "").strip() or text_of(step.message).strip())


def _count_sources(trajectory: Trajectory, tally: _Tally) -> None:
    for step in trajectory.agent_steps:
        tally.models[step.model or trajectory.agent.model or "unknown"] += 1
    if trajectory.task.environment:
        tally.environments[trajectory.task.environment] += 1


def _nothing_left(tally: _Tally, options: ExportOptions) -> str:
    if not tally.seen:
        return "no trajectory was selected; widen the filter, or record or import runs first"
    if tally.rows:
        return (
            f"all {tally.rows.total()} rows fell into {', '.join(tally.rows)}, none into train: too few tasks for the "
            f"shares {options.shares}; set validation_share to 0, or take another seed"
        )
    drops = ", ".join(f"{reason} {n}" for reason, n in tally.dropped.most_common())
    largest = tally.dropped.most_common(1)[0][0]
    remedy = _REMEDIES.get(largest, f"change the outcomes to keep (now: {', '.join(sorted(options.kept_outcomes))})")
    return f"none of {tally.seen} trajectories is left for training; dropped: {drops}. For {largest}: {remedy}"


def _selection(options: ExportOptions) -> dict[str, Any]:
    return {
        "outcomes": sorted(options.kept_outcomes),
        "min_reward": options.min_reward,
        "min_score": options.min_score,
        "include_held_out": options.include_held_out,
        "validation_share": options.validation_share,
        "test_share": options.test_share,
    }


def read_rows(folder: Path, split: SplitName, sha256: str | None = None) -> Iterator[DatasetRow]:
    """Stream the rows of one split; a split that the dataset does not have is empty.

    Args:
        folder: A dataset folder.
        split: `train`, `validation` or `test`.
        sha256: Refuse a file that has another hash, before its first row; None: no check.

    Raises:
        NotFound: the folder or a file that its manifest names is missing.
        InvalidInput: another hash, or a line that is no row, with its number.
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
    return _rows_of(path)


def _rows_of(path: Path) -> Iterator[DatasetRow]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                row = DatasetRow.model_validate_json(line)
            except ValidationError as error:
                raise InvalidInput(explain(error, f"{path}:{number}: row")) from None
            yield row
