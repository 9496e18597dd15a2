"""Success rates of a finished evaluation or rollout job, as bars."""

from __future__ import annotations

from typing import Any, NamedTuple

from quintain.records.evaluation import Rate
from quintain.records.job import Job
from quintain.tools.services import Services

_KINDS = frozenset({"evaluate", "evaluate_dataset", "rollout"})
"""Kinds whose steps are episodes or rows, which have no curve."""

_MOST = 8
"""Kinds of tasks that a picture has room for; the most frequent are drawn."""


class SuccessBars(NamedTuple):
    """Success rates as a panel of a figure."""

    title: str
    bars: list[dict[str, Any]]


def success_bars(services: Services, job: Job) -> SuccessBars | None:
    """Return the success rate over all tasks and by kind of task, with intervals, or None if there is none."""
    if job.kind not in _KINDS or job.result is None:
        return None
    rates, title = dict[str, Rate](), "Success rate, 95 % interval"
    if job.result.evaluation_id is not None:
        evaluation = services.store.evaluations.get(job.result.evaluation_id)
        groups = evaluation.by_type if len(evaluation.by_type) > 1 else evaluation.by_difficulty
        largest = sorted(groups, key=lambda name: -groups[name].n)[:_MOST]
        if len(groups) > _MOST:
            title += f" ({_MOST} of {len(groups)} kinds of tasks)"
        rates = {"all": evaluation.rate, **({name: groups[name] for name in largest} if len(groups) > 1 else {})}
    elif job.result.n and job.result.success_rate is not None:
        from quintain.evaluation.statistics.success_rates import clopper_pearson

        rates = {"all": clopper_pearson(round(job.result.n * job.result.success_rate), job.result.n)}
    bars = [
        {"label": f"{name} (n = {rate.n})", "value": rate.value, "low": rate.ci_low, "high": rate.ci_high}
        for name, rate in rates.items()
        if rate.value is not None
    ]
    return SuccessBars(title, bars) if bars else None
