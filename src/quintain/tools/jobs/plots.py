"""The tool that draws, and the files in the home folder's `reports/`: a picture and a page to look at and to send."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

from quintain.errors import Unavailable
from quintain.evaluation.reports.figures import Figure
from quintain.evaluation.reports.rendering import as_html
from quintain.jobs.directory import write_atomically
from quintain.tools.jobs.figures import figure_of, figure_text, metrics_figure
from quintain.tools.jobs.pictures import draw
from quintain.tools.jobs.record_reports import report_of
from quintain.tools.services import Services
from quintain.tools.spec import Picture
from quintain.tools.web_address import page_url

_UNSAFE = re.compile(r"[^A-Za-z0-9._@-]")


def plot_job(
    services: Services,
    job_id: Annotated[str, Field(description="Or a comparison (`cmp-`).")],
    metrics: Annotated[
        list[str] | None,
        Field(max_length=6, description="Which metrics; null: those that show what got better."),
    ] = None,
) -> Picture:
    """Draw the curves of a job, the success rates of an evaluation or the differences of a comparison, as a picture and as text."""
    figure = figure_of(services, job_id) if metrics is None else metrics_figure(services, job_id, metrics)
    png = draw(figure)
    note = saved_note(services, job_id, figure, png, suffix="" if metrics is None else "-metrics")
    return Picture("\n".join([figure_text(figure), note, *web_page(services, job_id)]), png, figure)


def web_page(services: Services, id: str) -> list[str]:
    """Return a line with the URL of a thing's page, while a web page shows the home."""
    url = page_url(services.settings.home, {"job_id": id})
    return [] if url is None else [f"Live: {url}"]


def save_report(
    services: Services, id: str, *, figure: Figure | None = None, png: bytes | None = None, suffix: str = ""
) -> tuple[str, ...]:
    """Write the report of a stored thing as a page, and its picture; return their paths from the home folder.

    Args:
        services: Where the thing is stored.
        id: A job, evaluation, comparison, agent or dataset.
        figure: Its figure; None: the one of `report_of`.
        png: The figure as a picture; None: it is drawn, if there is a figure.
        suffix: End of the files' names.
    """
    report, drawn = report_of(services, id)
    figure = figure or drawn
    folder, name = services.settings.reports_dir, _UNSAFE.sub("-", f"{id}{suffix}").lstrip(".")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = {f"{name}.html": as_html(report, figure).encode()}
    if figure is not None:
        files[f"{name}.png"] = png or draw(figure)
    for file, content in files.items():
        write_atomically(folder / file, content)
    return tuple(f"{folder.name}/{file}" for file in files)


def saved_note(services: Services, id: str, figure: Figure, png: bytes, suffix: str = "") -> str:
    """Save a report with its picture; return a sentence with the paths, or with the reason why it is not saved."""
    try:
        return (
            f"Saved in the home folder: {', '.join(save_report(services, id, figure=figure, png=png, suffix=suffix))}"
        )
    except OSError as error:
        return f"Not saved in the home folder's reports/: {error.strerror}"


def saved_picture(services: Services, id: str) -> tuple[bytes | None, str]:
    """Return the picture of what never changes, an evaluation or a comparison, with the note of its files; draw it once.

    Without a picture, as on a machine that is too busy to draw it, the note has the reason: the numbers are there all the same.
    """
    folder = services.settings.reports_dir
    page, picture = (folder / f"{_UNSAFE.sub('-', id)}.{ending}" for ending in ("html", "png"))
    if page.is_file() and picture.is_file():
        return (
            picture.read_bytes(),
            f"Saved in the home folder: {folder.name}/{page.name}, {folder.name}/{picture.name}",
        )
    figure = figure_of(services, id)
    try:
        png = draw(figure)
    except Unavailable as error:
        return None, f"No picture is saved: {error.message}"
    return png, saved_note(services, id, figure, png)
