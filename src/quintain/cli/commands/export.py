"""`quintain export` and `quintain export-agent`: a dataset, or the files of an agent, for other programs."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from quintain.cli.command_lines import explain_for_terminal
from quintain.cli.commands.jobs import follow_start, show_job
from quintain.cli.session import CommandRun, plain_console, show_next_step
from quintain.datasets.dataset_writer import folder_aside
from quintain.errors import Conflict, Unavailable
from quintain.records.text import printable
from quintain.records.wording import counted, size_text
from quintain.tools.results import ExportResult


def run_export(use: CommandRun) -> int:
    """Freeze the chosen runs, write them in the format asked for, and show what was left out and why."""
    out: Path | None = use.own["out"]
    if out is not None and out.exists():
        raise Conflict(f"{out} exists, and an export never changes; name a new folder with --out")
    rows = use.arguments.get("path")
    here = {"path": str(Path(rows).absolute())} if rows and Path(rows).exists() else {}
    result = use.call(use.services(), **here)
    if out is not None:
        _copy(Path(result.path), out)
        result = result.model_copy(update={"path": str(out.resolve())})
    use.show(result, _show)
    return 0


def run_export_agent(use: CommandRun) -> int:
    """Export, and show the files and how close they are to the agent."""
    console = plain_console(stderr=use.json_out)
    services = use.services()
    view = follow_start(services, use, use.call(services))
    if view.result is None:
        return show_job(use, view)
    report = view.result.report
    if use.json_out:
        plain_console().print_json(data=report)
        return 0
    parity = report["parity"]
    console.print(printable(f"{report['agent']} as {report['format']}: {report['path']}"), style="bold")
    console.print(f"{len(report['files'])} files, {size_text(report['bytes'])}")
    how = "run by llama.cpp" if report["format"] == "gguf" else "read back"
    console.print(
        f"{how}: log-probs differ from the agent's by {parity['mean_difference']:.2g} nats on average, {parity['max_difference']:.2g} at "
        f"most; {parity['greedy_tokens']} greedy tokens equal"
    )
    for note in report["notes"]:
        console.print(printable(f"note: {note}"))
    if report.get("pushed_to"):
        console.print(printable(f"pushed to {report['pushed_to']}"))
    show_next_step(console, view)
    return 0


def _copy(source: Path, out: Path) -> None:
    """Copy a folder; it appears whole or not at all."""
    try:
        with folder_aside(out) as aside:
            shutil.copytree(source, aside, dirs_exist_ok=True)
    except OSError as error:
        raise Unavailable(f"{source} could not be copied to {out} ({error}); copy it yourself") from None


def _show(console: Console, result: ExportResult) -> None:
    splits = ", ".join(f"{name} {n:,}" for name, n in result.splits.items())
    rows, runs = counted(result.dataset_rows, "row"), counted(result.trajectories, "run")
    is_whole = result.rows == result.dataset_rows
    shown = f" ({splits})" if is_whole else ""
    console.print(f"{result.dataset_id}: {rows} of kind {result.kind}{shown}", style="bold")
    source = f"from {runs}; " if result.trajectories else ""
    console.print(f"{source}left out: {_counted(result.dropped)}")
    if result.redactions:
        console.print(f"redacted: {_counted(result.redactions)}")
    for name, shares in result.distribution.items():
        console.print(f"  {name}: {_counted(shares)}")
    for row in result.rejected:
        console.print(printable(f"  {row.place}: {explain_for_terminal(row.reason, 'export')}"), style="yellow")
    for warning in result.warnings:
        console.print(printable(f"  note: {explain_for_terminal(warning, 'export')}"))
    of = "of" if result.rows < result.dataset_rows else "from"
    part = "" if is_whole else f"{result.rows:,} {of} the {rows} ({splits}) in "
    console.print(printable(f"format {result.format}: {part}{result.path}"))
    show_next_step(console, result, "export")


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {n:,}" for name, n in counts.items()) or "nothing"
