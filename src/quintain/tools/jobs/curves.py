"""Curves of a job: each metric over its steps, including the steps of the jobs that it resumed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from quintain.tools.results import Curve
from quintain.tools.services import Services

_LOWER_IS_BETTER = "validation_loss"

STAGED_KINDS = frozenset({"evolve", "recipe"})
"""Kinds of jobs that run other jobs as stages."""

_POINTS, _ALL_POINTS = 200, 2000
"""Most points of a curve in an answer, and of all its curves."""

Points = dict[str, dict[int, float]]
"""Metric -> step -> value."""


class StepReport(NamedTuple):
    """Finite metrics of one step, of the newest report of each."""

    step: int
    stage: str
    """Folder of the stage, such as `01-train`; empty for a job without stages."""
    source: tuple[str, int]
    """Job and attempt of the newest report."""
    metrics: dict[str, float]


def metric_curves(services: Services, job_id: str) -> dict[str, Curve]:
    """Return every metric of a job over its steps; a value that is not finite is left out.

    A job that resumed another one begins at its checkpoint: the steps before come from the resumed job.
    """
    return {name: _curve(name, values) for name, values in points_of(step_reports(services, job_id)).items()}


def step_reports(services: Services, job_id: str) -> list[StepReport]:
    """Return the reports of a job and of the jobs that it resumed, in the order of steps."""
    found: list[StepReport] = []
    following: str | None = job_id
    first: int | None = None
    while following is not None:
        own = _own_reports(services, following)
        found += [report for step, report in own.items() if first is None or step < first]
        first = min([*own, *([] if first is None else [first])], default=None)
        following = services.store.jobs.get(following).resumed_from
    return sorted(found)


def points_of(reports: Iterable[StepReport]) -> Points:
    """Return the values of each metric by step."""
    points: Points = defaultdict(dict)
    for report in reports:
        for name, value in report.metrics.items():
            points[name][report.step] = value
    return points


def resumptions(reports: Iterable[StepReport]) -> list[int]:
    """Return the first steps after a change of job or attempt."""
    steps, source = [], None
    for report in reports:
        if source is not None and report.source != source:
            steps.append(report.step)
        source = report.source
    return steps


def thin_curves(curves: Mapping[str, Curve]) -> dict[str, Curve]:
    """Return curves that an answer can hold: at most 200 points each and 2,000 together, with six digits."""
    most = max(2, min(_POINTS, _ALL_POINTS // max(1, len(curves))))
    return {name: _thin_points(curve, most) for name, curve in curves.items()}


def _thin_points(curve: Curve, most: int) -> Curve:
    """Return at most `most` points of a curve, the first and the last among them, and the best step in addition."""
    n = len(curve.steps)
    spread = range(n) if n <= most else [round(i * (n - 1) / (most - 1)) for i in range(most)]
    kept = sorted({*spread, *(() if curve.best_step is None else (curve.steps.index(curve.best_step),))})
    steps, values = tuple(curve.steps[i] for i in kept), tuple(float(f"{curve.values[i]:.6g}") for i in kept)
    return curve.model_copy(update={"steps": steps, "values": values})


def _own_reports(services: Services, job_id: str) -> dict[int, StepReport]:
    """Return a job's own reports by step. Of several values of a metric at a step, the newest counts."""
    found: dict[int, StepReport] = {}
    stage = ""
    is_staged = services.store.jobs.get(job_id).kind in STAGED_KINDS
    for event in services.store.jobs.events(job_id, type=None if is_staged else "progress"):
        if event.type == "phase":
            folder, separated, _ = (event.name or "").partition(" ")
            stage = folder if separated else ""
        if event.type != "progress" or event.step is None:
            continue
        metrics = found[event.step].metrics if event.step in found else {}
        metrics |= {name: value for name, value in (event.metrics or {}).items() if value is not None}
        found[event.step] = StepReport(event.step, stage, (job_id, event.attempt), metrics)
    return found


def _curve(name: str, values: Mapping[int, float]) -> Curve:
    steps = tuple(sorted(values))
    best = min(steps, key=lambda step: values[step]) if name == _LOWER_IS_BETTER else None
    return Curve(steps=steps, values=tuple(values[step] for step in steps), best_step=best)
