"""`quintain import`: logs from a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from quintain.cli.command_lines import explain_for_terminal
from quintain.cli.commands.jobs import show_job, watch
from quintain.cli.layout import Column, print_table
from quintain.cli.session import INTERRUPTED, CommandRun, plain_console, show_next_step
from quintain.records.imports import ImportReport
from quintain.records.jobs.job import UNFINISHED
from quintain.records.text import printable
from quintain.records.wording import counted
from quintain.tools.data.imports import LABELS, MOST_FILES, result_of
from quintain.tools.results import ImportResult

_LISTED = 50
"""Files in the table where nothing else is asked for; `--json` lists all."""


_COUNTS = (
    *("imported", "updated", "duplicates", "forgotten"),
    *("rejected_count", "refused_count", "file_count", "unchanged_files"),
)

_COLUMNS = (
    Column("file", fold=True),
    Column("format"),
    Column("sure"),
    *(Column(name, right=True) for name in ("runs", "turns", "calls", "results", "rejected")),
)


def run_import(use: CommandRun) -> int:
    """Import files or folders, one after the other, and show what came in, file by file; 1 where nothing did."""
    services = use.services(redact=()) if use.own["no_redact"] else use.services()
    listed = {"max_files": MOST_FILES, **use.arguments} if use.json_out else use.arguments
    max_files = int(listed.get("max_files", _LISTED))
    results = list[ImportResult]()
    for path in (use.arguments["path"], *(use.own["more"] or ())):
        result = use.call(services, path=path, max_files=max_files)
        if result.job_id:
            view = watch(services, result.job_id, plain_console(stderr=use.json_out))
            if view.status in UNFINISHED:
                return INTERRUPTED
            if view.result is None:
                return show_job(use, view)
            report = ImportReport.model_validate(view.result.report)
            result = result_of(report, dry_run=bool(use.arguments.get("dry_run")), max_files=max_files)
        results.append(result)
    result = results[0] if len(results) == 1 else _merged(results, max_files)
    use.show(result, show_import)
    return 0 if result.imported or result.updated or result.duplicates or result.unchanged_files else 1


def _merged(results: Sequence[ImportResult], max_files: int) -> ImportResult:
    """Merge several imports into one result, with the next step of the one that imported most."""
    most = max(results, key=lambda one: (one.imported or 0) + (one.updated or 0))
    formats = {one.format for one in results}
    sums: dict[str, Any] = {name: sum(getattr(one, name) or 0 for one in results) for name in _COUNTS}
    for name in ("redactions", "unknown"):
        sums[name] = dict(sum((Counter(getattr(one, name)) for one in results), Counter()))
    for name in ("files", "rejected", "notes"):
        sums[name] = tuple(item for one in results for item in getattr(one, name))
    sums |= {"files": sums["files"][:max_files], "notes": tuple(dict.fromkeys(sums["notes"]))}
    alike = {} if len(formats) == 1 else {"format": None, "confidence": None}
    return most.model_copy(update=sums | alike)


def show_import(console: Console, result: ImportResult) -> None:
    """Print an import, file by file."""
    rows = []
    for file in result.files:
        counts = (file.trajectories, file.steps, file.actions, file.observations, file.rejected)
        rows.append((file.file, file.format or "-", f"{file.confidence:.2f}", *counts))
    if rows:
        print_table(console, _COLUMNS, rows)
    for file in result.files:
        if file.unknown:
            most = sorted(file.unknown.items(), key=lambda item: -item[1])[:3]
            skipped = ", ".join(f"{kind} {n}" for kind, n in most)
            console.print(printable(f"  {file.file}: skipped records: {skipped}"))
    if (left := (result.file_count or 0) - (result.unchanged_files or 0) - len(result.files)) > 0:
        console.print(f"  and {left:,} more of {result.file_count:,} files; --json lists all", markup=False)
    for rejected in result.rejected:
        console.print(
            f"  {rejected.place}: {explain_for_terminal(rejected.reason, 'import')}", markup=False, style="yellow"
        )
    for note in result.notes:
        console.print(f"  note: {explain_for_terminal(note, 'import')}", markup=False)
    for label in result.labels:
        shown_label = ", ".join(f"{name} {value}" for name, value in label.items() if name != "line")
        console.print(f"  row {label['line']}: {printable(shown_label)}", markup=False)
    noun = "label" if result.format == LABELS else "run"
    how = " (longer now, or with new labels, outcomes or tags)" if result.updated and noun == "run" else ""
    unread = f", {counted(result.refused_count, 'file')} not read" if result.refused_count else ""
    redacted = ", ".join(f"{kind} {n}" for kind, n in sorted(result.redactions.items())) or "nothing"
    console.print(
        f"{counted(result.imported or 0, noun)} came in, {result.updated} were updated{how}, {result.duplicates} were known, "
        f"{counted(result.unchanged_files or 0, 'file')} unchanged, {result.rejected_count} rejected{unread}; redacted: {redacted}.",
        markup=False,
    )
    show_next_step(console, result, "import")
