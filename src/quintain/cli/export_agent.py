"""`quintain export-agent`: an agent's files for other programs, checked against the agent."""

from __future__ import annotations

from quintain.cli.jobs import followed, show_end, show_error
from quintain.cli.session import Use, plain_console, show_next_step
from quintain.records.text import printable


def run_export_agent(use: Use) -> int:
    """Export, and show the files and how close they are to the agent.

    Returns:
        0: the files were written; 1: the job did not succeed; 2: refused; 130: left running by Ctrl-C.
    """
    console = plain_console(stderr=use.json_out)
    services = use.services()
    view = followed(services, use, use.call(services))
    if isinstance(view, int):
        return view
    if view.result is None:
        show_error(console, view)
        show_end(console, view)
        return 1
    report = view.result.report
    if use.json_out:
        plain_console().print_json(data=report)
        return 0
    parity = report["parity"]
    console.print(printable(f"{report['agent']} as {report['format']}: {report['path']}"), style="bold")
    console.print(f"{len(report['files'])} files, {report['bytes'] / 2**20:,.1f} MiB")
    console.print(
        f"read back: log-probs within {parity['max_difference']:.2g} nats of the agent's ({parity['bound']:g} allowed), "
        f"{parity['greedy_tokens']} greedy tokens equal"
    )
    for note in report["notes"]:
        console.print(printable(f"note: {note}"))
    show_next_step(console, view)
    return 0
