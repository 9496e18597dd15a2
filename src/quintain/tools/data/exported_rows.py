"""Rows that Quintain itself exported, here or in another home: they are frozen again as they are, with all that they state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple, get_args

from pydantic import ValidationError

from quintain.datasets.row_files import row_files, rows_of
from quintain.datasets.rows import trajectories_of, with_trajectories
from quintain.datasets.selection import ExportCounts
from quintain.errors import InvalidInput
from quintain.files import sha256_of
from quintain.importers.protocol import Report
from quintain.records.dataset import ROW_OF_KIND, DatasetKind, Row, SplitName
from quintain.records.imports import Rejected
from quintain.records.trajectory import Source, Trajectory
from quintain.records.wording import explain
from quintain.redaction.redact import redact
from quintain.tools.data.dataset_folders import BATCH_RUNS
from quintain.tools.data.row_reading import place_of, safe_name
from quintain.tools.services import Services


class ExportedRows(NamedTuple):
    """Files of exported rows of one kind."""

    files: Mapping[SplitName, Path]
    kind: DatasetKind
    sha256: Mapping[SplitName, str]

    @property
    def about(self) -> dict[str, object]:
        """Entries of a manifest that name the files."""
        files = [{"name": str(file), "sha256": self.sha256[split]} for split, file in self.files.items()]
        return {"source": {"files": files, "columns": {}}}


def exported_rows(services: Services, path: str, kind: DatasetKind) -> ExportedRows | None:
    """Return the exported rows of this kind at a path: the splits of a folder, or a file as train; None for other rows."""
    place = place_of(services, path)
    if place is None or kind in {"text", "benchmark"}:
        return None
    splits = get_args(SplitName)
    if place.is_file():
        files: dict[SplitName, Path] = {"train": place}
    else:
        beside = set(row_files(place).taken + row_files(place).left_out)
        files = {split: file for split in splits if (file := place / f"{split}.jsonl") in beside}
    if "train" not in files or not _is_exported(files["train"], kind):
        return None
    return ExportedRows(files, kind, {split: sha256_of(file) for split, file in files.items()})


def _is_exported(file: Path, kind: DatasetKind) -> bool:
    """Whether the first row of a file has all fields of a row of this kind, and no other."""
    if file.suffix.lower() != ".jsonl":
        return False
    try:
        first = next(iter(rows_of(file, Report())), None)
    except InvalidInput:
        return False
    return (
        first is not None
        and isinstance(first.value, dict)
        and first.value.keys() == ROW_OF_KIND[kind].model_fields.keys()
    )


def stored_rows(services: Services, rows: ExportedRows, split: SplitName, tally: ExportCounts) -> Iterator[Row]:
    """Store the runs of a split, redacted, and yield its rows with them; count unreadable rows, and those of forgotten runs."""
    if split not in rows.files:
        return
    file = rows.files[split]
    source = Source(uri=safe_name(str(file)), sha256=rows.sha256[split])
    read = _read(file, rows.kind, tally)
    while batch := list(islice(read, BATCH_RUNS)):
        runs = [[_own(run, source, services) for run in trajectories_of(row)] for row in batch]
        added = iter(services.store.trajectories.add_many([run for row in runs for run in row], services.clock()))
        for row, held in zip(batch, runs, strict=True):
            stored = list(islice(added, len(held)))
            if any(one.status == "forgotten" for one in stored):
                tally.leave_out("forgotten")
                continue
            yield with_trajectories(
                row, [run.model_copy(update={"id": one.id}) for run, one in zip(held, stored, strict=True)]
            )


def _read(file: Path, kind: DatasetKind, tally: ExportCounts) -> Iterator[Row]:
    report = Report()
    for number, value in rows_of(file, report):
        try:
            yield ROW_OF_KIND[kind].model_validate(value)
        except ValidationError as error:
            report.reject(number, explain(error, "row"))
    tally.reject(
        [Rejected(file=file.name, line=n, reason=safe_name(why)) for n, why in report.rejected], report.n_rejected
    )


def _own(run: Trajectory, source: Source, services: Services) -> Trajectory:
    """Return a run without secrets and without the ids of the home that it comes from."""
    without = {"id": None, "job_id": None, "subagents": (), "continues": None, "source": source}
    return redact(run.model_copy(update=without), services.settings.redact)
