"""The figure of a stored thing, which answers its question, and the same facts as text."""

from __future__ import annotations

from collections.abc import Sequence

from quintain.errors import InvalidInput
from quintain.evaluation.reports.comparison_figure import forest_plot
from quintain.evaluation.reports.figures import Figure, Line, Mark
from quintain.next_step import Hint, call
from quintain.records.job import EvolveSpec, Job, RecipeSpec, RolloutSpec, TrainSpec
from quintain.tools.jobs.curves import points_of, resumptions, step_reports
from quintain.tools.jobs.evaluation_figure import evaluation_figure, rate_figure
from quintain.tools.jobs.labels import label_of
from quintain.tools.jobs.staged_figure import evolution_figure, recipe_figure
from quintain.tools.jobs.training_figure import metric_panels, subtitle, training_figure
from quintain.tools.services import Services

_BARS = "▁▂▃▄▅▆▇█"


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


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """A curve as one line of text, at most `width` characters."""
    if len(values) > width:
        values = [values[round(i * (len(values) - 1) / (width - 1))] for i in range(width)]
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return "".join(_BARS[min(7, int((value - low) / span * 7.999))] for value in values)
