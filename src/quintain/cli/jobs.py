"""`quintain jobs`: look after jobs from a terminal."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from quintain.errors import InvalidInput, QuintainError
from quintain.records.job import UNFINISHED
from quintain.settings import Settings
from quintain.tools.jobs import cancel_job, get_job, list_jobs, resume_job
from quintain.tools.results import JobView
from quintain.tools.services import Services, open_services


def run_jobs(action: str, job_id: str | None, home: Path | None) -> int:
    """Carry out one action on jobs; returns the exit status."""
    console = Console()
    services = None
    try:
        services = open_services(Settings(home=home.resolve()) if home else Settings(), trusted=True)
        if action == "list":
            console.print(_table(services))
            return 0
        if job_id is None:
            raise InvalidInput(f"`quintain jobs {action}` needs a job id; `quintain jobs` lists them")
        if action == "watch":
            view = _watch(services, job_id, console)
        else:
            view = {"show": get_job, "cancel": cancel_job, "resume": resume_job}[action](services, job_id)
        console.print_json(view.model_dump_json())
        return 0 if view.status not in {"failed"} else 1
    except QuintainError as error:
        Console(stderr=True).print(str(error), style="red", markup=False)
        return 2
    finally:
        if services is not None:
            services.close()


def _table(services: Services) -> Table:
    table = Table("job", "kind", "status", "step", "created", box=None)
    for item in list_jobs(services, limit=50).items:
        step = f"{item.step}/{item.total_steps or '?'}"
        table.add_row(item.job_id, item.kind, item.status, step, f"{item.created_at:%Y-%m-%d %H:%M:%S}")
    return table


def _watch(services: Services, job_id: str, console: Console) -> JobView:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(job_id, total=None)
        while True:
            view = get_job(services, job_id, wait_s=1)
            progress.update(
                bar, completed=view.step, total=view.total_steps, description=f"{job_id} {view.phase or view.status}"
            )
            if view.status not in UNFINISHED:
                return view
