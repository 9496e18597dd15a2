"""Freeze runs, pairs and groups of them, given rows or text into dataset folders and register them in the store."""

from __future__ import annotations

import hashlib
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import TypeAdapter, ValidationError

from quintain.datasets.dataset_writer import ExportOptions, WrittenDataset, write_dataset
from quintain.datasets.rows import members_of, read_rows, trajectories_of
from quintain.datasets.selection import ExportCounts, agent_digest, is_held_out
from quintain.datasets.splits import KeyedRow, task_key
from quintain.datasets.text_dataset import Source, check_text, write_text
from quintain.errors import Conflict, InvalidInput, QuintainError
from quintain.exporters.dataset_conversion import convert_dataset
from quintain.exporters.protocol import Export
from quintain.exporters.registry import exporter
from quintain.files import sha256_of
from quintain.records.dataset import PAIRED, Dataset, DatasetKind, GroupRow, PairRow, Row, SplitName, StepValues
from quintain.records.record import Name
from quintain.records.text import require_clean
from quintain.records.trajectory import Trajectory
from quintain.records.wording import explain
from quintain.scoring.preferences.mining import Group, Pair
from quintain.store.lineage.links import Ref
from quintain.tools.data.removal import remove_records
from quintain.tools.services import Services, find

_PAIRING = {"margin": 0.0, "max_pairs_per_task": 4}
ROW_DEFAULTS: Mapping[str, Mapping[str, float]] = {"kto": {"desirable_from": 0.5}, "dpo": _PAIRING, "reward": _PAIRING}
"""Kind -> settings of its rows with their defaults: where values are labels, and how runs are paired."""
_NAME: TypeAdapter[str] = TypeAdapter(Name)


def new_options(services: Services, name: str, kind: DatasetKind) -> ExportOptions:
    """Return the options of a new dataset with all rows in train.

    Raises:
        InvalidInput: a name that cannot be one.
    """
    try:
        _NAME.validate_python(name)
    except ValidationError as error:
        raise InvalidInput(explain(error, "name")) from None
    return ExportOptions(
        dataset_id=f"ds-{uuid.uuid4().hex[:10]}",
        name=name,
        kind=kind,
        model_terms=services.settings.model_terms,
        created_at=services.clock(),
    )


def freeze(
    services: Services, lines: Iterable[KeyedRow], options: ExportOptions, tally: ExportCounts
) -> WrittenDataset:
    """Write rows into a new folder and register it in the store, both or neither."""
    return _stored(services, write_dataset(lines, _folder(services, options), options, tally))


def freeze_text(
    services: Services, sources: Iterable[Source], options: ExportOptions, tally: ExportCounts | None = None
) -> WrittenDataset:
    """Freeze plain text into a dataset of kind `text`; see `quintain.datasets.text_dataset.write_text`."""
    folder, redact = _folder(services, options), services.settings.redact
    return _stored(services, write_text(sources, folder, options, tally, redact=redact))


def text_dataset(services: Services, files: Sequence[Path], *, make: bool = True) -> str | None:
    """Return the id of the dataset of these texts, reusing an existing one.

    Without `make` only check that it can be created (None).
    """
    check_text(files)
    # Texts that were frozen with their secrets are others than those without.
    redacted = ["redacted", *services.settings.redact] if services.settings.redact else []
    name = f"text-{_digest(*map(sha256_of, files), *redacted)}"
    if (found := frozen_dataset(services, name)) is not None or not make:
        return found
    return freeze_text(services, files, new_options(services, name, "text")).dataset.id


