"""The dashboard of a training: its job and its figure, for people who watch."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field

from quintain.errors import InvalidInput, NotFound
from quintain.evaluation.reports.figures import Figure
from quintain.next_step import Hint, call
from quintain.records.jobs.job import Job
from quintain.tools.catalog import Picture
from quintain.tools.jobs.figures import figure_of, figure_text
from quintain.tools.jobs.jobs import view_of
from quintain.tools.jobs.plots import draw, saved_note, web_page
from quintain.tools.services import Services

_TRAININGS = ("train", "evolve", "recipe")


def show_training_dashboard(
    services: Services, job_id: Annotated[str | None, Field(description="Null: the newest training.")] = None
) -> Picture:
    """Show a training: live in hosts with MCP Apps, elsewhere as picture and text. The same page: `quintain ui`."""
    services.jobs.refresh(services.settings.poll_s)
    view = view_of(services, services.store.jobs.get(job_id) if job_id is not None else _newest_training(services))
    state = Hint(f"{view.label}: {view.status}, step {view.step} of {view.total_steps or '?'}\n", view.next_step)
    facts = ["", *web_page(services, view.job_id)]
    figure = _figure_so_far(services, view.job_id)
    if figure is None:
        return Picture(Hint(state, "\n".join(facts)), None, None, view)
    png = draw(figure, services.settings.home)
    note = saved_note(services, view.job_id, figure, png)
    return Picture(Hint(state, "\n".join([*facts, figure_text(figure), note])), png, figure, view)


def job_figure(services: Services, job_id: str) -> str:
    """Return a job and its figure as JSON, for pages that draw it themselves; the figure is null before the first report."""
    services.jobs.refresh(services.settings.poll_s)
    view = view_of(services, services.store.jobs.get(job_id))
    return json.dumps({"job": view.model_dump(mode="json"), "figure": _figure_so_far(services, job_id)})


def _figure_so_far(services: Services, job_id: str) -> Figure | None:
    try:
        return figure_of(services, job_id)
    except InvalidInput:
        return None


def _newest_training(services: Services) -> Job:
    found = [job for kind in _TRAININGS for job in services.store.jobs.page(kind=kind, limit=1).items]
    if not found:
        raise NotFound(
            Hint("expected a training, got none; begin one with ", call("start_training", method=..., model=...)),
            code="not_found",
        )
    return max(found, key=lambda job: job.created_at)
