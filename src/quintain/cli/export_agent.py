"""`quintain export-agent`: an agent's files for other programs, checked against the agent."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from quintain.cli.border import REFUSED, Command
from quintain.cli.jobs import watch
from quintain.cli.remedies import in_commands
from quintain.exporters.preview_page import printable
from quintain.records.handover import ExportFormat
from quintain.records.job import UNFINISHED
from quintain.tools.training.export_agent import export_agent


def run_export_agent(agent: str, format: ExportFormat, *, path: Path | None, json_out: bool, home: Path | None) -> int:
    """Export, and show what stands where and how near it is to the agent.

    Args:
        agent: Whom to hand over.
        format: As of the tool.
        path: The new folder; None: one in the home folder.
        json_out: Print the job's report as JSON.
        home: The home folder; None: the one of the settings.

    Returns:
        0: the files are there; 1: the job did not succeed; 2: refused; 130: left running by Ctrl-C.
    """
    console = Console(soft_wrap=True, highlight=False, markup=False, stderr=json_out)
    with Command(home) as command:
        services = command.services()
        started = export_agent(services, agent, format, None if path is None else str(path))
        view = watch(services, started.job_id, console)
        if view.status in UNFINISHED:
            return 130
        if view.result is None:
            error = f" [{view.error.code}] {view.error.message}" if view.error else ""
            console.print(printable(in_commands(f"{view.job_id} is {view.status}.{error}")), style="red")
            return 1
        report = view.result.report
        if json_out:
            Console(soft_wrap=True).print_json(data=report)
        else:
            parity = report["parity"]
            console.print(printable(f"{report['agent']} as {report['format']}: {report['path']}"), style="bold")
            console.print(f"{len(report['files'])} files, {report['bytes'] / 2**20:,.1f} MiB")
            console.print(
                f"read back: log-probs within {parity['max_difference']:.2g} nats of the agent's ({parity['bound']:g} allowed), "
                f"{parity['greedy_tokens']} greedy tokens equal"
            )
            for note in report["notes"]:
                console.print(printable(f"note: {note}"))
            console.print(printable(in_commands(view.next_step)))
        return 0
    return REFUSED
