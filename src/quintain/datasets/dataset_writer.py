"""Write a dataset as an immutable folder of rows with a manifest; the folder appears whole or not at all."""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple

from quintain.datasets.manifest import write_manifest
from quintain.datasets.provenance import UNKNOWN, Terms, check_terms, written_by
from quintain.datasets.rows import members_of, trajectories_of
from quintain.datasets.selection import Criteria, ExportCounts, drop_remedy
from quintain.datasets.split_leaks import LeakCheck, split_leak_remedy
from quintain.datasets.splits import KeyedRow, check_shares, split_of, stratifying_moves, uneven_split
from quintain.errors import Conflict, InvalidInput, QuintainError, Unavailable, disk_remedy
from quintain.importers.files.garbage_collection import gc_relaxed
from quintain.next_step import Hint
from quintain.records.dataset import PAIRED, BenchmarkRow, Dataset, DatasetKind, LabelledRow, PairRow, Row, SplitName
from quintain.records.trajectory import Actor, ImagePart, OutcomeStatus, Step, Trajectory, text_of
from quintain.records.wording import counted

_BUFFER_BYTES = 2**20


@dataclass(frozen=True)
class ExportOptions:
    """Name, kind and split of a dataset, and the settings recorded in its manifest."""

    dataset_id: str
    name: str
    kind: DatasetKind = "sft"
    seed: int = 0
    """Seed of the split."""
    shares: Mapping[SplitName, float] = field(default_factory=dict)
    """Share of the tasks of each split except train, which gets the rest; empty for train only."""
    placed: Mapping[str, SplitName] = field(default_factory=dict)
    """Id of a run -> the split that its file names. A task is in the split of its first row."""
    criteria: Criteria = field(default_factory=Criteria)
    """Criteria that selected the runs."""
    making: Mapping[str, Any] = field(default_factory=dict)
    """Further settings that determined the rows, as JSON values."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Further entries of the manifest, as JSON values by name."""
    model_terms: Terms = "warn"
    """Policy for outputs of models whose terms restrict training; see `quintain.datasets.provenance`."""
    created_at: datetime | None = None
    """Creation time."""


class WrittenDataset(NamedTuple):
    """A dataset on disk."""

    dataset: Dataset
    members: dict[str, SplitName]
    """Id of each distinct trajectory -> its split."""
    counts: dict[str, int]
    """Number of distinct `trajectories`; for kind `kto` also `desirable` and `undesirable` rows."""
    warnings: tuple[str, ...] = ()
    """Warnings before training: missing runs, terms of models, tasks that leak between splits, shares that are not met."""
    redactions: Mapping[str, int] = MappingProxyType({})
    """Kind of secret -> number removed from the rows."""


