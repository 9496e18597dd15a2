"""Descriptions of jobs: one line that says what a job does, and its metrics over the steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from quintain.environments.references import short_reference
from quintain.records.agent import Agent
from quintain.records.artifacts import FetchSpec, PushSpec
from quintain.records.jobs.handover import ExportAgentSpec
from quintain.records.jobs.job import (
    CompareSpec,
    EvaluateDatasetSpec,
    EvaluateSpec,
    EvolveSpec,
    ImportSpec,
    Job,
    JobSpec,
    PreviewSpec,
    RecipeSpec,
    RolloutSpec,
    StepLabelSpec,
    TrainSpec,
)
from quintain.records.jobs.run_jobs import InfluenceSpec, JudgeSpec, ReplaySpec, ScoreSpec
from quintain.records.jobs.talk import TalkSpec
from quintain.records.wording import clip, counted
from quintain.tools.results import Curve
from quintain.tools.services import Services

_LENGTH = 160


def job_label(services: Services, job: Job) -> str:
    """Return the name that a person gave to a job, else what it does in one line: `grpo starter -> picker on good-runs`."""
    return job_labels(services, [job])[job.id]


def job_labels(services: Services, jobs: Sequence[Job]) -> dict[str, str]:
    """Return the label of each job by its id."""
    used = {found for job in jobs if (found := dataset_of(job.spec)) is not None}
    names = services.store.datasets.names(used)
    return {job.id: job.name or clip(_label(job.spec, names), _LENGTH) for job in jobs}


def dataset_of(spec: JobSpec) -> str | None:
    """Return the dataset that a job reads, by its id."""
    return getattr(spec.a if isinstance(spec, CompareSpec) else spec, "dataset_id", None)


def _label(spec: JobSpec, names: Mapping[str, str]) -> str:
    dataset_id = dataset_of(spec)
    dataset = None if dataset_id is None else names.get(dataset_id, dataset_id)
    place = short_reference(getattr(spec, "environment", None) or "")
    match spec:
        case TrainSpec():
            seed = f", seed {spec.seed}" if spec.seed else ""
            return f"{spec.method} {_named(spec.agent)} -> {spec.name} on {dataset or place}{seed}"
        case RecipeSpec():
            stages = ", ".join(stage.label for stage in spec.stages)
            return f"recipe {_named(spec.agent)} -> {spec.name}: {stages}"
        case EvolveSpec():
            return f"evolve {_named(spec.agent)} -> {spec.name} on {place}"
        case RolloutSpec():
            tasks = _tasks(spec.n_tasks, spec.attempts, "attempt")
            return f"rollouts of {_players(spec)} in {place}: {tasks}, {spec.split}"
        case EvaluateSpec():
            tasks = _tasks(spec.n_tasks, spec.repeats, "repeat")
            return f"evaluate {_players(spec)} on {dataset or place}: {tasks}, {spec.split}"
        case CompareSpec(a=a, b=b):
            tasks = _tasks(a.n_tasks, a.repeats, "repeat")
            players = f"{_named(a.agent)} and {_named(b.agent)}"
            return f"compare {players} in {dataset or short_reference(a.environment)}: at most {tasks}, {a.split}"
        case EvaluateDatasetSpec():
            return f"evaluate {_named(spec.agent)} on {dataset}: {spec.split}"
        case _:
            return _data_label(spec, dataset, place)


def _data_label(spec: JobSpec, dataset: str | None, place: str) -> str:
    match spec:
        case ImportSpec():
            return f"import {spec.path}{' (dry run)' if spec.dry_run else ''}"
        case PreviewSpec():
            return f"preview {dataset} for {spec.config.method} of {_named(spec.agent)}"
        case JudgeSpec():
            return f"judge {counted(spec.runs.n, 'run')} by {spec.rubric.name} with {spec.endpoint.name}"
        case ScoreSpec():
            by = "" if spec.rubric is None else f" by {spec.rubric.name}"
            return f"score {counted(spec.runs.n, 'run')}{by} with {_named(spec.agent)}"
        case StepLabelSpec():
            return f"step labels of {counted(spec.runs.n, 'run')} by {_named(spec.agent)} in {place}"
        case InfluenceSpec():
            return f"influence of {counted(spec.runs.n, 'run')} on {counted(spec.targets.n, 'run')} by {_named(spec.agent)}"
        case ReplaySpec():
            return f"replay {counted(spec.runs.n, 'run')}"
        case TalkSpec():
            return f"talk to {_named(spec.agent)}" + (f" with the tools of {place}" if place else "")
        case ExportAgentSpec():
            return f"export {_named(spec.agent)} as {spec.format}"
        case FetchSpec():
            return f"fetch {spec.url}"
        case PushSpec():
            return f"push {dataset} to {spec.destination}"
        case _:
            return spec.kind


def _named(agent: Agent) -> str:
    """Return the name of an agent, with its version where it is not the first."""
    return f"{agent.name}@{agent.version}" if (agent.version or 1) > 1 else agent.name


def _players(spec: RolloutSpec | EvaluateSpec) -> str:
    against = f" against {_named(spec.opponent)}" if spec.opponent is not None else ""
    return f"{_named(spec.agent)}{against}"


def _tasks(n: int, each: int, of: str) -> str:
    return counted(n, "task") + (f" x {counted(each, of)}" if each > 1 else "")


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
        found += [report for report in own if first is None or report.step < first]
        first = min([*(report.step for report in own), *([] if first is None else [first])], default=None)
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


def _own_reports(services: Services, job_id: str) -> list[StepReport]:
    """Return a job's own reports. Of several values of a metric at a step, the newest counts.

    The last step of a stage is also the place of the next one's start, which validation measures: each has its report.
    """
    found: dict[tuple[int, str], StepReport] = {}
    stage = ""
    is_staged = services.store.jobs.get(job_id).kind in STAGED_KINDS
    for event in services.store.jobs.events(job_id, type=None if is_staged else "progress"):
        if event.type == "phase":
            folder, separated, _ = (event.name or "").partition(" ")
            stage = folder if separated else ""
        if event.type != "progress" or event.step is None:
            continue
        place = (event.step, stage)
        metrics = found[place].metrics if place in found else {}
        metrics |= {name: value for name, value in (event.metrics or {}).items() if value is not None}
        found[place] = StepReport(event.step, stage, (job_id, event.attempt), metrics)
    return list(found.values())


def _curve(name: str, values: Mapping[int, float]) -> Curve:
    steps = tuple(sorted(values))
    best = min(steps, key=lambda step: values[step]) if name == _LOWER_IS_BETTER else None
    return Curve(steps=steps, values=tuple(values[step] for step in steps), best_step=best)
