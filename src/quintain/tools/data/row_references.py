"""Names of rows: a dataset, a path, or a file in the inbox, for callers that name one where a dataset is expected."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from quintain.artifacts.locations import is_url
from quintain.datasets.row_files import is_rows, rows_of
from quintain.datasets.selection import ExportCounts
from quintain.errors import NotFound
from quintain.files import sha256_of
from quintain.importers.protocol import Report
from quintain.records.dataset import DatasetKind
from quintain.tools.data.dataset_folders import ROW_DEFAULTS, frozen_dataset, new_options
from quintain.tools.data.row_file_datasets import freeze_file
from quintain.tools.roots import readable
from quintain.tools.services import Services

ROW_SUFFIXES = (".jsonl", ".json", ".parquet", ".csv")
"""Endings that may be left out of the name of a file of rows."""


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
    """Return the file with the test split of a file of rows: NAME-test in the inbox; None if there is none."""
    return find_rows(services, f"{Path(name).stem}-test")


def named_dataset(services: Services, name: str, kind: DatasetKind, *, make: bool = True) -> str | None:
    """Return the id of a dataset by its id or name, or of the dataset of a file of rows, reusing an existing one.

    Args:
        services: Where datasets are found and created.
        name: A dataset, a path, or the name of a file in the inbox.
        kind: Kind of a new dataset.
        make: Make the new one; otherwise only check that the file exists (None).

    Raises:
        NotFound: neither a dataset nor a file of rows has this name.
    """
    try:
        return services.store.datasets.get(name).id
    except NotFound as missing:
        path = find_rows(services, name)
        if path is None:
            raise NotFound(f"{missing.message}; or name a file of rows: a path, or a file in the inbox") from None
    # The copy of a folder at a URL has its version in the name of its parent.
    digest = sha256_of(path)[:12] if path.is_file() else path.parent.name.rpartition("-")[2][:12]
    label = re.sub(r"[^A-Za-z0-9._-]", "-", path.stem).lstrip("._-")[:60] or "rows"
    frozen = f"{label}-{kind}-{digest}"
    if (known := frozen_dataset(services, frozen)) is not None or not make:
        return known
    options = replace(new_options(services, frozen, kind), making=ROW_DEFAULTS.get(kind, {}))
    return freeze_file(services, name if is_url(name) else str(path), {}, options, ExportCounts()).dataset.id


def has_questions(path: Path) -> bool:
    """Return whether a file of rows has questions with answers, as GSM8K and HelloAgents: tasks to act on instead of runs."""
    first = next(iter(rows_of(path, Report())), None) if is_rows(path) else None
    columns = first.value.keys() if first is not None and isinstance(first.value, Mapping) else set()
    return "question" in columns and bool(columns & {"answer", "ground_truth"})
