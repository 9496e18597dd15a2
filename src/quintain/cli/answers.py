"""Results of tools at the terminal: as JSON, as facts with the next step, or a job followed to its end."""

from __future__ import annotations

from rich.console import Console

from quintain.cli.jobs import followed, show_job
from quintain.cli.session import Use, in_line, plain_console, print_json, show_next_step, write_file
from quintain.records.record import Record
from quintain.records.text import printable
from quintain.tools.results import JobStarted
from quintain.tools.spec import Picture


def run_tool(use: Use) -> int:
    """Run a tool and show its result.

    Returns:
        0: done; 1: the job did not succeed; 2: refused; 130: the job was left running by Ctrl-C.
    """
    console = plain_console()
    services = use.services()
    result = use.call(services)
    if isinstance(result, JobStarted):
        view = followed(services, use, result)
        return view if isinstance(view, int) else show_job(console, view, json_out=use.json_out)
    if isinstance(result, Picture):
        console.print(printable(result.text))
        if use.own.get("out") is not None:
            write_file(use.own["out"], result.png, "the picture")
            console.print(printable(f"Picture: {use.own['out']}"))
    elif use.json_out:
        print_json(result)
    else:
        show_record(console, result)
    return 0


def show_record(console: Console, result: Record) -> None:
    """Print the facts of a result as YAML-like lines, and the next step as a command."""
    for name, value in result.model_dump(mode="json", exclude_none=True).items():
        if name in ("next_step", "resource_uri") or value in ([], {}, ""):
            continue
        if isinstance(value, list):
            console.print(printable(f"{name}:"))
            for item in value:
                console.print(printable(f"  {in_line(item)}"))
        else:
            console.print(printable(f"{name}: {in_line(value)}"))
    show_next_step(console, result)
