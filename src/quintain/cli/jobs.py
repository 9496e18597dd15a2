"""`quintain jobs`: look after jobs from a terminal."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from quintain.cli.border import REFUSED, Command
from quintain.cli.interrupts import collected_interrupts
from quintain.errors import InvalidInput
from quintain.records.job import UNFINISHED
from quintain.tools.jobs.jobs import cancel_job, get_job, list_jobs, resume_job
from quintain.tools.results import JobView
from quintain.tools.services import Services


def run_jobs(action: str, job_id: str | None, home: Path | None) -> int:
    """Carry out one action on jobs; returns the exit status."""
    console = Console()
    with Command(home) as command:
        services = command.services()
        if action == "list":
            console.print(_table(services))
            return 0
        if job_id is None:
            raise InvalidInput(f"`quintain jobs {action}` needs a job id; `quintain jobs` lists them")
        if action == "watch":
            view = watch(services, job_id, console)
        else:
            view = {"show": get_job, "cancel": cancel_job, "resume": resume_job}[action](services, job_id)
        console.print_json(view.model_dump_json())
        if action == "watch" and view.status in UNFINISHED:
            return 130  # what a shell expects of a command that Ctrl-C ended
        return 0 if view.status not in {"failed"} else 1
    return REFUSED


def _table(services: Services) -> Table:
    table = Table("job", "kind", "status", "step", "created", box=None)
    for item in list_jobs(services, limit=50).items:
        step = f"{item.step}/{item.total_steps or '?'}"
        table.add_row(item.job_id, item.kind, item.status, step, f"{item.created_at:%Y-%m-%d %H:%M:%S}")
    return table


def watch(services: Services, job_id: str, console: Console) -> JobView:
    """Show a job's progress until it has ended, or until Ctrl-C; the job itself goes on."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with collected_interrupts() as left:
        view = get_job(services, job_id)
        with suppress(KeyboardInterrupt), Progress(*columns, console=console) as progress:
            bar = progress.add_task(job_id, total=None)
            while True:
                about = [job_id, view.phase or view.status, *_figures(view)]
                progress.update(bar, completed=view.step, total=view.total_steps, description=" ".join(about))
                if view.status not in UNFINISHED:
                    return view
                if left:
                    break
                time.sleep(min(services.settings.poll_s, 1))
                view = get_job(services, job_id)
    console.print(
        f"{job_id} goes on without you. Watch it again with `quintain jobs watch {job_id}`, stop it with "
        f"`quintain jobs cancel {job_id}`.",
        soft_wrap=True,
    )
    return view


def _figures(view: JobView) -> list[str]:
    shown = {name: view.metrics.get(name) for name in ("loss", "success_rate", "failed", "usd")}
    return [f"{name} {value:.4g}" for name, value in shown.items() if value is not None]