@dataclass
class _Contents:
    """Counts over the rows so far; a run in several rows counts once."""

    rows: Counter[str] = field(default_factory=Counter)
    members: dict[str, str] = field(default_factory=dict)
    """Id of a trajectory -> key of its task."""
    models: Counter[str] = field(default_factory=Counter)
    environments: Counter[str] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)
    redactions: Counter[str] = field(default_factory=Counter)
    unlike_prompts: int = 0
    """Pairs whose runs differ before the agent's first turn."""
    logged_labels: int = 0
    """Labelled runs of unknown outcome."""
    with_images: int = 0
    """Runs with images."""
    leaks: LeakCheck = field(default_factory=LeakCheck)
    uneven: str | None = None
    """Difference of shares from which `uneven_split` warns."""
    sides: dict[str, SplitName] = field(default_factory=dict)
    """Key of a task -> its split; empty for train only."""
    task_labels: dict[str, set[bool]] = field(default_factory=dict)
    """Key of a task -> its labels: whether desirable; of kind `kto`."""
    keys: dict[SplitName, list[str]] = field(default_factory=dict)
    """Key of each line of a split; of kind `kto`."""

    def add(self, key: str, row: Row, split: SplitName, *, is_split: bool) -> None:
        self.rows[split] += 1
        if is_split:
            self.leaks.add(key, row, split)
            self.sides[key] = split
        if isinstance(row, LabelledRow):
            self.task_labels.setdefault(key, set()).add(row.desirable)
            self.keys.setdefault(split, []).append(key)
            self.labels["desirable" if row.desirable else "undesirable"] += 1
        if isinstance(row, PairRow):
            self.unlike_prompts += _prompt(row.chosen) != _prompt(row.rejected)
        if isinstance(row, BenchmarkRow):
            self._count_references(key, row)
        for trajectory in trajectories_of(row):
            member = trajectory.identified().id or ""
            if member not in self.members:
                self.members[member] = key
                self._count_sources(trajectory)
                is_unknown = trajectory.outcome.status is OutcomeStatus.UNKNOWN
                self.logged_labels += is_unknown and trajectory.logged_label is not None
                self.with_images += any(map(_has_image, trajectory.steps))

    def move(self, moves: Mapping[str, SplitName]) -> None:
        """Count tasks for another split."""
        for split, keys in self.keys.items():
            targets = Counter(moves[key] for key in keys if key in moves)
            self.rows.subtract({split: targets.total()})
            self.rows.update(targets)
        for key, split in moves.items():
            self.leaks.move(key, self.sides[key], split)
            self.sides[key] = split

    def split_of_members(self) -> dict[str, SplitName]:
        """Return the id of each trajectory with its split."""
        only: SplitName = "test" if self.rows["test"] else "train"
        return {member: self.sides.get(key, only) for member, key in self.members.items()}

    def _count_references(self, key: str, row: BenchmarkRow) -> None:
        self.members |= dict.fromkeys(members_of(row), key)
        for reference in row.references:
            self.models[reference.model or UNKNOWN] += reference.steps
        if row.task.environment:
            self.environments[row.task.environment] += len(row.references)

    def _count_sources(self, trajectory: Trajectory) -> None:
        self.redactions.update(trajectory.redactions)
        for step in trajectory.agent_steps:
            self.models[written_by(step, trajectory)] += 1
        if trajectory.task.environment:
            self.environments[trajectory.task.environment] += 1


def _prompt(run: Trajectory) -> list[tuple[Actor, str]]:
    """Return the messages before the agent's first turn."""
    return [(step.actor, text_of(step.message)) for step in takewhile(lambda s: s.actor is not Actor.AGENT, run.steps)]


def write_dataset(
    lines: Iterable[KeyedRow], folder: Path, options: ExportOptions, tally: ExportCounts
) -> WrittenDataset:
    """Stream rows into a new dataset folder, which appears whole or not at all.

    Raises:
        Conflict: the folder exists.
        InvalidInput: no row is left to train on; lists the drops and the remedy.
        Unavailable: the disk is full or not writable.
    """
    check_shares(options.shares)
    if folder.exists():
        raise Conflict(f"{folder} exists and a dataset never changes; export under a new id")
    try:
        with folder_aside(folder) as aside, gc_relaxed():
            return _fill(lines, aside, folder, options, tally)
    except QuintainError:  # Refused is an OSError too, and has its own remedy
        raise
    except OSError as error:
        raise Unavailable(
            f"the dataset could not be written to {folder}: {error}; {disk_remedy(error)}, then export again"
        ) from error


