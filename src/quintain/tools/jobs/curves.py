"""Curves of a job: each metric over its steps, including the steps of the jobs that it resumed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from quintain.tools.results import Curve
from quintain.tools.services import Services

_LOWER_IS_BETTER = "validation_loss"

Points = dict[str, dict[int, float]]
"""Metric -> step -> value."""


def metric_curves(services: Services, job_id: str) -> dict[str, Curve]:
    """Return every metric of a job over its steps; a value that is not finite is left out.

    A job that resumed another one begins at its checkpoint: the steps before come from the resumed job.
    """
    points: Points = defaultdict(dict)
    following: str | None = job_id
    first: int | None = None
    while following is not None:
        steps, own = _points(services, following)
        for name, values in own.items():
            points[name] |= {step: value for step, value in values.items() if first is None or step < first}
        first = min([*steps, *([] if first is None else [first])], default=None)
        following = services.store.jobs.get(following).resumed_from
    return {name: _curve(name, values) for name, values in points.items()}


def thinned(curve: Curve, most: int = 200) -> Curve:
    """Return at most `most` points of a curve, the first and the last among them."""
    n = len(curve.steps)
    if n <= most:
        return curve
    kept = [round(i * (n - 1) / (most - 1)) for i in range(most)]
    steps, values = (tuple(column[i] for i in kept) for column in (curve.steps, curve.values))
    return curve.model_copy(update={"steps": steps, "values": values})


def _points(services: Services, job_id: str) -> tuple[set[int], Points]:
    """Return the steps that a job reported, and its points. Of several reports of a step, the newest value counts."""
    points: Points = defaultdict(dict)
    steps = set[int]()
    for event in services.store.jobs.events(job_id, type="progress"):
        if event.step is None:
            continue
        steps.add(event.step)
        for name, value in (event.metrics or {}).items():
            if value is not None:
                points[name][event.step] = value
    return steps, points


def _curve(name: str, values: Mapping[int, float]) -> Curve:
    steps = tuple(sorted(values))
    best = min(steps, key=lambda step: values[step]) if name == _LOWER_IS_BETTER else None
    return Curve(steps=steps, values=tuple(values[step] for step in steps), best_step=best)
