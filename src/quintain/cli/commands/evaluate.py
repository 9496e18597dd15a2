"""`quintain evaluate` and `quintain compare`: how well agents do, and which one does better."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import Console

from quintain.cli.commands.jobs import follow_start, show_job
from quintain.cli.commands.reports import require_ending, write_report
from quintain.cli.layout import print_facts, print_table
from quintain.cli.session import CommandRun, plain_console, show_next_step
from quintain.evaluation.reports.report import Report, comparison_report, evaluation_report
from quintain.records.evaluation import Comparison, Evaluation
from quintain.records.text import printable
from quintain.tools.evaluation.comparison import comparison_of
from quintain.tools.results import Contrast


def run_evaluate(use: CommandRun) -> int:
    """Evaluate and show the result."""
    require_ending(use.own["report"])
    services = use.services()
    view = follow_start(services, use, use.call(services))
    if view.result is None or view.result.evaluation_id is None:
        return show_job(use, view)
    evaluation = services.store.evaluations.get(view.result.evaluation_id)

    def printed(console: Console, evaluation: Evaluation) -> None:
        print_report(console, evaluation_report(evaluation))
        show_next_step(console, view)

    return _show_measured(use, evaluation, printed)


def run_compare(use: CommandRun) -> int:
    """Compare and show the result."""
    require_ending(use.own["report"])
    services = use.services()
    found = use.call(services)
    if found.job_id is not None:
        view = follow_start(services, use, found)
        if view.result is None or view.result.comparison_id is None:
            return show_job(use, view)
        found = use.call(services)

    def printed(console: Console, comparison: Comparison) -> None:
        print_report(console, comparison_report(comparison))
        if found.contrast is not None:
            _show_contrast(console, found.contrast)
        console.print()
        show_next_step(console, found)

    more = {} if found.contrast is None else {"contrast": found.contrast.model_dump(mode="json")}
    return _show_measured(use, comparison_of(services, found.comparison_id), printed, **more)


def _show_measured(use: CommandRun, found: Any, printed: Callable[[Console, Any], None], **more: object) -> int:
    """Show what was measured, as JSON with more members, and write its report where one is asked for."""
    use.print_json(found, **more) if use.json_out else printed(plain_console(), found)
    if (path := use.own["report"]) is not None:
        write_report(found, path)
        plain_console(stderr=use.json_out).print(printable(f"Report: {path}"))
    return 0


def print_report(console: Console, report: Report) -> None:
    """Print a report; ids stay whole."""
    console.print(printable(report.title), style="bold")
    for section in report.sections:
        console.print(printable(f"\n{section.heading}"), style="bold")
        for line in section.lines:
            console.print(printable(line))
        if section.table is not None and not any(section.table.header):
            print_facts(console, {row[0]: row[1] for row in section.table.rows})
        elif section.table is not None:
            print_table(console, section.table.header, section.table.rows[: section.shown])
            if (left := len(section.table.rows) - section.shown) > 0:
                console.print(f"{left:,} more are in the output of --json.")


def _show_contrast(console: Console, contrast: Contrast) -> None:
    """Print two runs of one task, one after the other."""
    console.print(printable(f"\n{contrast.task_id}: {contrast.prompt}"), style="bold")
    for title, run in (("Solved by", contrast.solved), ("Failed by", contrast.failed)):
        console.print(printable(f"{title} {run.agent} ({run.trajectory_id})"))
        for line in run.lines:
            console.print(printable(f"  {line}"))
