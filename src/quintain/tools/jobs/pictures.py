"""Pictures of a job's curves and of a lineage, drawn by a short subprocess so that the server never loads matplotlib."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from quintain.errors import InvalidInput, Unavailable
from quintain.evaluation.reports.comparison_figure import forest_plot
from quintain.evaluation.reports.figures import Figure, Line, Mark, Panel
from quintain.next_step import Hint, call
from quintain.records.job import EvolveSpec, Job, RecipeSpec, RolloutSpec, TrainSpec
from quintain.records.lineage import LineageEdge
from quintain.tools.data.lineage import get_lineage
from quintain.tools.jobs.curves import points_of, resumptions, step_reports
from quintain.tools.jobs.evaluation_figure import evaluation_figure, rate_figure
from quintain.tools.jobs.labels import label_of
from quintain.tools.jobs.staged_figure import evolution_figure, recipe_figure
from quintain.tools.jobs.training_figure import metric_panels, subtitle, training_figure
from quintain.tools.services import Services
from quintain.tools.spec import Picture

_BARS = "▁▂▃▄▅▆▇█"

_PICTURED = 60
"""Nodes of a picture; more cannot be read."""


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
    return Picture(figure_text(figure), draw(figure), figure)


def figure_of(services: Services, id: str) -> Figure:
    """Return the figure that answers the question of a job, an evaluation or a comparison.

    Raises:
        InvalidInput: the job has no data yet.
    """
    if id.startswith("cmp-"):
        return forest_plot(services.store.evaluations.get_comparison(id))
    if id.startswith("eval-"):
        return evaluation_figure(services, services.store.evaluations.get(id))
    job = services.store.jobs.get(id)
    figure = _figure_of_kind(services, job)
    return figure if figure is not None and figure["panels"] else metrics_figure(services, id)


def _figure_of_kind(services: Services, job: Job) -> Figure | None:
    match job.spec:
        case TrainSpec():
            return training_figure(services, job)
        case EvolveSpec():
            return evolution_figure(services, job)
        case RecipeSpec():
            return recipe_figure(services, job)
    if job.result is not None and job.result.comparison_id is not None:
        return forest_plot(services.store.evaluations.get_comparison(job.result.comparison_id))
    if job.result is not None and job.result.evaluation_id is not None:
        return evaluation_figure(services, services.store.evaluations.get(job.result.evaluation_id), subtitle(job))
    return rate_figure(job) if isinstance(job.spec, RolloutSpec) else None


def metrics_figure(services: Services, job_id: str, metrics: Sequence[str] = ()) -> Figure:
    """Return a figure of the named metrics by step; of none: of the first that the job has.

    Raises:
        InvalidInput: the job has no such metric; names those that it has.
    """
    job, reports = services.store.jobs.get(job_id), step_reports(services, job_id)
    points = points_of(reports)
    bounds = {f"{name}_{side}" for name in points for side in ("low", "high")}
    available = sorted(points.keys() - bounds, key=lambda name: (name != "loss", name))
    chosen = list(dict.fromkeys(metrics or available[:1]))
    missing = [name for name in chosen if name not in points]
    if missing or not chosen:
        wait = Hint("none yet; wait with ", call("get_job", job_id=job_id, until="done", wait_s=50))
        known = ", ".join(available) or wait
        asked = ", ".join(missing) or "at all"
        raise InvalidInput(Hint(f"{job_id} has no metric {asked}; it has: ", known), code="no_such_metric")
    panels = metric_panels(points, chosen)
    for panel in panels:
        panel["marks"] = [Mark(x=step, label="resumed") for step in resumptions(reports)]
    return Figure(title=label_of(job.spec), subtitle=subtitle(job), panels=panels)


def figure_text(figure: Figure) -> str:
    """Return the facts of a figure as lines of text."""
    lines = [figure["title"], *filter(None, [figure.get("subtitle")])]
    for panel in figure["panels"]:
        lines.append(f"{panel['title']}:")
        lines.extend(f"  {_line_text(one)}" for one in panel.get("lines", ()))
        lines.extend(
            f"  {bar['label']}: {bar['value']:.1%} [{bar['low']:.1%}, {bar['high']:.1%}]"
            for bar in panel.get("bars", ())
        )
        lines.extend(f"  {row['label']}: {row['note']}".replace("\n", " ") for row in panel.get("forest", ()))
        lines += [f"  {mark['label']} at step {mark['x']:.0f}" for mark in panel.get("marks", ())]
    return "\n".join(lines)


def _line_text(one: Line) -> str:
    values = [value for value in one["y"] if value is not None]
    text = f"{one.get('label', '')}: {values[0]:.4g} -> {values[-1]:.4g}  {sparkline(values)}"
    if "low" in one and "high" in one and one.get("style"):
        low, high = one["low"][-1], one["high"][-1]
        text += "" if low is None or high is None else f"  [{low:.1%}, {high:.1%}]"
    if "best" in one:
        text += f"  best {one['best']['y']:.4g} at {one['best']['x']:.0f}"
    return text


def lineage_picture(services: Services, id: str) -> bytes:
    """The lineage of a record as a PNG, with its sources on the left."""
    return draw(lineage_figure(services, id))


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


def draw(figure: Mapping[str, Any]) -> bytes:
    """Draw a figure description (see worker/pictures/draw.py) as PNG.

    Raises:
        Unavailable: the drawing process failed or took longer than a minute.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", "quintain.worker.pictures.draw"],
            input=json.dumps(figure).encode(),
            capture_output=True,
            timeout=60,
            check=True,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise Unavailable("the picture could not be drawn; read the same numbers from job://{id}/metrics") from error
    return done.stdout


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """A curve as one line of text, at most `width` characters."""
    if len(values) > width:
        values = [values[round(i * (len(values) - 1) / (width - 1))] for i in range(width)]
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return "".join(_BARS[min(7, int((value - low) / span * 7.999))] for value in values)
