"""`quintain jobs`: list, show, watch, cancel and resume jobs; and following the job that another command started."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

from quintain.cli.command_lines import command_line, for_terminal
from quintain.cli.session import (
    INTERRUPTED,
    Use,
    collected_interrupts,
    in_line,
    plain_console,
    print_json,
    show_next_step,
)
from quintain.next_step import call
from quintain.records.job import UNFINISHED, JobResult
from quintain.records.text import printable
from quintain.tools.jobs.jobs import get_job
from quintain.tools.results import CompareResult, JobStarted, JobView
from quintain.tools.services import Services


def run_list(use: Use) -> int:
    """List jobs; returns the exit status."""
    found = use.call(use.services())
    if use.json_out:
        print_json(found)
        return 0
    names = ("job", "status", "step", "created")
    job, *others = (Column(name, no_wrap=True) for name in names)
    label = Column("label", no_wrap=True, overflow="ellipsis", ratio=1)
    table = Table(job, label, *others, box=None, expand=True)
    for item in found.items:
        step = f"{item.step}/{item.total_steps or '?'}"
        waits = f"waits for {', '.join(item.waiting_for.held_by)}: " if item.waiting_for else ""
        cells = (item.job_id, printable(f"{waits}{item.label}"), item.status, step)
        table.add_row(*map(escape, cells), f"{item.created_at:%Y-%m-%d %H:%M:%S}")
    Console().print(table)
    show_next_step(plain_console(), found)
    return 0


def run_show(use: Use) -> int:
    """Show a job after the call; returns 1 where it has failed."""
    view = use.call(use.services())
    Console(soft_wrap=True).print_json(view.model_dump_json())
    return 1 if view.status == "failed" else 0


def run_watch(use: Use) -> int:
    """Follow a job to its end; returns 1 where it has failed, 130 where Ctrl-C ended the watching."""
    view = watch(use.services(), use.arguments["job_id"], Console())
    Console(soft_wrap=True).print_json(view.model_dump_json())
    return INTERRUPTED if view.status in UNFINISHED else 1 if view.status == "failed" else 0


def followed(services: Services, use: Use, started: JobStarted | CompareResult) -> JobView | int:
    """Show the warnings of a start and follow the job to its end; or return the exit status where the command ends before it."""
    assert started.job_id is not None
    for warning in started.warnings if isinstance(started, JobStarted) else ():
        plain_console(stderr=True).print(printable(for_terminal(warning)), style="yellow")
    if use.detach:
        plain_console().print(started.job_id)
        return 0
    view = watch(services, started.job_id, plain_console(stderr=use.json_out))
    return INTERRUPTED if view.status in UNFINISHED else view


def watch(services: Services, job_id: str, console: Console) -> JobView:
    """Show a job's progress until it has ended, or until Ctrl-C; the job itself goes on."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with collected_interrupts() as interrupts:
        view = get_job(services, job_id)
        with suppress(KeyboardInterrupt), Progress(*columns, console=console) as progress:
            bar = progress.add_task(job_id, total=None)
            while True:
                about = [job_id, view.phase or view.status, *_figures(view)]
                progress.update(bar, completed=view.step, total=view.total_steps, description=" ".join(about))
                if view.status not in UNFINISHED:
                    return view
                if interrupts:
                    break
                time.sleep(min(services.settings.poll_s, 1))
                view = get_job(services, job_id)
    follow, stop = call("get_job", job_id=job_id, wait_s=30), call("cancel_job", job_id=job_id)
    text = f"{job_id} keeps running. Watch it with `{command_line(follow)}`, stop it with `{command_line(stop)}`."
    console.print(text, soft_wrap=True)
    return view


def show_facts(console: Console, result: JobResult) -> None:
    """Print the facts of a result without its report."""
    for name, value in result.model_dump(mode="json", exclude_none=True, exclude={"report"}).items():
        console.print(printable(f"{name.replace('_', ' ')}: {in_line(value)}"))


def show_job(
    console: Console, view: JobView, show: Callable[[Console, JobResult], None] = show_facts, *, json_out: bool = False
) -> int:
    """Print the end of a job: its error, its result by `show`, its status and the next step. Return the exit status."""
    if json_out:
        print_json(view)
    else:
        if view.error is not None:
            text = f"[{view.error.code}] {view.error.message} {view.error.hint}".strip()
            console.print(printable(text), style="red")
        if view.result is not None:
            show(console, view.result)
        console.print(printable(f"{view.job_id} is {view.status}. {for_terminal(view.next_step)}"))
    return 0 if view.status == "succeeded" else 1


def _figures(view: JobView) -> list[str]:
    shown = {name: view.metrics.get(name) for name in ("loss", "success_rate", "failed", "usd")}
    figures = [f"{name} {value:.4g}" for name, value in shown.items() if value is not None]
    doing = [f"({view.activity})"] if view.activity is not None else []
    return [*figures, *doing, *([f"({view.stalled})"] if view.stalled else [])]
