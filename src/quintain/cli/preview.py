"""`quintain preview`: a dataset as a model will see it, in the terminal, as a page, or as JSON."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from quintain.cli.border import REFUSED, Command
from quintain.cli.interrupts import collected_interrupts
from quintain.cli.train import read_settings
from quintain.errors import Unavailable
from quintain.exporters.preview_page import describe_counts, describe_row, preview_page, printable
from quintain.records.job import Job, PreviewSpec
from quintain.records.preview import Histogram, PreviewReport, Sample, Show
from quintain.tools.data.preview import WAIT_S, follow, preview_spec
from quintain.tools.services import Services

_STYLES = {
    "system": "magenta",
    "user": "blue",
    "agent": "green",
    "observation": "yellow",
    "template": "dim",
    "text": "dim",
}
_TRAINED = "black on green"
_BAR_WIDTH = 40


@dataclass(frozen=True)
class Asked:
    """What the command line asks for."""

    dataset: str
    model: str
    method: str | None
    settings: Sequence[str]
    rows: int
    show: Show
    seed: int


def run_preview(asked: Asked, *, html: Path | None, as_json: bool, home: Path | None) -> int:
    """Preview and show; returns the exit status: 0 shown, 2 refused or failed, 130 left by Ctrl-C."""
    console, errors = Console(soft_wrap=True, highlight=False), Console(stderr=True, soft_wrap=True)
    try:
        with Command(home) as command:
            hyperparameters: Mapping[str, Any] = read_settings(asked.settings)
            services = command.services()
            sample = Sample(rows=asked.rows, show=asked.show, seed=asked.seed)
            spec = preview_spec(services, asked.dataset, asked.model, asked.method, hyperparameters, sample)
            report = _finished(services, spec, errors)
            if html is not None:
                _write(html, preview_page(report))
            if as_json:
                console.print(report.model_dump_json(indent=2, exclude_none=True), markup=False)
            else:
                _show(console, report)
                if html is not None:
                    console.print(f"The page is {html}.", markup=False)
            return 0
    except KeyboardInterrupt:
        errors.print("The preview goes on without you; the same command finds it again.")
        return 130
    return REFUSED


def _finished(services: Services, spec: PreviewSpec, errors: Console) -> PreviewReport:
    with collected_interrupts() as left, errors.status("Opening the tokenizer ...") as status:
        while True:
            for state in follow(services, spec, WAIT_S):
                if not isinstance(state, Job):
                    return state
                if left:
                    raise KeyboardInterrupt
                status.update(_progress(state))
                time.sleep(min(services.settings.poll_s, 1))


def _progress(job: Job) -> str:
    counted = f" {job.step} of {job.total_steps} rows" if job.total_steps else ""
    return f"{job.id}: {job.phase or job.status}{counted}"


def _write(path: Path, page: str) -> None:
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise Unavailable(f"{path} cannot be written ({error.strerror}); name another file with --html") from None


def _show(console: Console, report: PreviewReport) -> None:
    statistics = report.statistics
    for row in report.rows:
        console.print(Text(printable(describe_row(row)), style="bold"))
        body = Text()
        for span in row.spans:
            style = _TRAINED if span.trained else _STYLES[span.by]
            body.append(printable(span.text), style=f"{style} strike" if span.cut else style)
        console.print(body, end="\n\n")
    if report.rows:
        key = Text("trained", style=_TRAINED)
        for name, style in _STYLES.items():
            key.append(" ").append(name, style=style)
        console.print(key.append(" ").append("falls off", style="strike"))
    table = Table(box=None, show_header=False)
    for name, value in describe_counts(report):
        table.add_row(Text(printable(name)), Text(printable(value)))
    console.print(table)
    _bars(console, statistics.lengths)
    for warning in statistics.warnings:
        console.print(Text(f"- {printable(warning)}"))
    ready = statistics.verdict.startswith("Ready")
    console.print(Text(printable(statistics.verdict), style="bold green" if ready else "bold red"))


def _bars(console: Console, lengths: Histogram) -> None:
    most = max(lengths.counts, default=1)
    console.print(
        f"tokens before anything is cut: median {lengths.median}, 99% {lengths.p99}, longest {lengths.longest}"
    )
    first = next((place for place, n in enumerate(lengths.counts) if n), 0)
    for place, n in list(enumerate(lengths.counts))[first:]:
        console.print(f"{place * lengths.bin_tokens:>8}+ {n:>7} {'█' * round(_BAR_WIDTH * n / most)}")
