"""`quintain compare`: which agent is better, by how much, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from quintain.cli.border import REFUSED, Command
from quintain.cli.evaluate import show
from quintain.cli.remedies import in_commands
from quintain.cli.reports import require_ending, write_report
from quintain.evaluation.reports.report import comparison_report
from quintain.exporters.preview_page import printable
from quintain.records.evaluation import Correction
from quintain.tools.evaluation.comparison import compare_agents, comparison_of


def run_compare(
    agents: Sequence[str],
    *,
    environment: str | None,
    correction: Correction,
    report: Path | None,
    json_out: bool,
    home: Path | None,
) -> int:
    """Compare and show the result; returns the exit status: 0 compared, 2 refused."""
    console = Console(soft_wrap=True, highlight=False, markup=False)
    with Command(home) as command:
        require_ending(report)
        services = command.services()
        found = compare_agents(services, list(agents), environment, correction)
        comparison = comparison_of(services, found.comparison_id)
        if json_out:
            console.print(comparison.model_dump_json(), emoji=False)
        else:
            show(console, comparison_report(comparison))
            console.print(printable(in_commands(f"\n{found.next_step}")))
        if report is not None:
            write_report(comparison, report)
            if not json_out:
                console.print(printable(f"Report: {report}"))
        return 0
    return REFUSED
