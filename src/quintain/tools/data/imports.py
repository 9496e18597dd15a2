"""Import: the agent logs of a file or folder become stored runs, redacted, each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field

from quintain.artifacts.locations import is_url
from quintain.errors import InvalidInput, Unavailable
from quintain.importers.pipeline import ImportOptions, import_logs, measure
from quintain.importers.registry import importer
from quintain.importers.run_sink import DryRun, RunSink, same_file
from quintain.next_step import Hint
from quintain.records.imports import FileStamp, ImportReport, IngestStatus, RunLink
from quintain.records.jobs.job import ImportSpec
from quintain.records.tags import require_tags
from quintain.records.text import require_clean
from quintain.records.trajectory import Trajectory
from quintain.records.wording import counted
from quintain.tools.jobs.after_import import after_import
from quintain.tools.results import ImportResult
from quintain.tools.roots import nothing_at, readable, url_of
from quintain.tools.run_selection import short_schema
from quintain.tools.services import Services

IN_CALL_BYTES = 48 * 2**20
"""Larger imports become a job: a call should end within 20 s, also on a disk or core of half the speed."""

LABELS = "labels"
"""Format of a table of labels of stored runs, which is no log."""

MOST_FILES = 10_000
"""Files that an answer lists at most."""

_SHOWN = 50
"""Files and rejections in an answer by default; the rest is counted."""


def import_trajectories(
    services: Services,
    path: Annotated[
        str, Field(min_length=1, max_length=4096, description="File, folder or URL; relative: in the inbox.")
    ],
    format: Annotated[str, Field(max_length=60, description="By name; auto: detected file by file.")] = "auto",
    dry_run: Annotated[bool, Field(description="Only report.")] = False,
    tags: Annotated[list[str] | None, Field(max_length=50, description="Tags.")] = None,
    agent: Annotated[str | None, Field(max_length=200, description="Who acted, if not in the log.")] = None,
    again: Annotated[bool, Field(description="Unchanged files too.")] = False,
    max_files: Annotated[int, Field(ge=1, le=MOST_FILES, description="Files listed in the answer.")] = _SHOWN,
    columns: Annotated[
        dict[str, str] | None,
        Field(
            max_length=30,
            description="Of labels: run, label, rater, ... -> column; good, bad, worst, best -> value.",
        ),
        short_schema("object", maxProperties=30),
    ] = None,
) -> ImportResult:
    """Read agent logs (Claude Code, Codex, chat messages, many more) into runs, or labels of stored runs from a table.

    Secrets are redacted. An unstated outcome is unknown. Large folders become a job.
    The same file again adds nothing; a longer session replaces its beginning.
    """
    require_clean([*(tags or []), agent or ""], "tags, agent")
    agent = services.redacted(agent) if agent else None
    labels = tuple(dict.fromkeys(map(services.redacted, require_tags(tags or ()))))
    is_table = format == LABELS or columns is not None
    if is_table and (format not in ("auto", LABELS) or labels or agent):
        raise InvalidInput(
            "expected neither another format nor tags or agent beside `columns`, which name the columns of labels; leave them out"
        )
    if format not in ("auto", LABELS):
        importer(format)
    place = readable(services, path, "logs")
    if not place.exists():
        raise nothing_at(services, path, "logs")
    if is_table:
        return _labels(services, place, columns or {}, dry_run=dry_run, max_files=max_files)
    url = url_of(services, path) if is_url(path) else None
    if url is not None and place.is_file():
        url = url.rpartition("/")[0]
    options = ImportOptions(
        format=format, redact=services.settings.redact, tags=labels, agent=agent, max_files=max_files, url=url
    )
    # Runs of unchanged files get new tags and names too, so those files must be read.
    unchanged = {} if again or labels or agent else services.store.imports.stamps_below(place)
    if measure(place).bytes > IN_CALL_BYTES:
        return _as_job(services, place, options, tuple(unchanged.values()), dry_run=dry_run)
    if dry_run:
        report = import_logs(place, options, DryRun(unchanged))
    else:
        report = _stored(place, options, _StoreSink(services, unchanged))
    is_plain = format == "auto" and place.is_file() and not (labels or agent)
    if is_plain and (found := _labels_instead(services, place, report, dry_run=dry_run, max_files=max_files)):
        return found
    return result_of(report, dry_run=dry_run, max_files=max_files, tags=labels)


def _labels(
    services: Services, place: Path, columns: Mapping[str, str], *, dry_run: bool, max_files: int
) -> ImportResult:
    from quintain.tools.labels.label_files.imports import import_labels  # few imports are of labels

    return import_labels(services, place, columns, limit_bytes=IN_CALL_BYTES, dry_run=dry_run, max_files=max_files)


def _labels_instead(
    services: Services, place: Path, report: ImportReport, *, dry_run: bool, max_files: int
) -> ImportResult | None:
    """Return the import of a file without runs as labels; None where it has runs, or names no stored ones."""
    if report.imported or report.updated or report.duplicates or report.unchanged or report.forgotten:
        return None
    try:
        return _labels(services, place, {}, dry_run=dry_run, max_files=max_files)
    except InvalidInput as error:
        if error.code in ("no_runs_named", "no_rows"):
            return None
        raise


def _stored(place: Path, options: ImportOptions, sink: _StoreSink) -> ImportReport:
    """Import; if the store becomes unavailable on the way, report what was stored."""
    try:
        return import_logs(place, options, sink)
    except Unavailable as error:
        if not sink.arrivals:
            raise
        new, updated = counted(sink.arrivals["new"], "run"), sink.arrivals["grown"] + sink.arrivals["completed"]
        raise Unavailable(
            f"the import ended early: {new} were stored and {updated} updated; then {error.message}. Import the "
            "same path again for the rest; each run is stored once",
            code=error.code,
        ) from error


@dataclass(frozen=True)
class _StoreSink(RunSink):
    """Stores runs as they arrive, and records which files are done."""

    services: Services
    unchanged: Mapping[str, FileStamp]
    arrivals: Counter[IngestStatus] = field(default_factory=Counter)
    """Status -> number of runs so far."""

    def is_unchanged(self, stamp: FileStamp) -> bool:
        return same_file(stamp, self.unchanged)

    def add(self, runs: Sequence[Trajectory]) -> list[IngestStatus]:
        added = self.services.store.trajectories.add_many(runs, self.services.clock())
        arrivals = [one.status for one in added]
        self.arrivals.update(arrivals)
        return arrivals

    def link(self, links: Sequence[RunLink]) -> None:
        self.services.store.trajectories.link(links)

    def finish_files(self, stamps: Sequence[FileStamp]) -> None:
        self.services.store.imports.add(stamps, self.services.clock())


def _as_job(
    services: Services, place: Path, options: ImportOptions, unchanged: tuple[FileStamp, ...], *, dry_run: bool
) -> ImportResult:
    from quintain.tools.jobs.jobs import start  # not needed for what is read within the call

    spec = ImportSpec(
        path=str(place),
        format=options.format,
        url=options.url,
        redact=options.redact,
        tags=options.tags,
        acted_by=options.agent,
        dry_run=dry_run,
        max_files=max(options.max_files, ImportSpec.model_fields["max_files"].default),
        unchanged=unchanged,
    )
    started = start(services, spec)
    return ImportResult(
        job_id=started.job_id,
        status=started.status,
        resource_uri=started.resource_uri,
        next_step=Hint(
            "These logs are large, so a job reads them. ",
            started.next_step,
            " Its result has the facts of this answer.",
        ),
    )


def result_of(
    report: ImportReport, *, dry_run: bool, max_files: int = _SHOWN, tags: Sequence[str] = ()
) -> ImportResult:
    """Return the tool's answer for a finished import, with at most `max_files` files and at least 50 rejections."""
    shared = {name: getattr(report, name) for name in ImportResult.model_fields if name in ImportReport.model_fields}
    return ImportResult(
        **{**shared, "rejected": report.rejected[: max(_SHOWN, max_files)], "files": report.files[:max_files]},
        rejected_count=report.n_rejected,
        refused_count=report.n_refused,
        file_count=report.n_files,
        unchanged_files=report.unchanged,
        next_step=after_import(report, {"tags": list(tags)} if tags else None, dry_run=dry_run),
    )
