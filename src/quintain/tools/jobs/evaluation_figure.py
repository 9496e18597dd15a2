"""Figures of evaluations: success of the agent, of others on the same tasks, and by kind of task."""

from __future__ import annotations

from quintain.evaluation.reports.figures import Bar, Figure, Panel
from quintain.records.evaluation import Evaluation, Rate
from quintain.records.job import Job
from quintain.records.record import counted
from quintain.tools.jobs.labels import label_of
from quintain.tools.jobs.training_figure import subtitle
from quintain.tools.services import Services

_MOST_GROUPS = 8
"""Kinds of tasks that a picture has room for; the most frequent are drawn."""

_MOST_AGENTS = 8
_SCANNED = 200
"""Newest evaluations of the environment among which those of other agents on the same tasks are looked for."""


def evaluation_figure(services: Services, evaluation: Evaluation, about: str = "") -> Figure:
    """Return success by agent on the tasks of an evaluation, and the agent's success by kind of task.

    Args:
        services: Where other agents' evaluations are looked up.
        evaluation: The evaluation, whose agent is emphasised.
        about: Facts for the subtitle.
    """
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
    groups = evaluation.by_type if len(evaluation.by_type) > 1 else evaluation.by_difficulty
    if len(groups) > 1:
        largest = sorted(groups, key=lambda name: -groups[name].n)[:_MOST_GROUPS]
        kinds = [bar for name in largest if (bar := _bar(name, groups[name], strong=True)) is not None]
        more = f" ({_MOST_GROUPS} of {len(groups)})" if len(groups) > _MOST_GROUPS else ""
        panels.append(Panel(title=f"By kind of task{more}", ylabel="share", format="percent", bars=kinds))
    agent = evaluation.agent_id.removeprefix("agent:")
    title = f"{agent} on {counted(evaluation.n_tasks, 'task')} of {evaluation.environment}, {evaluation.split.replace('_', '-')}"
    return Figure(title=title, subtitle=", ".join(filter(None, (evaluation.id, about))), panels=panels)


def rate_figure(job: Job) -> Figure | None:
    """Return the success rate of a rollout job, or None if it has none."""
    from quintain.evaluation.statistics.success_rates import clopper_pearson

    if job.result is None or not job.result.n or job.result.success_rate is None:
        return None
    stored = job.result.report.get("rate")  # results of earlier releases have none, and episodes count as independent
    alone = clopper_pearson(round(job.result.n * job.result.success_rate), job.result.n)
    bar = _bar("all", Rate.model_validate(stored) if stored else alone, strong=True)
    assert bar is not None
    panel = Panel(title="Success, 95 % interval", ylabel="share of episodes solved", format="percent", bars=[bar])
    return Figure(title=label_of(job.spec), subtitle=subtitle(job), panels=[panel])


def _bar(name: str, rate: Rate, *, strong: bool) -> Bar | None:
    if rate.value is None or rate.ci_low is None or rate.ci_high is None:
        return None
    return Bar(label=f"{name} (n = {rate.n})", value=rate.value, low=rate.ci_low, high=rate.ci_high, strong=strong)
