"""`quintain export`: a dataset from a terminal, and the folder that another trainer reads."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from quintain.cli.session import Use, plain_console, print_json, show_next_step
from quintain.errors import Conflict, Unavailable
from quintain.records.record import counted
from quintain.records.text import printable
from quintain.tools.results import ExportResult


def run_export(use: Use) -> int:
    """Freeze the chosen runs, write them in the format asked for, and show what was left out and why.

    Returns:
        0: the dataset was made; 2: the request was refused.
    """
    out: Path | None = use.own["out"]
    if out is not None and out.exists():
        raise Conflict(f"{out} exists, and an export never changes; name a new folder with --out")
    rows = use.arguments.get("path")
    here = {"path": str(Path(rows).absolute())} if rows and Path(rows).exists() else {}
    result = use.call(use.services(), **here)
    if out is not None:
        _copy(Path(result.path), out)
        result = result.model_copy(update={"path": str(out.resolve())})
    if use.json_out:
        print_json(result)
    else:
        _show(plain_console(), result)
    return 0


def _copy(source: Path, out: Path) -> None:
    """Copy a folder; it appears whole or not at all."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
        try:
            shutil.copytree(source, aside, dirs_exist_ok=True)
            aside.rename(out)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise Unavailable(f"{source} could not be copied to {out} ({error}); copy it yourself") from None


def _show(console: Console, result: ExportResult) -> None:
    splits = ", ".join(f"{name} {n:,}" for name, n in result.splits.items())
    rows, runs = counted(result.rows, "row"), counted(result.trajectories, "run")
    console.print(f"{result.dataset_id}: {rows} of kind {result.kind} ({splits})", style="bold")
    source = f"from {runs}; " if result.trajectories else ""
    console.print(f"{source}left out: {_counted(result.dropped)}")
    if result.redactions:
        console.print(f"redacted: {_counted(result.redactions)}")
    for name, shares in result.distribution.items():
        console.print(f"  {name}: {_counted(shares)}")
    for row in result.rejected:
        console.print(printable(f"  {row.place}: {row.reason}"), style="yellow")
    for warning in result.warnings:
        console.print(printable(f"  note: {warning}"))
    console.print(f"format {result.format}: {result.path}")
    show_next_step(console, result)


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {n:,}" for name, n in counts.items()) or "nothing"
