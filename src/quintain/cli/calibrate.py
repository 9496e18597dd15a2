"""`quintain calibrate`: fit a scorer to people's labels, and show how well it holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console

from quintain.cli.border import REFUSED, Command
from quintain.cli.remedies import in_commands
from quintain.errors import InvalidInput
from quintain.exporters.preview_page import printable
from quintain.tools.labels.calibration import calibration_picture, calibration_table, fit_calibration
from quintain.tools.results import CalibrationResult


@dataclass(frozen=True)
class Asked:
    """What the command line asks for."""

    scorer: str
    labels: str
    method: Literal["auto", "isotonic", "platt"]
    per_domain: bool


def run_calibrate(asked: Asked, *, picture: Path | None, json_out: bool, home: Path | None) -> int:
    """Fit, print and draw; returns the exit status: 0 fitted, 2 refused."""
    console = Console(soft_wrap=True, highlight=False, markup=False)
    with Command(home) as command:
        services = command.services()
        made = fit_calibration(services, asked.scorer, asked.labels, method=asked.method, per_domain=asked.per_domain)
        if json_out:
            console.print(made.model_dump_json(), emoji=False)
        else:
            _print(console, made, calibration_table(services, made.calibration_id))
        if picture is not None:
            _write(picture, calibration_picture(services, made.calibration_id))
            if not json_out:
                console.print(printable(f"Picture: {picture}"))
        return 0
    return REFUSED


def _print(console: Console, made: CalibrationResult, table: str) -> None:
    console.print(printable(f"{made.calibration_id}: {made.n_labels} labels"))
    console.print(
        f"Held-out error {made.error_before:.4f} -> {made.error_after:.4f}, Spearman {_number(made.spearman)}"
    )
    for line in table.splitlines():
        console.print(printable(line))
    for warning in made.warnings:
        console.print(printable(f"! {warning}"), style="yellow")
    console.print(printable(in_commands(made.next_step)))


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}"


def _write(path: Path, png: bytes) -> None:
    try:
        path.write_bytes(png)
    except OSError as error:
        raise InvalidInput(
            f"the picture cannot be written to {str(path)!r}: {error}; name a file in a folder that exists"
        ) from None
