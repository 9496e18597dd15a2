"""The tools that draw, in a short subprocess, so that the server never loads matplotlib; and the files in the home folder's `reports/`."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from quintain.errors import Unavailable
from quintain.evaluation.reports.figures import Figure, Panel
from quintain.evaluation.reports.report import as_html
from quintain.jobs.directory import write_atomically
from quintain.records.lineage import LineageEdge
from quintain.tools.catalog import Picture
from quintain.tools.data.lineage import get_lineage
from quintain.tools.jobs.figures import figure_of, figure_text, metrics_figure, shown_by
from quintain.tools.jobs.record_reports import report_of
from quintain.tools.services import Services
from quintain.tools.web_address import page_url

logger = logging.getLogger(__name__)

_PICTURED = 60
"""Nodes of a picture; more cannot be read."""


def lineage_picture(services: Services, id: str) -> bytes:
    """The lineage of a record as a PNG, with its sources on the left."""
    return draw(lineage_figure(services, id), services.settings.home)


def lineage_figure(services: Services, id: str) -> Figure:
    """The lineage of a thing as a figure for `draw`."""
    found = get_lineage(services, id)
    nodes = (*found.things, *found.ancestors, *found.descendants)
    shown = {node.id: node for node in nodes[:_PICTURED]}
    edges = [edge for edge in found.edges if edge.source in shown and edge.target in shown]
    columns = _columns(list(shown), edges)
    left_out = len({node.id for node in nodes}) - len(shown)
    title = f"Lineage of {id}" + (f" ({left_out} more not shown)" if left_out else "")
    roots = {node.id for node in found.things}
    boxes = [
        {
            "id": node.id,
            "kind": node.kind,
            "label": node.label,
            "column": columns[node.id],
            "mark": node.mark,
            "root": node.id in roots,
        }
        for node in shown.values()
    ]
    graph = {"nodes": boxes, "edges": [[edge.source, edge.target] for edge in edges]}
    return Figure(title=title, panels=[Panel(title="", graph=graph)])


def _columns(ids: Sequence[str], edges: Sequence[LineageEdge]) -> dict[str, int]:
    """Each node's column: one to the right of its last source."""
    columns = dict.fromkeys(ids, 0)
    for _ in ids:  # as many rounds as the longest chain can have
        moved = False
        for edge in edges:
            if columns[edge.target] <= columns[edge.source] < len(ids):
                columns[edge.target], moved = columns[edge.source] + 1, True
        if not moved:
            break
    # A node without sources is right before the first node derived from it.
    targets = {edge.target for edge in edges}
    for node in ids:
        after = [columns[edge.target] for edge in edges if edge.source == node]
        if node not in targets and after:
            columns[node] = min(after) - 1
    return columns


def draw(figure: Mapping[str, Any], home: Path) -> bytes:
    """Draw a figure description (see worker/pictures/draw.py) as PNG; what matplotlib can write nowhere else is below `home`.

    Raises:
        Unavailable: the drawing process failed or took longer than a minute.
    """
    try:
        done = subprocess.run(
            [
                sys.executable,
                "-P",
                "-m",
                "quintain.worker.pictures.draw",
            ],  # -P: a client starts the server in any folder
            input=json.dumps(figure).encode(),
            capture_output=True,
            cwd=home,
            timeout=60,
            check=True,
        )
    except subprocess.TimeoutExpired:
        fault = "the process that draws it took longer than a minute"
    except subprocess.CalledProcessError as error:
        logger.warning("no picture: %s", error.stderr.decode(errors="replace"))
        fault = f"the process that draws it ended with status {error.returncode}"
    else:
        return done.stdout
    raise Unavailable(
        f"expected a picture, got none: {fault}; call again later, or read the same numbers in the answer"
    )


_UNSAFE = re.compile(r"[^A-Za-z0-9._@-]")


def plot_job(
    services: Services,
    job_id: Annotated[str, Field(description="Or a comparison or agent.")],
    metrics: Annotated[
        list[str] | None,
        Field(max_length=6, description="Which metrics; null: those that show what got better."),
    ] = None,
) -> Picture:
    """Draw the curves of a job, the success rates of an evaluation or the differences of a comparison, as a picture and as text."""
    job_id = shown_by(services, job_id)
    figure = figure_of(services, job_id) if metrics is None else metrics_figure(services, job_id, metrics)
    png = draw(figure, services.settings.home)
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

    Without a figure it is the one of `report_of`; `suffix` ends the files' names.
    """
    report, drawn = report_of(services, id)
    figure = figure or drawn
    folder, name = services.settings.reports_dir, _UNSAFE.sub("-", f"{id}{suffix}").lstrip(".")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = {f"{name}.html": as_html(report, figure).encode()}
    if figure is not None:
        files[f"{name}.png"] = png or draw(figure, services.settings.home)
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
        png = draw(figure, services.settings.home)
    except Unavailable as error:
        return None, f"No picture is saved: {error.message}"
    return png, saved_note(services, id, figure, png)