@contextmanager
def folder_aside(folder: Path) -> Iterator[Path]:
    """Yield a hidden folder that is renamed to `folder` at the end of the block; after an error nothing is left."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = folder.with_name(f".{folder.name}-{uuid.uuid4().hex[:8]}")
    aside.mkdir()  # unlike `mkdtemp`, as readable as the umask allows
    try:
        yield aside
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _fill(
    lines: Iterable[KeyedRow], aside: Path, folder: Path, options: ExportOptions, tally: ExportCounts
) -> WrittenDataset:
    shares = {name: share for name, share in options.shares.items() if share != 0}
    # A benchmark is measured on, never trained on: all of it is test.
    rest: SplitName = "test" if options.kind == "benchmark" else "train"
    names = list(dict.fromkeys([rest, *shares, *options.placed.values()]))
    contents = _Contents()

    def placed() -> Iterator[tuple[SplitName, bytes]]:
        for key, row in lines:
            split = split_of(key, shares, options.seed) if shares else rest
            if options.placed:
                stated = [options.placed[member] for member in members_of(row) if member in options.placed]
                split = contents.sides.get(key, stated[0] if stated else split)
            contents.add(key, row, split, is_split=bool(shares or options.placed))
            yield split, row.model_dump_json().encode() + b"\n"

    hashes = _write_splits(placed(), aside, names)
    if shares and contents.task_labels and not options.placed:
        moves = stratifying_moves(contents.sides, contents.task_labels, shares, options.seed)
        hashes = _move_lines(aside, contents.keys, moves, names) if moves else hashes
        contents.move(moves)
    if not contents.rows[rest]:
        raise InvalidInput(_nothing_left(contents.rows, tally, options), code="empty_dataset")
    contents.uneven = uneven_split(contents.sides, shares, options.seed) if shares else None
    notes = check_terms(contents.models, options.model_terms)
    if n := contents.with_images:
        tally.notes.append(
            f"{n} of {counted(len(contents.members), 'run')} with images, which no training here sees: what the agent says of "
            "them is learned blind; put what they show into words, or leave these runs out"
        )
    dataset = Dataset(
        id=options.dataset_id,
        name=options.name,
        kind=options.kind,
        path=str(folder),
        rows=contents.rows.total(),
        splits={name: contents.rows[name] for name in names},
        dropped=dict(tally.dropped),
        files={f"{name}.jsonl": hashes[name] for name in names},
        source_models=dict(contents.models),
        licence_notes=notes,
        environments=dict(contents.environments),
        seed=options.seed,
        created_at=options.created_at,
    )
    counts = {"trajectories": len(contents.members), **contents.labels}
    warnings = (*tally.notes, *notes, *_row_warnings(contents, options))
    contents.redactions.update(tally.redactions)
    facts = {**counts, "tasks_without_row": dict(tally.tasks_dropped)}
    write_manifest(aside, dataset, selection=_selection(options), counts=facts, more=_more(options, contents, tally))
    return WrittenDataset(dataset, contents.split_of_members(), counts, warnings, dict(contents.redactions))


def _write_splits(
    lines: Iterable[tuple[SplitName, bytes]], folder: Path, names: Iterable[SplitName]
) -> dict[SplitName, str]:
    """Write each line to the file of its split, flushed to disk; return the SHA-256 of each file."""
    hashes = {name: hashlib.sha256() for name in names}
    with ExitStack() as stack:
        files: dict[SplitName, BinaryIO] = {
            name: stack.enter_context((folder / f"{name}.jsonl").open("wb", _BUFFER_BYTES)) for name in hashes
        }
        for split, line in lines:
            files[split].write(line)
            hashes[split].update(line)
        for file in files.values():
            file.flush()
            os.fsync(file.fileno())
    return {name: digest.hexdigest() for name, digest in hashes.items()}


def _move_lines(
    folder: Path, keys: Mapping[SplitName, list[str]], moves: Mapping[str, SplitName], names: Iterable[SplitName]
) -> dict[SplitName, str]:
    """Write the files of the splits again, with the lines of some tasks in another split; return their hashes."""
    before = folder / "before"
    before.mkdir()
    for split in keys:
        (folder / f"{split}.jsonl").rename(before / f"{split}.jsonl")

    def placed() -> Iterator[tuple[SplitName, bytes]]:
        for split, line_keys in keys.items():
            with (before / f"{split}.jsonl").open("rb", _BUFFER_BYTES) as file:
                for key, line in zip(line_keys, file, strict=True):
                    yield moves.get(key, split), line

    hashes = _write_splits(placed(), folder, names)
    shutil.rmtree(before)
    return hashes


def _more(options: ExportOptions, contents: _Contents, tally: ExportCounts) -> dict[str, Any]:
    """Return the optional entries of the manifest that have a value."""
    facts: dict[str, Any] = {
        "model_terms": options.model_terms,
        "redactions": dict(contents.redactions),
        "leaking_tasks": contents.leaks.tasks,
        "uneven_split": contents.uneven,
        "distribution": tally.distribution,
        "preferences": tally.preferences,
        "notes": tally.notes,
        "rejected": [rejected.model_dump(mode="json") for rejected in tally.rejected],
    }
    return {**options.about, **{name: value for name, value in facts.items() if value or name == "model_terms"}}


def _row_warnings(contents: _Contents, options: ExportOptions) -> Iterator[str]:
    """Yield what to know about the rows before training on them."""
    if contents.unlike_prompts:
        yield (
            f"pairs whose runs begin with different messages: {contents.unlike_prompts} of {contents.rows.total()}; each run "
            "trains on its own prompt, and formats that write one prompt a pair leave these out"
        )
    # Ready-made rows are always labelled by their file.
    by_label = options.criteria.scorer is None and not options.about and "sources" not in options.making
    if contents.logged_labels and by_label and options.kind in {*PAIRED, "kto", "grpo"}:
        yield f"{counted(contents.logged_labels, 'run')} of unknown outcome: the label in the log decides good or bad"
    if tasks := contents.leaks.tasks:
        ask, look = (
            ("task outside train asks", "its loss looks")
            if tasks == 1
            else ("tasks outside train ask", "their loss looks")
        )
        yield (
            f"{tasks} {ask} in the same words as a task in train, so {look} better than it is; {split_leak_remedy(options.kind)}"
        )
    if contents.uneven is not None:
        yield contents.uneven
    yield from _label_warnings(contents)


def _has_image(step: Step) -> bool:
    contents = (step.message, *(observation.content for observation in step.observations))
    return any(isinstance(part, ImagePart) for content in contents if not isinstance(content, str) for part in content)


def _label_warnings(contents: _Contents) -> list[str]:
    """Return a warning about labelled rows of one label: all of them, or those of a split."""
    if len(contents.labels) == 1:
        return [f"all rows are {next(iter(contents.labels))}; kto learns from good and bad runs: add the others"]
    by_split: dict[SplitName, set[bool]] = {}
    for key, labels in contents.task_labels.items():
        by_split.setdefault(contents.sides.get(key, "train"), set()).update(labels)
    return [
        f"all rows of split {split} are {'desirable' if True in labels else 'undesirable'}, because too few tasks have the "
        "other label; record more of them, or export without shares of tasks"
        for split, labels in by_split.items()
        if len(labels) == 1
    ]


def _nothing_left(rows: Counter[str], tally: ExportCounts, options: ExportOptions) -> Hint:
    noun = "text" if options.kind == "text" else "trajectory"
    if +rows:
        return Hint(
            f"all {rows.total()} rows fell into {', '.join(+rows)}, none into train: too few tasks for the "
            f"shares {dict(options.shares)}; set {' and '.join(f'{name}_share' for name in sorted(+rows))} to 0, or take "
            "another seed"
        )
    if not tally.dropped:
        return Hint(f"no {noun} was selected; widen the filter, or record or import runs first")
    drops = ", ".join(f"{reason} {n}" for reason, n in tally.dropped.most_common())
    largest = tally.dropped.most_common(1)[0][0]
    examples = "".join(
        [*(f" {row.place}: {row.reason}." for row in tally.rejected[:3]), *(f" {n}." for n in tally.notes[:3])]
    )
    return Hint(
        f"none of {tally.seen} {'texts' if noun == 'text' else 'trajectories'} is left for training; dropped: {drops}.{examples} "
        f"For {largest}: ",
        drop_remedy(largest, options.criteria, options.kind, is_ready_made=bool(options.about)),
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
            "curation": criteria.curation.model_dump(mode="json", exclude_defaults=True),
        }
    return {**chosen, **options.making, "shares": dict(options.shares)}
