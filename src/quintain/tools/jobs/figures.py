"""The figure of a stored thing, which answers its question, and the same facts as text."""

from __future__ import annotations

from collections.abc import Sequence

from quintain.environments.references import short_reference
from quintain.errors import InvalidInput, NotFound
from quintain.evaluation.reports.figures import Bar, Figure, Line, Mark, Panel, forest_plot
from quintain.next_step import Hint, call
from quintain.records.evaluation import Evaluation, Rate
from quintain.records.jobs.job import UNFINISHED, EvolveSpec, Job, RecipeSpec, RolloutSpec, TrainSpec
from quintain.records.wording import clip, counted
from quintain.tools.jobs.descriptions import job_label, points_of, resumptions, step_reports
from quintain.tools.jobs.training_figure import (
    evolution_figure,
    metric_panels,
    recipe_figure,
    subtitle,
    training_figure,
)
from quintain.tools.services import Services, find

_BARS = "▁▂▃▄▅▆▇█"


def shown_by(services: Services, reference: str) -> str:
    """Return the id of what a picture shows: of an agent the job that trained it, else its newest evaluation.

    Raises:
        NotFound: nothing has this id or name.
        InvalidInput: an agent that was neither trained here nor evaluated.
    """
    if reference.startswith(("job-", "cmp-", "eval-")):
        return reference
    agent = services.store.agents.find(reference)
    if agent is None:
        expected = f"expected the id of a job, comparison or evaluation, or an agent, got {clip(reference)!r}; see "
        raise NotFound(Hint(expected, call("list_jobs"), " or ", call("list_library", kind="agents")))
    if agent.root_job_id is not None and find(services.store.jobs.get, agent.root_job_id) is not None:
        return agent.root_job_id
    for evaluation in services.store.evaluations.of_agent(agent.id or ""):
        return evaluation.id
    measure = call("evaluate_agent", agent=agent.id_or_name, environment=...)
    raise InvalidInput(
        Hint(f"expected an agent that was trained or evaluated, got {agent.id_or_name}; measure it: ", measure)
    )


def figure_of(services: Services, id: str) -> Figure:
    """Return the figure that answers the question of a job, an evaluation or a comparison."""
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
    return rate_figure(services, job) if isinstance(job.spec, RolloutSpec) else None


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
        if job.status in UNFINISHED:
            look = Hint("none yet; wait with ", call("get_job", job_id=job_id, until="done", wait_s=50))
        else:
            look = Hint("none; read its result with ", call("get_job", job_id=job_id))
        known = ", ".join(available) or look
        asked = ", ".join(missing) or "at all"
        raise InvalidInput(Hint(f"{job_id} has no metric {asked}; it has: ", known), code="no_such_metric")
    panels = metric_panels(points, chosen)
    for panel in panels:
        panel["marks"] = [Mark(x=step, label="resumed") for step in resumptions(reports)]
    return Figure(title=job_label(services, job), subtitle=subtitle(job), panels=panels)


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


_MOST_GROUPS = 8
"""Kinds of tasks that a picture has room for; the most frequent are drawn."""

_MOST_AGENTS = 8
_SCANNED = 200
"""Newest evaluations of the environment among which those of other agents on the same tasks are looked for."""


def evaluation_figure(services: Services, evaluation: Evaluation, about: str = "") -> Figure:
    """Return success by agent on the tasks of an evaluation, and the agent's success by kind of task."""
    page = services.store.evaluations.page(environment=evaluation.environment, limit=_SCANNED)
    same: dict[str, Evaluation] = {evaluation.agent_id: evaluation}
    for other in page.items:
        if other.suite_hash == evaluation.suite_hash and len(same) < _MOST_AGENTS:
            same.setdefault(other.agent_id, other)
    ordered = sorted(same.values(), key=lambda one: one.rate.value or 0.0)
    bars = [
        bar
        for one in ordered
        if (bar := _bar(one.agent_id.removeprefix("agent:"), one.rate, strong=one is evaluation)) is not None
    ]
    solved = "held-out tasks" if evaluation.split == "held_out" else f"{evaluation.split} tasks"
    what = "Same action as recorded" if evaluation.held_out is not None else f"Success on {solved}"
    panels = [Panel(title=f"{what}, 95 % interval", ylabel="share", format="percent", bars=bars)] if bars else []
    groups = evaluation.by_environment or evaluation.by_type
    groups = groups if len(groups) > 1 else evaluation.by_difficulty
    if len(groups) > 1:
        largest = sorted(groups, key=lambda name: -groups[name].n)[:_MOST_GROUPS]
        kinds = [bar for name in largest if (bar := _bar(name, groups[name], strong=True)) is not None]
        more = f" ({_MOST_GROUPS} of {len(groups)})" if len(groups) > _MOST_GROUPS else ""
        kind = "environment" if evaluation.by_environment else "kind of task"
        panels.append(Panel(title=f"By {kind}{more}", ylabel="share", format="percent", bars=kinds))
    agent = evaluation.agent_id.removeprefix("agent:")
    place = short_reference(evaluation.environment)
    if (dataset := evaluation.dataset_id) is not None:
        place = services.store.datasets.names([dataset]).get(dataset, dataset)
    title = f"{agent} on {counted(evaluation.n_tasks, 'task')} of {place}, {evaluation.split.replace('_', '-')}"
    return Figure(title=title, subtitle=", ".join(filter(None, (evaluation.id, about))), panels=panels)


def rate_figure(services: Services, job: Job) -> Figure | None:
    """Return the success rate of a rollout job, or None if it has none."""
    from quintain.evaluation.statistics.success_rates import clopper_pearson

    if job.result is None or not job.result.n or job.result.success_rate is None:
        return None
    stored = job.result.report.get("rate")  # results of earlier releases have none, and episodes count as independent
    alone = clopper_pearson(round(job.result.n * job.result.success_rate), job.result.n)
    bar = _bar("all", Rate.model_validate(stored) if stored else alone, strong=True)
    assert bar is not None
    panel = Panel(title="Success, 95 % interval", ylabel="share of episodes solved", format="percent", bars=[bar])
    return Figure(title=job_label(services, job), subtitle=subtitle(job), panels=[panel])


def _bar(name: str, rate: Rate, *, strong: bool) -> Bar | None:
    if rate.value is None or rate.ci_low is None or rate.ci_high is None:
        return None
    return Bar(label=f"{name} (n = {rate.n})", value=rate.value, low=rate.ci_low, high=rate.ci_high, strong=strong)
