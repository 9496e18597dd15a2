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
from quintain.next_step import Hint, call
from quintain.records.job import Job
from quintain.records.lineage import LineageEdge
from quintain.tools.data.lineage import get_lineage
from quintain.tools.jobs.curves import metric_curves
from quintain.tools.jobs.labels import label_of
from quintain.tools.jobs.success_bars import success_bars
from quintain.tools.results import Curve
from quintain.tools.services import Services
from quintain.tools.spec import Picture

_CURVES = ("loss", "validation_loss", "success_rate", "learning_rate", "grad_norm")
_BARS = "▁▂▃▄▅▆▇█"

_PICTURED = 60
"""Nodes of a picture; more cannot be read."""


def plot_job(
    services: Services,
    job_id: Annotated[str, Field(description="Or a comparison (`cmp-`).")],
    metrics: Annotated[
        list[str] | None,
        Field(max_length=6, description="Which metrics; null: loss, or the success rates of an evaluation."),
    ] = None,
) -> Picture:
    """Draw the curves of a job, the success rates of an evaluation or the differences of a comparison, as a picture and as text."""
    if job_id.startswith("cmp-"):
        return _comparison(services, job_id)
    job = services.store.jobs.get(job_id)
    title = f"{label_of(job.spec)} ({job.status})"
    if metrics is None and (panel := success_bars(services, job)) is not None:
        lines = [f"{bar['label']}: {bar['value']:.1%} [{bar['low']:.1%}, {bar['high']:.1%}]" for bar in panel.bars]
        figure = {"title": title, "panels": [panel._asdict()]}
        return Picture("\n".join([f"{job.id}: {title}", *lines]), draw(figure))
    curves = metric_curves(services, job_id)
    bounds = {f"{name}_{side}" for name in curves for side in ("low", "high")}
    available = [name for name in (*_CURVES, *sorted(curves.keys() - bounds)) if name in curves]
    chosen = list(dict.fromkeys(metrics or [name for name in available if name in _CURVES[:3]] or available[:1]))
    missing = [name for name in chosen if name not in curves]
    if missing or not chosen:
        wait = Hint("none yet; wait with ", call("get_job", job_id=job_id, until="done", wait_s=50))
        known = ", ".join(dict.fromkeys(available)) or wait
        asked = ", ".join(missing) or "at all"
        raise InvalidInput(Hint(f"{job_id} has no metric {asked}; it has: ", known), code="no_such_metric")
    panels = [{"title": _in_words(name), "xlabel": "step", "lines": [_line(curves, name)]} for name in chosen]
    return Picture(_text(job, {name: curves[name] for name in chosen}), draw({"title": title, "panels": panels}))


def _comparison(services: Services, comparison_id: str) -> Picture:
    comparison = services.store.evaluations.get_comparison(comparison_id)
    figure = forest_plot(comparison)
    lines = [
        f"{row['label']}: {row['note']}".replace("\n", " ")
        for panel in figure["panels"]
        for row in panel.get("forest", ())
    ]
    return Picture("\n".join([figure["title"], *lines]), draw(figure))


def _in_words(metric: str) -> str:
    """Return a metric's name as a title."""
    return metric.replace("_", " ").capitalize()


def _line(curves: Mapping[str, Curve], name: str) -> dict[str, Any]:
    """A curve, with its interval where the job reports both bounds at every step (metrics NAME_low and NAME_high)."""
    curve, low, high = curves[name], curves.get(f"{name}_low"), curves.get(f"{name}_high")
    line: dict[str, Any] = {"x": curve.steps, "y": curve.values}
    if curve.best_step is not None:
        line["best"] = {"x": curve.best_step, "y": curve.values[curve.steps.index(curve.best_step)]}
    if low is None or high is None or not low.steps == curve.steps == high.steps:
        return line
    return {**line, "low": low.values, "high": high.values}


def lineage_picture(services: Services, id: str) -> bytes:
    """The lineage of a record as a PNG, with its sources on the left."""
    return draw(lineage_figure(services, id))


def lineage_figure(services: Services, id: str) -> dict[str, Any]:
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
    return {"title": title, "panels": [{"graph": graph}]}


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


def draw(figure: dict[str, Any]) -> bytes:
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


def _text(job: Job, curves: dict[str, Curve]) -> str:
    lines = [f"{job.id}: {label_of(job.spec)}, {job.status}, step {job.step} of {job.total_steps or '?'}"]
    for name, curve in curves.items():
        line = f"{name}: {curve.values[0]:.4g} -> {curve.values[-1]:.4g}  {sparkline(curve.values)}"
        if curve.best_step is not None:
            line += f"  best {curve.values[curve.steps.index(curve.best_step)]:.4g} at step {curve.best_step}"
        lines.append(line)
    return "\n".join(lines)