def first_rows(services: Services, dataset: Dataset, n: int, *, make: bool = True) -> str | None:
    """Return the id of a dataset of the first `n` training rows and what is held out from them, reusing an existing one.

    At least as many as there are: the dataset itself. Without `make` only check that it can be created (None). Texts have no
    task by which they are held out: of them, the training rows alone.
    """
    if n >= dataset.splits["train"]:
        return dataset.id
    known = dataset.splits if dataset.kind != "text" else {}
    held = [split for split in get_args(SplitName) if split != "train" and known.get(split)]
    name = f"{dataset.name[:60]}-first-{n}-{_digest(dataset.id, *dataset.files.values(), *held)}"
    if (found := frozen_dataset(services, name)) is not None:
        return found

    def rows(split: SplitName) -> Iterator[Row]:
        return read_rows(Path(dataset.path), split, dataset.files.get(f"{split}.jsonl"), kind=dataset.kind)

    train = islice(rows("train"), n)
    if not make:
        return None
    placed = {member: split for split in held for row in rows(split) for member in members_of(row)}
    made_from = {"first_rows_of": dataset.id}
    options = replace(new_options(services, name, dataset.kind), making=made_from, placed=placed)
    lines = (KeyedRow(_key(row), row) for row in chain(train, *map(rows, held)))
    return freeze(services, lines, options, ExportCounts()).dataset.id


def _key(row: Row) -> str:
    return next(map(task_key, trajectories_of(row)), "")


def _digest(*parts: str) -> str:
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:16]


def frozen_dataset(services: Services, name: str) -> str | None:
    """Return the id of the dataset with this name unless its folder is gone."""
    dataset = find(services.store.datasets.get, name)
    return dataset.id if dataset is not None and Path(dataset.path).is_dir() else None


def freeze_ready_made(
    services: Services, options: ExportOptions, rows: Sequence[Mapping[str, Any]], record: Callable[[Any], str]
) -> WrittenDataset:
    """Freeze pairs `{"chosen": run, "rejected": run}` or groups `{"runs": [run, ...], "rewards": [number, ...]}`.

    `record` stores a run and gives its id. The rows of one task each must differ, and none may be an evaluation task.
    """
    require_clean(list(rows), "runs")
    if options.kind in PAIRED:
        lines = pair_lines(services, [_pair(row, f"runs[{i}]", record) for i, row in enumerate(rows)])
    elif options.kind == "grpo":
        lines = group_lines(services, [_group(row, f"runs[{i}]", record) for i, row in enumerate(rows)])
    else:
        raise InvalidInput(
            f"kind is {options.kind!r}; pairs make kind 'dpo' or 'reward', groups make kind 'grpo', single runs make any kind"
        )
    return freeze(services, _checked(lines), options, ExportCounts())


def _pair(row: Mapping[str, Any], where: str, record: Callable[[Any], str]) -> Pair:
    _require_fields(row, where, "chosen", "rejected")
    return Pair(task="", chosen=record(row["chosen"]), rejected=record(row["rejected"]), margin=None)


def _group(row: Mapping[str, Any], where: str, record: Callable[[Any], str]) -> Group:
    _require_fields(row, where, "runs", "rewards")
    runs, rewards = row["runs"], row["rewards"]
    numbers = isinstance(rewards, Sequence) and all(
        isinstance(reward, int | float) and not isinstance(reward, bool) for reward in rewards
    )
    if not (isinstance(runs, Sequence) and numbers and len(runs) == len(rewards) >= 2):
        raise InvalidInput(f"{where} must hold at least two `runs` and one number for each in `rewards`")
    return Group(task="", trajectory_ids=tuple(map(record, runs)), rewards=tuple(map(float, rewards)))


def _require_fields(row: Any, where: str, *fields: str) -> None:
    if not isinstance(row, Mapping) or set(row) != set(fields):
        fields_found = sorted(map(str, row)) if isinstance(row, Mapping) else type(row).__name__
        raise InvalidInput(f"{where} has {fields_found}; every row must have exactly `{fields[0]}` and `{fields[1]}`")


def _checked(lines: Iterable[KeyedRow]) -> Iterator[KeyedRow]:
    for number, line in enumerate(lines):
        runs = trajectories_of(line.row)
        if any(map(is_held_out, runs)):
            raise InvalidInput(f"runs[{number}] is of an evaluation task; training on it makes evaluations worthless")
        if len({task_key(run) for run in runs}) > 1:
            raise InvalidInput(f"runs[{number}] has runs of several tasks; only runs of one task can be compared")
        if isinstance(line.row, PairRow) and len(set(map(agent_digest, runs))) == 1:
            raise InvalidInput(f"runs[{number}] prefers a run to one with equal agent text; leave it out")
        if isinstance(line.row, GroupRow) and len(set(line.row.rewards)) == 1:
            raise InvalidInput(f"runs[{number}] has equal rewards throughout, which teach nothing; leave it out")
        yield line


