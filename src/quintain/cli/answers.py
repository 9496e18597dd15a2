"""Results of tools at the terminal: as JSON, as facts with the next step, or a job followed to its end."""

from __future__ import annotations

import json

from rich.console import Console

from quintain.cli.command_lines import render_for_terminal
from quintain.cli.commands.jobs import follow_start, show_job
from quintain.cli.layout import print_facts
from quintain.cli.session import CommandRun, plain_console, show_next_step, write_file
from quintain.records.record import Record
from quintain.records.text import printable
from quintain.tools.catalog import Picture
from quintain.tools.results import JobStarted


def run_tool(use: CommandRun) -> int:
    """Run a tool and show its result; 1 where the job did not succeed, or the plan cannot be carried out."""
    services = use.services()
    result = use.call(services)
    if isinstance(result, JobStarted):
        return show_job(use, follow_start(services, use, result))
    if isinstance(result, Picture):
        _show_picture(plain_console(), result, use)
    else:
        use.show(result)
    return int(getattr(result, "status", "") == "failed" or bool(getattr(result, "blockers", ())))


def _show_picture(console: Console, picture: Picture, use: CommandRun) -> None:
    out = use.own.get("out")
    if out is not None and picture.png is not None:
        write_file(out, picture.png, "the picture")
    if use.json_out:
        console.print(json.dumps({"text": picture.text, "out": None if out is None else str(out)}))
        return
    console.print(printable(render_for_terminal(picture.text)))
    if out is not None:
        console.print(printable(f"Picture: {out}"))


def show_record(console: Console, result: Record) -> None:
    """Print the facts of a result, and the next step as a command."""
    print_facts(console, result.model_dump(exclude_none=True, exclude={"next_step", "resource_uri"}))
    show_next_step(console, result)
