"""Import: the agent logs of a file or folder become stored runs, redacted, each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from quintain.artifacts.locations import is_url
from quintain.errors import Unavailable
from quintain.importers.pipeline import ImportOptions, import_logs, measure
from quintain.importers.registry import importer
from quintain.importers.run_builder import NO_RUN
from quintain.importers.run_sink import DryRun, RunSink, same_file
from quintain.next_step import Hint, ToolCall, call
from quintain.records.imports import FileStamp, ImportReport, IngestStatus, RunLink
from quintain.records.jobs.job import ImportSpec
from quintain.records.tags import require_tags
from quintain.records.text import require_clean
from quintain.records.trajectory import Trajectory
from quintain.records.wording import clip, counted, list_names
from quintain.tools.data.unread_columns import TASKS
from quintain.tools.results import ImportResult
from quintain.tools.roots import nothing_at, readable, url_of
from quintain.tools.services import Services

if TYPE_CHECKING:
    from quintain.tools.results import JobStarted

IN_CALL_BYTES = 48 * 2**20
"""Larger imports become a job: a call should end within 20 s, also on a disk or core of half the speed."""

MOST_FILES = 10_000
"""Files that an answer lists at most."""

_SHOWN = 50
"""Files and rejections in an answer by default; the rest is counted."""


def import_trajectories(
    services: Services,
    path: Annotated[
        str, Field(min_length=1, max_length=4096, description="File, folder or URL of logs; relative: in the inbox.")
    ],
    format: Annotated[
        str, Field(max_length=60, description="A log format by name; auto: detected file by file.")
    ] = "auto",
    dry_run: Annotated[bool, Field(description="Report what would be imported; store nothing.")] = False,
    tags: Annotated[list[str] | None, Field(max_length=50, description="Labels.")] = None,
    agent: Annotated[str | None, Field(max_length=200, description="Who acted, where the log names nobody.")] = None,
    again: Annotated[bool, Field(description="Also read files unchanged since their last import.")] = False,
    max_files: Annotated[int, Field(ge=1, le=MOST_FILES, description="Files listed in the answer.")] = _SHOWN,
) -> ImportResult:
    """Read agent logs (Claude Code, Codex, OpenHands, SWE-agent, ATIF, chat messages, many more) into runs.

    Secrets are redacted. An outcome that is not stated is unknown. `rejected`: what cannot be read, and why.
    Large folders become a job. The same log again adds nothing; a longer session replaces its beginning.
    """
    require_clean([*(tags or []), agent or ""], "tags, agent")
    agent = services.redacted(agent) if agent else None
    labels = tuple(dict.fromkeys(map(services.redacted, require_tags(tags or ()))))
    if format != "auto":
        importer(format)
    place = readable(services, path, "logs")
    if not place.exists():
        raise nothing_at(services, path, "logs")
    url = url_of(services, path) if is_url(path) else None
    if url is not None and place.is_file():
        url = url.rpartition("/")[0]
    options = ImportOptions(
        format=format, redact=services.settings.redact, tags=labels, agent=agent, max_files=max_files, url=url
    )
    # Runs of unchanged files get new tags and names too, so those files must be read.
    unchanged = {} if again or labels or agent else services.store.imports.stamps_below(place)
    if measure(place).bytes > IN_CALL_BYTES:
        from quintain.tools.jobs.jobs import start  # not needed for what is read within the call

        spec = ImportSpec(
            path=str(place),
            format=format,
            url=url,
            redact=options.redact,
            tags=options.tags,
            acted_by=agent,
            dry_run=dry_run,
            max_files=max(max_files, ImportSpec.model_fields["max_files"].default),
            unchanged=tuple(unchanged.values()),
        )
        return _as_job(start(services, spec))
    if dry_run:
        return result_of(import_logs(place, options, DryRun(unchanged)), dry_run=True, max_files=max_files)
    report = _stored(place, options, _StoreSink(services, unchanged))
    return result_of(report, dry_run=False, max_files=max_files, tags=labels)


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


def _as_job(started: JobStarted) -> ImportResult:
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
        next_step=_next_step(report, tags, dry_run=dry_run),
    )


def _next_step(report: ImportReport, tags: Sequence[str], *, dry_run: bool) -> Hint:
    these: Any = {"tags": list(tags)} if tags else ...
    unread = _unread_step(report)
    first = Hint(unread, " ") if unread else unread
    met_before = report.updated or report.duplicates or report.unchanged or report.forgotten
    if not (report.imported or met_before):
        only_ask = {one.reason for one in report.rejected} == {NO_RUN}
        other = f"{TASKS[0].upper()}{TASKS[1:]}." if only_ask else "Set `format` if the logs have a known format."
        return Hint("No run was found. ", first, other)
    if dry_run and not (report.unchanged and not report.imported):
        return Hint(
            first, "Nothing was stored. Import without a dry run, or name the reader as `format` where it was wrong."
        )
    gone = f"{counted(report.forgotten, 'run')} left out, forgotten earlier. " if report.forgotten else ""
    if report.imported or report.updated:
        return Hint(
            gone,
            *_labels_step(report, these),
            "Look at them with ",
            call("search_trajectories", filter=these) if tags else call("search_trajectories"),
            *_outcome_step(report, these),
            *((" ", unread) if unread else ()),
        )
    if report.duplicates or report.unchanged:
        is_all = not report.n_rejected and not report.n_refused
        known = "Nothing new: these runs were imported before. " if is_all else "No run is new. "
        return Hint(gone, known, first, "With `again`, unchanged files are read again.")
    return Hint(
        f"{gone}Nothing else was in these logs; ",
        call("get_lineage", id=...),
        " shows what a forgotten run had touched.",
    )


def _unread_step(report: ImportReport) -> Hint:
    """Return how much was not read, and what reads tables and JSON of no known format; empty if everything was read."""
    counts = {"file": (report.n_refused, "not read"), "record": (report.n_rejected, "rejected")}
    unread = [f"{counted(n, noun)} {what}" for noun, (n, what) in counts.items() if n]
    step = Hint(f"{' and '.join(unread)}, each listed with its reason." if unread else "")
    if not report.n_unknown_rows:
        return step
    rows = call("export_dataset", kind="sft", name="rows", path=..., columns={"prompt": ..., "response": ...})
    return Hint(
        step,
        " Tables and rows with columns of their own become a dataset by ",
        rows,
        "; where a row is one message, name session_id, role and content; where a cell is a whole chat, messages, with the "
        "words before each speaker's lines as user and assistant. A format of your own is read by an importer in a package "
        "of yours.",
    )


def _outcome_step(report: ImportReport, these: Any) -> Iterator[str | ToolCall]:
    """Yield how runs become a dataset: by the outcomes that their logs state or, where these do not, that someone adds."""
    score = call("score_trajectories", scorer="rules", filter=these)
    if not report.unknown_outcomes:
        yield ". Freeze those that succeeded with "
        yield call("export_dataset", kind="sft", name="runs", filter=these)
        yield ", or score them by their steps: "
        yield score
    else:
        yield f". {counted(report.unknown_outcomes, 'outcome')} unknown: state those that you know: "
        yield call("record_trajectory", trajectory_id=..., outcome=...)
        if report.columns:
            named = list_names([repr(clip(name, 40)) for name in report.columns], 6)
            yield f"; or let a column of the rows ({named}: of few values) state it: "
            yield call("export_dataset", kind="kto", name="labels", path=..., columns={"label": ..., "good": ...})
        yield "; or score the runs: "
        yield score
        yield "; or train on them unchecked: "
        yield call("export_dataset", kind="sft", name="runs", filter=these, outcomes=["success", "unknown"])
    yield "."


def _labels_step(report: ImportReport, these: Any) -> Iterator[str | Hint]:
    """Yield what to do with the answers that the logs compare or label."""
    if report.paired:
        pairs = call("record_preferences", source="imported", filter=these)
        yield Hint("These logs compare answers: ", pairs, " makes pairs of them for training. ")
    if report.labelled:
        labels = call("export_dataset", kind="kto", name="labels", filter=these)
        yield Hint("These logs label answers good or bad: ", labels, " makes a dataset of both. ")
    if report.paired or report.labelled:
        yield "Kind sft leaves the rejected answers out. "
