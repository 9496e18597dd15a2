"""Join datasets: one of their rows as they are, each row once, a task in one split."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from quintain.datasets.dataset_writer import ExportOptions, WrittenDataset
from quintain.datasets.rows import members_of, read_rows, trajectories_of
from quintain.datasets.selection import ExportCounts
from quintain.datasets.splits import KeyedRow, task_key
from quintain.errors import InvalidInput
from quintain.records.dataset import LEARNED, Curation, Dataset, Row, SplitName
from quintain.records.trajectory import OutcomeStatus
from quintain.tools.data.dataset_folders import ROW_DEFAULTS, freeze
from quintain.tools.data.lineage import require_remembered
from quintain.tools.data.row_file_datasets import freeze_file
from quintain.tools.services import Services, find


def freeze_path(
    services: Services, path: str, columns: Mapping[str, str], options: ExportOptions, tally: ExportCounts
) -> WrittenDataset:
    """Freeze the rows of a path, or of the datasets `a+b` that it names.

    Args:
        services: Where datasets are found and created.
        path: As `freeze_file` takes it, or names of datasets.
        columns: As `freeze_file` takes them.
        options: The kind, and how the rows are chosen and split.
        tally: Counts what is left out.
    """
    names = [name.strip() for name in path.split("+")]
    if len(names) == 1 or not any(find(services.store.datasets.get, name) for name in names):
        return freeze_file(services, path, columns, options, tally)
    datasets = list({dataset.id: dataset for dataset in map(services.store.datasets.get, names)}.values())
    _require_joinable(services, datasets, columns, options)
    about = {"joined": [{"id": dataset.id, "name": dataset.name, "files": dataset.files} for dataset in datasets]}
    split = {} if any(options.shares.values()) else dict(_placed(datasets))
    return freeze(services, _rows_once(datasets, tally), replace(options, about=about, placed=split), tally)


def _require_joinable(
    services: Services, datasets: Sequence[Dataset], columns: Mapping[str, str], options: ExportOptions
) -> None:
    """Refuse datasets of another kind or with forgotten runs, and settings that choose among runs."""
    for dataset in datasets:
        if dataset.kind != options.kind or options.kind in {"text", "benchmark"}:
            raise InvalidInput(
                f"path: expected datasets of kind {options.kind!r} with runs, got {dataset.name} of kind {dataset.kind!r}; join "
                "datasets of one kind, or export their runs again: filter={'dataset_id': NAME}"
            )
        require_remembered(services, dataset.id)
    criteria = options.criteria
    all_outcomes = (frozenset(OutcomeStatus), frozenset({OutcomeStatus.SUCCESS, OutcomeStatus.UNKNOWN}))
    is_plain = criteria.scorer is None and criteria.curation == Curation() and criteria.outcomes in all_outcomes
    if columns or not is_plain or dict(options.making) != dict(ROW_DEFAULTS.get(options.kind, {})):
        raise InvalidInput(
            "path: expected datasets to join with their rows as they are, got settings that choose or read rows; leave out "
            "columns, scorer, min_score, margin, max_pairs_per_task, outcomes and curation"
        )


def _placed(datasets: Sequence[Dataset]) -> Iterator[tuple[str, SplitName]]:
    """Yield the runs of the validation rows; a task that is also in train stays there, where its first row is."""
    for row in _rows(datasets, "validation"):
        for member in members_of(row):
            yield member, "validation"


def _rows_once(datasets: Sequence[Dataset], tally: ExportCounts) -> Iterator[KeyedRow]:
    """Yield the rows of train, then those of validation; count repeated ones."""
    seen = set[bytes]()
    for split in LEARNED:
        for row in _rows(datasets, split):
            content = hashlib.sha256(row.model_dump_json().encode()).digest()
            if content in seen:
                tally.dropped["duplicate"] += 1
                tally.seen += 1
                continue
            seen.add(content)
            yield KeyedRow(task_key(trajectories_of(row)[0]), row)


def _rows(datasets: Sequence[Dataset], split: SplitName) -> Iterator[Row]:
    for dataset in datasets:
        yield from read_rows(Path(dataset.path), split, dataset.files.get(f"{split}.jsonl"), kind=dataset.kind)
