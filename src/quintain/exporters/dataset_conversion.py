"""A frozen dataset in the format of another trainer: a new folder, which appears whole or not at all."""

from __future__ import annotations

from pathlib import Path

from quintain.datasets.dataset_writer import folder_aside
from quintain.datasets.rows import read_rows
from quintain.errors import Conflict, InvalidInput, Unavailable, disk_remedy
from quintain.exporters.protocol import Export, Exporter
from quintain.files import sha256_of, sync
from quintain.records.dataset import Dataset, DatasetKind

SUMS = "SHA256SUMS"
"""Name of the list of hashes in such a folder, as `sha256sum -c` reads it."""


def require_kind(writer: Exporter, kind: DatasetKind) -> None:
    """Raise if a format does not support a kind of dataset.

    Raises:
        InvalidInput: names the supported kinds.
    """
    if kind not in writer.kinds:
        raise InvalidInput(
            f"format {writer.name!r} supports the kinds {', '.join(sorted(writer.kinds))}, got {kind!r}; use one of "
            "them or another format"
        )


def convert_dataset(dataset: Dataset, writer: Exporter, folder: Path) -> Export:
    """Write a dataset in another format.

    Raises:
        Conflict: the folder exists.
        InvalidInput: the format supports neither this kind nor any of the rows.
        Unavailable: the disk is full or not writable.
    """
    require_kind(writer, dataset.kind)
    if folder.exists():
        raise Conflict(f"{folder} exists and an export never changes; remove it, or export under a new id")
    source, hashes = Path(dataset.path), dataset.files
    try:
        with folder_aside(folder) as aside:
            export = writer.write(
                dataset, lambda split: read_rows(source, split, hashes.get(f"{split}.jsonl"), kind=dataset.kind), aside
            )
            _seal(aside)
    except OSError as error:
        raise Unavailable(
            f"the export could not be written to {folder}: {error}; {disk_remedy(error)}, then export again"
        ) from error
    return export


def _seal(folder: Path) -> None:
    """Bring every file to the disk and list its hash."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    sums = "".join(f"{sha256_of(path)}  {path.relative_to(folder).as_posix()}\n" for path in files)
    (folder / SUMS).write_text(sums, encoding="utf-8")
    for path in [*files, folder / SUMS]:
        sync(path)
