"""Rows by name: a dataset, several that are joined, a path, or a file in the inbox."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import get_args

from quintain.artifacts.locations import is_url
from quintain.datasets.dataset_writer import ExportOptions, WrittenDataset
from quintain.datasets.row_files import is_rows, rows_of
from quintain.datasets.rows import members_of, read_rows, trajectories_of
from quintain.datasets.selection import ExportCounts
from quintain.datasets.splits import KeyedRow, task_key
from quintain.environments.tasks.task_rows import ASKED
from quintain.errors import InvalidInput, NotFound
from quintain.files import sha256_of
from quintain.importers.files.tables import with_small_names
from quintain.importers.protocol import Report
from quintain.next_step import Hint, call
from quintain.records.dataset import Curation, Dataset, DatasetKind, Row, SplitName
from quintain.records.trajectory import OutcomeStatus
from quintain.records.wording import clip
from quintain.tools.data.dataset_folders import ROW_DEFAULTS, freeze, frozen_dataset, new_options
from quintain.tools.data.exported_rows import exported_rows, stored_rows
from quintain.tools.data.row_file_datasets import freeze_file
from quintain.tools.roots import readable
from quintain.tools.services import Services, find

ROW_SUFFIXES = (".jsonl", ".json", ".parquet", ".csv")
"""Endings that may be left out of the name of a file of rows."""
_SplitRows = Callable[[SplitName, ExportCounts], Iterator[Row]]
"""Returns the rows of a split, and counts those that it leaves out."""


def find_rows(services: Services, name: str) -> Path | None:
    """Return the file of rows of a name: a path, a URL, or one in the inbox, where the ending may be left out.

    The folder of rows at a URL is returned too.
    """
    if is_url(name):
        return readable(services, name, "data")
    inbox = services.settings.inbox_dir
    for path in (Path(name), *(inbox / f"{name}{suffix}" for suffix in ROW_SUFFIXES)):
        try:
            found = readable(services, path, "data")
        except NotFound:
            continue
        with suppress(OSError):  # a name that is too long for the file system
            if found.is_file():
                return found
    return None


def test_rows(services: Services, name: str) -> Path | None:
    """Return the file with the test split of a file of rows; None if there is none.

    It is NAME-test in the inbox, beside NAME-train NAME-test, and `test` beside `train`.
    """
    stem = Path(name).stem
    before = stem.removesuffix("train")
    return find_rows(services, f"{stem}-test" if before == stem else f"{before}test")


def named_dataset(
    services: Services, name: str, kind: DatasetKind, *, validation_share: float = 0.0, make: bool = True
) -> str | None:
    """Return the id of a dataset by its id or name, or of the dataset of a file of rows, reusing an existing one.

    Without `make` only check that the file exists (None). The share is that of the tasks of a file.

    Raises:
        NotFound: neither a dataset nor a file of rows has this name.
        InvalidInput: a share of a dataset, which has its split.
    """
    try:
        stored = services.store.datasets.get(name).id
        if validation_share:
            raise InvalidInput(
                f"{stored} has its split already; leave the validation share out, or name a file of rows"
            )
        return stored
    except NotFound as missing:
        path = find_rows(services, name)
        if path is None:
            raise NotFound(f"{missing.message}; or name a file of rows: a path, or a file in the inbox") from None
    # The copy of a folder at a URL has its version in the name of its parent.
    digest = sha256_of(path)[:12] if path.is_file() else path.parent.name.rpartition("-")[2][:12]
    label = re.sub(r"[^A-Za-z0-9._-]", "-", path.stem).lstrip("._-")[:60] or "rows"
    frozen = f"{label}-{kind}-{digest}" + (f"-{validation_share:g}-held" if validation_share else "")
    if (known := frozen_dataset(services, frozen)) is not None or not make:
        return known
    shares: dict[SplitName, float] = {"validation": validation_share} if validation_share else {}
    options = replace(new_options(services, frozen, kind), making=ROW_DEFAULTS.get(kind, {}), shares=shares)
    return _freeze_rows(services, name if is_url(name) else str(path), {}, options, ExportCounts()).dataset.id


def stored_dataset(services: Services, name: str) -> Dataset:
    """Return a dataset by id or name.

    Raises:
        NotFound: there is none; where the inbox has rows of this name, with the calls that take them.
    """
    try:
        return services.store.datasets.get(name)
    except NotFound as missing:
        if (path := find_rows(services, name)) is None:
            raise
        frozen = call("export_dataset", kind="sft", name=f"{path.stem}-rows", path=path.name)
        playing = f"environment='quintain/tasks?file={path.name}'"
        remedy = Hint(
            f"; {path.name} is a file of rows: ", frozen, f" makes a dataset of it, and {playing} asks its questions"
        )
        raise NotFound(Hint(missing.message, remedy)) from None


def has_questions(path: Path) -> bool:
    """Return whether a file of rows has questions with answers, as GSM8K and HelloAgents: tasks to act on instead of runs."""
    first = next(iter(rows_of(path, Report())), None) if is_rows(path) else None
    columns = with_small_names(first.value).keys() if first is not None and isinstance(first.value, dict) else set()
    return bool(columns & {*ASKED}) and bool(columns & {"answer", "ground_truth"})


def freeze_path(
    services: Services, path: str, columns: Mapping[str, str], options: ExportOptions, tally: ExportCounts
) -> WrittenDataset:
    """Freeze the rows of a path, or of the datasets `a+b` that it names; a file goes before one dataset of its name."""
    names = [name.strip() for name in path.split("+")]
    are_datasets = any(find(services.store.datasets.get, name) for name in names)
    if not are_datasets or (len(names) == 1 and (services.settings.inbox_dir / path).exists()):
        return _freeze_rows(services, path, columns, options, tally)
    datasets = list({dataset.id: dataset for dataset in map(services.store.datasets.get, names)}.values())
    _require_joinable(services, datasets, options)
    _require_plain(columns, options, "datasets")
    about = {"joined": [{"id": dataset.id, "name": dataset.name, "files": dataset.files} for dataset in datasets]}
    rows = partial(_remembered_rows, services, datasets)
    return _freeze_again(services, rows, {dataset.seed for dataset in datasets}, replace(options, about=about), tally)


def _freeze_rows(
    services: Services, path: str, columns: Mapping[str, str], options: ExportOptions, tally: ExportCounts
) -> WrittenDataset:
    """Freeze the rows of a path: as they are where Quintain exported them, else by the readers of rows."""
    exported = exported_rows(services, path, options.kind)
    if exported is None:
        return freeze_file(services, path, columns, options, tally)
    _require_plain(columns, options, path)
    rows = partial(stored_rows, services, exported)
    return _freeze_again(services, rows, (), replace(options, about=exported.about), tally)


def _freeze_again(
    services: Services, rows: _SplitRows, seeds: Collection[int], options: ExportOptions, tally: ExportCounts
) -> WrittenDataset:
    """Freeze rows as they are, in their splits, which were chosen by these seeds."""
    # A task that is also in train stays there, where its first row is. Shares divide what is not for tests.
    is_divided = any(options.shares.values())
    kept: Sequence[SplitName] = ("test",) if is_divided else ("validation", "test")
    placed = {member: split for split in kept for row in rows(split, ExportCounts()) for member in members_of(row)}
    # By the seed that chose the tests, no other task would have a hash below the share.
    used = seeds if is_divided and placed else ()
    seed = next(seed for seed in count(options.seed) if seed not in used)
    return freeze(services, _rows_once(rows, tally), replace(options, placed=placed, seed=seed), tally)


def _require_joinable(services: Services, datasets: Sequence[Dataset], options: ExportOptions) -> None:
    """Refuse datasets of another kind."""
    for dataset in datasets:
        if dataset.kind != options.kind or options.kind in {"text", "benchmark"}:
            raise InvalidInput(
                f"path: expected datasets of kind {options.kind!r} with runs, got {dataset.name} of kind {dataset.kind!r}; join "
                "datasets of one kind, or export their runs again: `filter={'dataset_id': NAME}`"
            )


def _require_plain(columns: Mapping[str, str], options: ExportOptions, what: str) -> None:
    """Refuse settings that choose among runs, or that read rows."""
    criteria = options.criteria
    all_outcomes = (frozenset(OutcomeStatus), frozenset({OutcomeStatus.SUCCESS, OutcomeStatus.UNKNOWN}))
    is_plain = criteria.scorer is None and criteria.curation == Curation() and criteria.outcomes in all_outcomes
    if columns or not is_plain or dict(options.making) != dict(ROW_DEFAULTS.get(options.kind, {})):
        raise InvalidInput(
            f"path: expected {clip(what)} with their rows as they are, got settings that choose or read rows; leave out `columns`, "
            "`scorer`, `min_score`, `margin`, `max_pairs_per_task`, `outcomes` and `curation`, or export the runs of the dataset: "
            "`filter={'dataset_id': NAME}`"
        )


def _rows_once(rows: _SplitRows, tally: ExportCounts) -> Iterator[KeyedRow]:
    """Yield the rows of train, then those of validation and test; count repeated ones."""
    seen = set[bytes]()
    for split in get_args(SplitName):
        for row in rows(split, tally):
            content = hashlib.sha256(row.model_dump_json().encode()).digest()
            if content in seen:
                tally.leave_out("duplicate")
                continue
            seen.add(content)
            yield KeyedRow(task_key(trajectories_of(row)[0]), row)


def _remembered_rows(
    services: Services, datasets: Sequence[Dataset], split: SplitName, tally: ExportCounts
) -> Iterator[Row]:
    """Yield the rows of a split of datasets; count those of forgotten runs."""
    store = services.store
    forgotten = set[str]().union(*(store.lineage.forgotten(store.datasets.member_ids(one.id)) for one in datasets))
    for dataset in datasets:
        for row in read_rows(Path(dataset.path), split, dataset.files.get(f"{split}.jsonl"), kind=dataset.kind):
            if forgotten.intersection(members_of(row)):
                tally.leave_out("forgotten")
            else:
                yield row
