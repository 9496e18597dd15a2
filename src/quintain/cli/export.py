"""`quintain export`: a dataset from a terminal, and the folder that another trainer reads."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError
from rich.console import Console

from quintain.cli.border import REFUSED, Command
from quintain.cli.remedies import in_commands
from quintain.errors import Conflict, InvalidInput, Unavailable
from quintain.exporters.preview_page import printable
from quintain.records.dataset import Curation, DatasetKind
from quintain.records.filters import TrajectoryFilter
from quintain.records.record import counted, explain, nearest, shown
from quintain.records.trajectory import OutcomeStatus
from quintain.tools.data.datasets import export_dataset
from quintain.tools.results import ExportResult

_EVER = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Asked:
    """What the command line asks for; None and empty: not asked."""

    kind: str
    name: str
    everything: bool
    """Take every stored run."""
    filter: Mapping[str, Any]
    """Fields of `TrajectoryFilter`."""
    curation: Mapping[str, Any]
    """Fields of `Curation`."""
    options: Mapping[str, Any]
    """Further arguments of `export_dataset`."""


def run_export(asked: Asked, *, out: Path | None, json_out: bool, home: Path | None) -> int:
    """Freeze the chosen runs, write them in the format asked for, and show what was left out and why.

    Returns:
        0: the dataset is there; 2: the request was refused.
    """
    console = Console(soft_wrap=True, highlight=False)
    with Command(home) as command:
        if out is not None and out.exists():
            raise Conflict(f"{out} exists and an export never changes; name a new folder with --out")
        arguments = _arguments(asked)
        services = command.services()
        result = export_dataset(services, **arguments)
        if out is not None:
            _copy(Path(result.path), out)
            result = result.model_copy(update={"path": str(out.resolve())})
        if json_out:
            console.print_json(result.model_dump_json())
        else:
            _show(console, result)
        return 0
    return REFUSED


def _arguments(asked: Asked) -> dict[str, Any]:
    kinds = get_args(DatasetKind)
    if asked.kind not in kinds:
        raise InvalidInput(
            f"no kind is called {shown(asked.kind)}{nearest(asked.kind, kinds)}; valid: {', '.join(kinds)}"
        )
    chosen = _given(asked.filter)
    if asked.everything and not chosen:
        chosen = {"since": _EVER}
    options = _given(asked.options)
    if not chosen and "path" not in options:
        raise InvalidInput(
            "which runs? Name them with --agent, --environment, --task-type, --tag or --text, take every stored run with "
            "--all, or give ready-made rows with --rows",
            code="empty_filter",
        )
    if "path" in options:
        options["path"] = str(Path(options["path"]).absolute()) if Path(options["path"]).exists() else options["path"]
    if "columns" in options:
        options["columns"] = _columns(options["columns"])
    outcomes = [outcome.value for outcome in OutcomeStatus]
    for outcome in options.get("outcomes", ()):
        if outcome not in outcomes:
            raise InvalidInput(
                f"--keep {shown(outcome)} is no outcome{nearest(outcome, outcomes)}; valid: {', '.join(outcomes)}"
            )
    try:
        curation = Curation.model_validate(_given(asked.curation))
        filter = TrajectoryFilter.model_validate(chosen) if chosen else None
    except ValidationError as error:
        raise InvalidInput(explain(error, "option")) from None
    return {"kind": asked.kind, "name": asked.name, "filter": filter, "curation": curation, **options}


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None and value != []}


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
        raise Unavailable(f"{source} could not be copied to {out} ({error}); it lies there, copy it yourself") from None


def _show(console: Console, result: ExportResult) -> None:
    splits = ", ".join(f"{name} {n:,}" for name, n in result.splits.items())
    rows, runs = counted(result.rows, "row"), counted(result.trajectories, "run")
    console.print(f"{result.dataset_id}: {rows} of kind {result.kind} ({splits})", style="bold")
    source = f"from {runs}; " if result.trajectories else ""
    console.print(f"{source}left out: {_counted(result.dropped)}", markup=False)
    if result.redactions:
        console.print(f"redacted: {_counted(result.redactions)}", markup=False)
    for name, shares in result.distribution.items():
        console.print(f"  {name}: {_counted(shares)}", markup=False)
    for row in result.rejected:
        console.print(printable(f"  {row.place}: {row.reason}"), markup=False, style="yellow")
    for warning in result.warnings:
        console.print(printable(f"  note: {warning}"), markup=False)
    console.print(f"format {result.format}: {result.path}", markup=False)
    console.print(in_commands(result.next_step), markup=False)


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {n:,}" for name, n in counts.items()) or "nothing"


def _columns(given: Sequence[str]) -> dict[str, str]:
    """`prompt=question` as a column and its name in the file.

    Raises:
        InvalidInput: another form.
    """
    pairs = [column.partition("=") for column in given]
    if wrong := [name for name, sign, theirs in pairs if not (name and sign and theirs)]:
        raise InvalidInput(f"--column {wrong[0]!r} must be NAME=COLUMN, such as prompt=question")
    return {name: theirs for name, _, theirs in pairs}
