"""`quintain evaluate`: measure an agent and see what it can do, where it fails, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from quintain.cli.border import REFUSED, Command
from quintain.cli.jobs import watch
from quintain.cli.remedies import in_commands
from quintain.cli.reports import require_ending, write_report
from quintain.evaluation.reports.report import Report, Table, evaluation_report
from quintain.exporters.preview_page import printable
from quintain.records.job import UNFINISHED
from quintain.tools.evaluation.rollouts import evaluate_agent
from quintain.tools.training.agents import resolve_agent


def run_evaluate(
    agent: str,
    asked: Mapping[str, Any],
    *,
    temperature: float | None,
    report: Path | None,
    json_out: bool,
    home: Path | None,
) -> int:
    """Evaluate and show the result.

    Args:
        agent: Whom to measure.
        asked: Arguments of `evaluate_agent`; None where they were not given.
        temperature: Of the sampling; None: as the agent was registered.
        report: File that receives a report; None: none.
        json_out: Print the evaluation as JSON.
        home: The home folder; None: the one of the settings.

    Returns:
        0: measured; 1: the job did not succeed; 2: refused; 130: left running by Ctrl-C.
    """
    console = Console(soft_wrap=True, highlight=False, markup=False, stderr=json_out)
    with Command(home) as command:
        require_ending(report)
        arguments = {name: value for name, value in asked.items() if value is not None and value != []}
        services = command.services()
        if temperature is not None:
            registered = resolve_agent(services, agent).sampling
            arguments["sampling"] = registered.model_copy(update={"temperature": temperature})
        started = evaluate_agent(services, agent, **arguments)
        view = watch(services, started.job_id, console)
        if view.status in UNFINISHED:
            return 130
        if view.result is None or view.result.evaluation_id is None:
            error = f" [{view.error.code}] {view.error.message}" if view.error else ""
            console.print(printable(f"{view.job_id} is {view.status}.{error}"), style="red")
            return 1
        evaluation = services.store.evaluations.get(view.result.evaluation_id)
        if json_out:
            Console(soft_wrap=True, highlight=False, markup=False, emoji=False).print(evaluation.model_dump_json())
        else:
            show(console, evaluation_report(evaluation))
            console.print(printable(in_commands(view.next_step)))
        if report is not None:
            write_report(evaluation, report)
            console.print(printable(f"Report: {report}"))
        return 0
    return REFUSED


def show(console: Console, report: Report) -> None:
    """Show a report on the terminal; ids stay whole, however long a line gets."""
    console.print(printable(report.title), style="bold")
    for section in report.sections:
        console.print(printable(f"\n{section.heading}"), style="bold")
        for line in section.lines:
            console.print(printable(line))
        for line in _columns(section.table) if section.table is not None else ():
            console.print(line)


def _columns(table: Table) -> Iterator[str]:
    rows = [tuple(map(printable, row)) for row in ([table.header] if any(table.header) else []) + list(table.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