def _folder(services: Services, options: ExportOptions) -> Path:
    return services.settings.datasets_dir / options.dataset_id


def convert_or_remove(services: Services, dataset: Dataset, format: str) -> tuple[Path, Export]:
    """Write a new dataset in another format, and return the folder; where that fails, the dataset is removed too."""
    folder = services.settings.exports_dir / f"{dataset.id}-{format}"
    try:
        return folder, convert_dataset(dataset, exporter(format), folder)
    except QuintainError:
        remove_records(services, [Ref("dataset", dataset.id)], dry_run=False, copies=True)
        raise


def _stored(services: Services, written: WrittenDataset) -> WrittenDataset:
    try:
        services.store.datasets.add(written.dataset, written.members, services.clock())
    except BaseException:
        shutil.rmtree(written.dataset.path, ignore_errors=True)
        raise
    return written


BATCH_RUNS = 50
"""Runs held in memory at once, unless a single row needs more."""

T = TypeVar("T")


def pair_lines(
    services: Services, pairs: Iterable[Pair], parts: Mapping[str, dict[str, float]] | None = None
) -> Iterator[KeyedRow]:
    """Stream the rows of preference pairs; each side is the whole run, with the values of its parts by run id."""
    of_run = parts or {}
    for pair, (chosen, rejected) in with_runs(services, ((pair, (pair.chosen, pair.rejected)) for pair in pairs)):
        yield KeyedRow(
            task_key(chosen),
            PairRow(
                chosen=chosen,
                rejected=rejected,
                margin=pair.margin,
                chosen_parts=of_run.get(pair.chosen, {}),
                rejected_parts=of_run.get(pair.rejected, {}),
            ),
        )


def logged_margin(chosen: Mapping[str, float], rejected: Mapping[str, float]) -> float | None:
    """Return the margin in the logged scores of both sides of a pair: that of the chosen side, else the difference of their scores."""
    if "margin" in chosen:
        return chosen["margin"]
    ours, theirs = chosen.get("score"), rejected.get("score")
    return None if ours is None or theirs is None else ours - theirs


def group_lines(
    services: Services, groups: Iterable[Group], step_values: Mapping[str, StepValues] | None = None
) -> Iterator[KeyedRow]:
    """Stream the rows of groups with their rewards, and the values of their runs' steps by run id."""
    of_run = step_values or {}
    for group, runs in with_runs(services, ((group, group.trajectory_ids) for group in groups)):
        key = task_key(runs[0])
        steps = tuple(of_run.get(run.id or "", ()) for run in runs)
        row = GroupRow(key=key, trajectories=runs, rewards=group.rewards, step_values=steps if any(steps) else ())
        yield KeyedRow(key, row)


def with_runs(
    services: Services, wanted: Iterable[tuple[T, tuple[str, ...]]]
) -> Iterator[tuple[T, tuple[Trajectory, ...]]]:
    """Yield each item with its runs, fetched from the store in batches."""
    batch, held = list[tuple[T, tuple[str, ...]]](), set[str]()  # a run of several items is fetched once
    for item, ids in wanted:
        batch.append((item, ids))
        held.update(ids)
        if len(held) >= BATCH_RUNS:
            yield from _filled(services, batch)
            batch, held = [], set()
    if batch:
        yield from _filled(services, batch)


def _filled(services: Services, batch: list[tuple[T, tuple[str, ...]]]) -> Iterator[tuple[T, tuple[Trajectory, ...]]]:
    ids = list(dict.fromkeys(run for _, members in batch for run in members))
    found = {run.id: run for run in services.store.trajectories.iterate(ids=ids)}
    for item, members in batch:
        if gone := [run for run in members if run not in found]:
            raise Conflict(f"{gone[0]} was forgotten meanwhile; call this again")
        yield item, tuple(found[run] for run in members)
