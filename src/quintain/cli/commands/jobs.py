"""`quintain jobs`: list, show, watch, cancel, resume and put first jobs; and following the job that another command started."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from quintain.cli.command_lines import command_line, explain_for_terminal, render_for_terminal
from quintain.cli.completion import completion_of
from quintain.cli.layout import Column, cut, print_facts, print_table
from quintain.cli.main import HomeOption
from quintain.cli.session import (
    INTERRUPTED,
    CommandRun,
    Session,
    collected_interrupts,
    plain_console,
    show_next_step,
)
from quintain.next_step import Hint, call
from quintain.records.jobs.job import UNFINISHED, JobResult
from quintain.records.text import printable
from quintain.tools.jobs.figures import sparkline
from quintain.tools.jobs.jobs import get_job
from quintain.tools.results import CompareResult, JobList, JobStarted, JobView, ScoreResult
from quintain.tools.services import Services


def show_list(console: Console, found: JobList) -> None:
    """Print a list of jobs."""
    rows = []
    for item in found.items:
        step = f"{item.step}/{item.total_steps or '?'}" if item.step or item.total_steps else ""
        waits = f"waits for {', '.join(item.waiting_for.held_by)}: " if item.waiting_for else ""
        waits = "seems stalled: " if item.stalled else waits
        rows.append((item.job_id, item.status, step, f"{item.created_at:%m-%d %H:%M}", f"{waits}{item.label}"))
    if rows:
        columns = ("job", "status", Column("step", right=True), "created", Column("work", cut=True))
        print_table(console, columns, rows)
    show_next_step(console, found)


def print_job(console: Console, view: JobView) -> None:
    """Print where a job is, its result or error, its curves and log where they were asked for, and the next step."""
    total = f" of {view.total_steps}" if view.total_steps else ""
    times = {name: getattr(view, name) for name in ("created_at", "started_at", "ended_at")}
    apart = {"label", "status", "step", "total_steps", "error", "result", "curves", "log", "next_step", "resource_uri"}
    facts = {
        "job": view.job_id,
        "work": view.label,
        "status": view.status,
        "step": f"{view.step}{total}",
        **view.model_dump(exclude_none=True, exclude={*apart, *times, "job_id", "attempt"}),
        **{name: f"{time:%Y-%m-%d %H:%M:%S} UTC" for name, time in times.items() if time is not None},
        "attempt": view.attempt if view.attempt > 1 else None,
    }
    print_facts(console, facts)
    _print_error(console, view)
    if view.result is not None:
        show_facts(console, view.result)
    for name, curve in (view.curves or {}).items():
        console.print(printable(f"{name}: {sparkline(curve.values)} {curve.values[0]:.4g} to {curve.values[-1]:.4g}"))
    if view.log:
        console.print(printable(view.log))
    show_next_step(console, view)


def _print_error(console: Console, view: JobView) -> None:
    if view.error is not None:
        text = render_for_terminal(Hint(f"[{view.error.code}] ", view.error.message, " ", view.error.hint)).strip()
        console.print(printable(text), style="red")


def first_command(
    job_id: Annotated[str, typer.Argument(help="A queued job.", autocompletion=completion_of("job_id", None))],
    home: HomeOption = None,
    json_out: Annotated[bool, typer.Option("--json", help="Print the job as JSON.")] = False,
) -> None:
    """Let a queued job start before the others that wait."""
    with Session(home) as session:
        services = session.services()
        view = get_job(services, services.jobs.put_first(job_id).id)
    if json_out:
        plain_console().print(view.model_dump_json(exclude_none=True), soft_wrap=True)
    else:
        print_job(plain_console(), view)


def run_watch(use: CommandRun) -> int:
    """Follow a job to its end; returns 1 where it did not succeed, 130 where Ctrl-C ended the watching."""
    view = watch(use.services(), use.arguments["job_id"], plain_console(stderr=use.json_out))
    if view.status not in UNFINISHED:
        return show_job(use, view)
    if use.json_out:
        use.print_json(view)
    return INTERRUPTED


def follow_start(services: Services, use: CommandRun, started: JobStarted | CompareResult | ScoreResult) -> JobView:
    """Show the warnings of a start, follow the job to its end, and show its own.

    Raises:
        typer.Exit: The command ends before the job: by --detach, or by Ctrl-C.
    """
    assert started.job_id is not None
    _warn(use, started.warnings if isinstance(started, JobStarted) else ())
    if use.detach:
        use.show(started, lambda console, _: console.print(started.job_id))
        raise typer.Exit
    view = watch(services, started.job_id, plain_console(stderr=use.json_out))
    if view.status in UNFINISHED:
        raise typer.Exit(INTERRUPTED)
    _warn(use, view.warnings)
    return view


_METER = 34
"""Columns for the bar, the counts and the time beside what a job does."""


def watch(services: Services, job_id: str, console: Console) -> JobView:
    """Show a job's progress, and once why it does not go on, until it has ended or until Ctrl-C; the job itself goes on."""
    shown = set[str]()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with collected_interrupts() as interrupts:
        view = get_job(services, job_id)
        with suppress(KeyboardInterrupt), Progress(*columns, console=console) as progress:
            bar = progress.add_task(job_id, total=None)
            while True:
                about = " ".join([job_id, view.phase or view.status, *_figures(view)])
                about = cut(about, max(console.width - _METER, len(job_id)))
                progress.update(bar, completed=view.step, total=view.total_steps, description=about)
                for kind, reason in (("trouble", view.trouble), ("stalled", view.stalled)):
                    if reason is not None and kind not in shown:
                        progress.console.print(printable(render_for_terminal(reason)), style="yellow", soft_wrap=True)
                        shown.add(kind)
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
    print_facts(console, result.model_dump(mode="json", exclude_none=True, exclude={"report"}))


def show_job(use: CommandRun, view: JobView, show: Callable[[Console, JobResult], None] = show_facts) -> int:
    """Print the end of a job: warnings, error, result by `show`, status and next step. Return the exit status."""
    if use.json_out:
        use.print_json(view)
    else:
        console = plain_console()
        _warn(use, view.warnings)
        _print_error(console, view)
        if view.result is not None:
            show(console, view.result)
        console.print(printable(f"{view.job_id}: {view.status}. {render_for_terminal(view.next_step)}"))
    return 0 if view.status == "succeeded" else 1


def _warn(use: CommandRun, warnings: Iterable[str]) -> None:
    new = [warning for warning in warnings if warning not in use.session.warned]
    use.session.warned.update(new)
    for warning in new:
        text = explain_for_terminal(warning, use.session.command)
        plain_console(stderr=True).print(printable(text), style="yellow")


def _figures(view: JobView) -> list[str]:
    shown = {name: view.metrics.get(name) for name in ("loss", "success_rate", "failed", "usd")}
    figures = [f"{name} {value:.4g}" for name, value in shown.items() if value is not None]
    doing = [f"({view.activity})"] if view.activity is not None else []
    return [*figures, *doing, *([f"({view.stalled})"] if view.stalled else [])]
