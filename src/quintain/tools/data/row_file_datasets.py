"""Datasets from files of rows: the readers of logs parse each row into runs, which are stored and frozen."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from quintain.artifacts.locations import is_url
from quintain.datasets.dataset_writer import ExportOptions, WrittenDataset
from quintain.datasets.row_files import (
    RowFiles,
    hub_rows,
    needs_lines,
    row_files,
    rows_of,
    with_inner_columns,
    write_lines,
)
from quintain.datasets.selection import ExportCounts
from quintain.datasets.text_dataset import TextFile
from quintain.errors import InvalidInput
from quintain.files import sha256_of
from quintain.importers.log_file import NumberedValue
from quintain.importers.pipeline import ImportOptions, import_logs
from quintain.importers.protocol import Report
from quintain.importers.run_sink import RunSink
from quintain.records.dataset import LEARNED, SplitName
from quintain.records.imports import IngestStatus, Rejected
from quintain.records.trajectory import Source, Trajectory
from quintain.records.wording import clip, shown
from quintain.tools.data.dataset_folders import freeze, freeze_text
from quintain.tools.data.dataset_lines import lines_of
from quintain.tools.data.message_tables import Read, requested_rows
from quintain.tools.data.row_reading import (
    NO_LABELS,
    SPLIT,
    VALUES,
    has_fields,
    note_left_out,
    of_split,
    place_of,
    require_marks,
    require_read_columns,
    safe_name,
    splits_beside_train,
    text_files,
)
from quintain.tools.data.row_statements import StoredRun, row_statements, stored_run
from quintain.tools.data.unread_columns import (
    note_sorting,
    note_unread_splits,
    note_unread_verdict,
    unread_remedy,
)
from quintain.tools.roots import url_of
from quintain.tools.services import Services

_SAMPLED = 200
"""First rows by which the names in `columns` are checked."""


class _Origin(NamedTuple):
    """A file of rows, as read and as displayed."""

    lines: Path
    name: str
    """Path, or name on the Hub."""
    sha256: str
    report: Report
    """Rows that could not be converted."""
    split: SplitName | None = None
    """Split that all of its rows name; None: no column names splits."""

    @property
    def short(self) -> str:
        """Name without folders."""
        return self.name.rstrip("/").rpartition("/")[2]


class _RowRequest(NamedTuple):
    """Requested rows and how to read them."""

    path: str
    columns: Mapping[str, str]
    aside: Path
    """Folder for rows that must be converted before reading."""
    text: bool
    split: str | None = None
    """Column that names the split of a row."""
    marks: Mapping[str, str] = {}
    """`good` and `bad` -> the value of the label that means it; `assistant` -> that of the role."""
    where: Mapping[str, str] = {}
    """Column -> value or bound of the rows to read."""

    def inside(self, read: Read) -> Read:
        """Return a reader whose rows have the columns inside of others that the request names, such as `feedback.rating`."""
        names = {*self.columns.values(), *self.where, *filter(None, [self.split])}
        return lambda report: with_inner_columns(read(report), names)

    def rows(self, read: Read, report: Report, tally: ExportCounts) -> Iterator[NumberedValue]:
        """Yield the rows to read, with labels and roles that the readers know."""
        return requested_rows(read, self.columns, self.marks, self.where, report, tally)


@dataclass
class _RowSink(RunSink):
    """Stores the runs of a file of rows and keeps their order; rows are read on every request."""

    services: Services
    origin: _Origin
    runs: list[StoredRun] = field(default_factory=list)
    splits: Counter[str] = field(default_factory=Counter)
    """Splits other than train that a column `split` names, which is read only if `columns` says so."""

    def add(self, runs: Sequence[Trajectory]) -> list[IngestStatus]:
        """Store runs under the name of their original file, which may differ from the converted file."""
        sources = [Source(format=run.source.format, uri=self.origin.name, sha256=self.origin.sha256) for run in runs]
        named = [run.model_copy(update={"source": source}) for run, source in zip(runs, sources, strict=True)]
        added = self.services.store.trajectories.add_many(named, self.services.clock())
        self.splits.update(splits_beside_train(named))
        self.runs += [stored_run(new.id, run) for new, run in zip(added, named, strict=True)]
        return [new.status for new in added]


def freeze_file(
    services: Services, path: str, columns: Mapping[str, str], options: ExportOptions, tally: ExportCounts
) -> WrittenDataset:
    """Freeze a file of rows into a dataset; unreadable rows are listed in `tally.rejected`.

    The path is that of a file or folder under the allowed roots, or the name of a data set of the Hub. `columns` maps
    names that the readers know to columns, and `good` and `bad` to values of the label.
    """
    with tempfile.TemporaryDirectory(prefix="rows-", dir=services.settings.home) as aside:
        origins, runs = list[_Origin](), list[StoredRun]()
        request = _requested(path, columns, Path(aside), options)
        _require_one_split(request, options)
        placed: dict[str, SplitName] = {}
        for origin in _origins(services, request, tally):
            origins.append(origin)
            rejected = [Rejected(file=origin.short, line=n, reason=safe_name(why)) for n, why in origin.report.rejected]
            tally.reject(rejected, origin.report.n_rejected)
            if not request.text and origin.lines.stat().st_size:
                found = _stored(services, origin, options, tally)
                runs += found.runs
                if origin.split is not None:
                    placed = {run.id: origin.split for run in found.runs} | placed
                elif found.splits and options.kind != "benchmark":
                    tally.notes.append(note_unread_splits(found.splits))
        files = [{"name": origin.name, "sha256": origin.sha256} for origin in origins]
        source = {"source": {"files": files, "columns": dict(columns)}}
        options = replace(options, about=source, placed=placed)
        if request.text:
            texts = [TextFile(origin.lines, origin.short) for origin in origins]
            return freeze_text(services, texts, options, tally)
        is_named = bool(runs) or any(has_fields(origin.lines) for origin in origins)
    _require_readable(path, columns, runs, options, tally, is_named=is_named)
    statements, ids = row_statements(runs, options, tally)
    if statements.pairs:  # a run may stand in several
        options = replace(options, criteria=replace(options.criteria, keep_repeats=True))
    stored = services.store.trajectories.iterate(ids=ids)
    return freeze(services, lines_of(services, stored, options, tally, statements), options, tally)


def _requested(path: str, columns: Mapping[str, str], aside: Path, options: ExportOptions) -> _RowRequest:
    """Return the request, with the columns that the readers of rows read apart from the others."""
    read = {name: column for name, column in columns.items() if name not in {SPLIT, *VALUES}}
    marks = {name: value for name, value in columns.items() if name in VALUES}
    for name in marks:
        if not any(needed in read for needed in VALUES[name]):
            needed = " or ".join(VALUES[name])
            raise InvalidInput(
                f"columns: expected the column of the {needed} beside {shown(marks)}, got none; name `{needed}`"
            )
    where = options.criteria.curation.where or {}
    return _RowRequest(path, read, aside, options.kind == "text", columns.get(SPLIT), marks, where)


def _require_one_split(request: _RowRequest, options: ExportOptions) -> None:
    if request.split is None:
        return
    if request.text or options.kind == "benchmark":
        raise InvalidInput(
            f"columns: expected no {SPLIT!r} with kind {options.kind!r}, which has one split; leave it out"
        )
    if any(options.shares.values()):
        raise InvalidInput(
            f"columns: expected either {SPLIT!r}, by which the rows name their split, or shares of tasks, got both; leave one out"
        )


def _require_readable(
    path: str,
    columns: Mapping[str, str],
    runs: Sequence[StoredRun],
    options: ExportOptions,
    tally: ExportCounts,
    *,
    is_named: bool,
) -> None:
    """Refuse files without a readable row, whose rows have fields if `is_named`, or without the marks that the kind needs."""
    if not runs and not tally.rejected and (left_out := tally.dropped["not_where"] + tally.dropped["not_a_number"]):
        raise InvalidInput(
            f"curation.where: expected rows of {clip(path)} with {shown(options.criteria.curation.where)}, got none of "
            f"{left_out}; {'; '.join([*tally.notes, 'widen it'])}",
            code="no_rows",
        )
    if not runs and not tally.rejected:
        reasons = ", ".join(f"{reason} {n}" for reason, n in tally.dropped.items())
        remedy = f"left out: {reasons}; correct `columns`" if reasons else "write one JSON object per line"
        raise InvalidInput(f"expected rows in {clip(path)}, got none; {remedy}", code="no_rows")
    examples = "; ".join(f"{row.place}: {row.reason}" for row in tally.rejected[:3])
    if not runs and not is_named:  # each reason names what to do with its file
        raise InvalidInput(f"none of the rows in {clip(path)} can be read: {examples}", code="no_rows")
    if not runs:
        raise InvalidInput(
            f"none of the rows in {clip(path)} can be read: {examples}; "
            f"{unread_remedy(columns, [row.reason for row in tally.rejected])}",
            code="no_rows",
        )
    by_marks = options.kind == "kto" and options.criteria.scorer is None
    if by_marks and not any(run.good is not None or run.ended for run in runs):
        unread = f" (others: {examples})" if examples else ""
        remedy = 'name the column of the marks, such as `columns={"label": "label"}`: 1 and 0 are read then'
        if any(run.reward is not None for run in runs):
            label = {"label": columns.get("reward", "reward"), "good": ">=4"}
            remedy = f"ratings become marks by a bound, such as `columns={label}` in place of the `reward`"
        raise InvalidInput(
            f"expected rows marked good or bad, got {len(runs)} rows of {clip(path)} without a label that is true or false{unread}; "
            f"{remedy}",
            code=NO_LABELS,
        )


def _stored(services: Services, origin: _Origin, options: ExportOptions, tally: ExportCounts) -> _RowSink:
    sink = _RowSink(services, origin)
    report = import_logs(origin.lines, ImportOptions(redact=services.settings.redact), sink)
    rejected = [Rejected(file=origin.short, line=row.line, reason=row.reason) for row in report.rejected]
    tally.reject(rejected, report.n_rejected)
    tally.notes += report.notes if sink.runs else ()
    if options.kind == "sft" and not options.criteria.chooses:
        tally.notes += note_sorting(report.columns)
    return sink


def _origins(services: Services, request: _RowRequest, tally: ExportCounts) -> Iterator[_Origin]:
    """Yield the row files of a path; files that must be converted first go to the folder `aside`."""
    place = place_of(services, request.path)
    if place is None:
        name = f"https://huggingface.co/datasets/{request.path}"
        read = request.inside(lambda _: hub_rows(request.path))
        _require_read(request, read, tally)
        for lines, report, split in _sides(request, "hub", read, None, tally):
            yield _Origin(lines, name, sha256_of(lines), report, split)
        return
    files = RowFiles(text_files(place), []) if request.text else row_files(place)
    if files.left_out:
        tally.notes.append(note_left_out(files.left_out, place))
    if files.taken:
        _require_read(request, request.inside(partial(rows_of, files.taken[0])), tally)
    for number, file in enumerate(files.taken):
        as_it_is = None if request.columns or request.where or needs_lines(file, text=request.text) else file
        name = str(file)
        if is_url(request.path):
            inside = file.relative_to(place).as_posix() if place.is_dir() else ""
            name = f"{url_of(services, request.path)}/{inside}".rstrip("/")
        name = safe_name(name) if services.settings.redact else name
        read = request.inside(partial(rows_of, file))
        for lines, report, split in _sides(request, str(number), read, as_it_is, tally):
            yield _Origin(lines, name, sha256_of(file), report, split)


def _sides(
    request: _RowRequest,
    name: str,
    read: Read,
    as_it_is: Path | None,
    tally: ExportCounts,
) -> Iterator[tuple[Path, Report, SplitName | None]]:
    """Yield the lines of a file of rows and their faults, for each split that its rows name.

    `as_it_is` is the file, if its lines can be read without a change.
    """
    if request.split is None and as_it_is is not None:
        yield as_it_is, Report(), None
        return
    require_marks(read(Report()), request.columns, request.marks)
    for split in LEARNED if request.split is not None else (None,):
        lines, report = request.aside / f"{name}-{split or 'all'}.jsonl", Report()
        counts = tally if split in (None, "train") else ExportCounts()
        rows = request.rows(read, report, counts)
        try:
            write_lines(of_split(rows, request.split, split, tally), request.columns, lines)
        except InvalidInput as error:  # what came before the damage is good, and so are the other files
            report.reject(None, error.message)
        yield lines, report if split in (None, "train") else Report(), split


def _require_read(request: _RowRequest, read: Read, tally: ExportCounts) -> None:
    first = list[object]()
    with suppress(InvalidInput):  # a damaged file is reported where it is read
        rows = request.rows(read, Report(), ExportCounts()) if request.columns else ()
        first += (row.value for row in islice(rows, _SAMPLED))
    require_read_columns(request.columns, first, request.aside, text=request.text)
    tally.notes += note_unread_verdict(first, request.columns)
