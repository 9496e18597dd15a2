"""`quintain preview`: a dataset as a model will see it, in the terminal, as a page, or as JSON."""

from __future__ import annotations

import time
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from quintain.cli.command_lines import explain_for_terminal
from quintain.cli.session import INTERRUPTED, CommandRun, collected_interrupts, plain_console, write_file
from quintain.evaluation.reports.preview_page import describe_counts, describe_row, preview_page
from quintain.records.jobs.job import Job, PreviewSpec
from quintain.records.jobs.preview import Histogram, PreviewReport, Sample
from quintain.records.text import printable
from quintain.tools.data.preview import WAIT_S, follow, preview_spec
from quintain.tools.invocation import check
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
_MARKS, _CUT = ("⟦", "⟧"), ("⟪", "⟫")
"""Around what trains and what falls off, where there are no colours."""
_BAR_WIDTH = 40


def run_preview(use: CommandRun) -> int:
    """Preview and show; returns the exit status: 0 shown, 2 refused or failed, 130 left by Ctrl-C."""
    console, errors = plain_console(), plain_console(stderr=True)
    try:
        services = use.services()
        arguments = check(use.spec, use.arguments)
        sample = Sample(**{name: arguments[name] for name in ("rows", "show", "seed") if name in arguments})
        spec = preview_spec(
            services,
            arguments["dataset_id"],
            arguments["model"],
            arguments.get("method"),
            arguments.get("hyperparameters"),
            sample,
        )
        report = _finished(services, spec, errors)
        if (html := use.own["html"]) is not None:
            write_file(html, preview_page(report), "the page")
        if use.json_out:
            console.print(report.model_dump_json(indent=2, exclude_none=True))
        else:
            _show(console, report)
            if html is not None:
                console.print(f"The page is {html}.")
        return 0
    except KeyboardInterrupt:
        errors.print("The preview keeps running; the same command finds it again.")
        return INTERRUPTED


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


def _show(console: Console, report: PreviewReport) -> None:
    statistics = report.statistics
    plain = console.no_color or console.color_system is None
    for row in report.rows:
        console.print(Text(printable(describe_row(row)), style="bold"))
        body = Text()
        for (trained, cut), spans in groupby(row.spans, key=lambda span: (span.trained, span.cut)):
            marks = _CUT if plain and cut else _MARKS if plain and trained else ("", "")
            body.append(marks[0])
            for span in spans:
                style = _TRAINED if trained else _STYLES[span.by]
                body.append(printable(span.text), style=f"{style} strike" if cut else style)
            body.append(marks[1])
        console.print(body, end="\n\n")
    if report.rows:
        console.print("trained".join(_MARKS), "falls off".join(_CUT)) if plain else console.print(_key())
    table = Table(box=None, show_header=False)
    for name, value in describe_counts(report):
        table.add_row(Text(printable(name)), Text(printable(value)))
    console.print(table)
    _bars(console, statistics.lengths)
    for warning in statistics.warnings:
        if warning.partition("] ")[2] in statistics.verdict:
            continue
        console.print(Text(f"- {printable(explain_for_terminal(warning, 'export'))}"))
    ready = statistics.verdict.startswith("Ready")
    console.print(
        Text(printable(explain_for_terminal(statistics.verdict, "export")), style="bold green" if ready else "bold red")
    )


def _key() -> Text:
    key = Text("trained", style=_TRAINED)
    for name, style in _STYLES.items():
        key.append(" ").append(name, style=style)
    return key.append(" ").append("falls off", style="strike")


def _bars(console: Console, lengths: Histogram) -> None:
    most = max(lengths.counts, default=1)
    console.print(
        f"tokens before anything is cut: median {lengths.median}, 99% {lengths.p99}, longest {lengths.longest}"
    )
    first = next((place for place, n in enumerate(lengths.counts) if n), 0)
    for place, n in list(enumerate(lengths.counts))[first:]:
        console.print(f"{place * lengths.bin_tokens:>8}+ {n:>7} {'█' * round(_BAR_WIDTH * n / most)}")
