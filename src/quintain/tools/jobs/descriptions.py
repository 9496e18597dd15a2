"""Labels of jobs: one line that says what a job does, from its spec."""

from __future__ import annotations

from quintain.records.artifacts import FetchSpec, PushSpec
from quintain.records.jobs.handover import ExportAgentSpec
from quintain.records.jobs.job import (
    CompareSpec,
    EvaluateDatasetSpec,
    EvaluateSpec,
    EvolveSpec,
    ImportSpec,
    JobSpec,
    PreviewSpec,
    RecipeSpec,
    RolloutSpec,
    StepLabelSpec,
    TrainSpec,
)
from quintain.records.jobs.run_jobs import InfluenceSpec, JudgeSpec, ReplaySpec, ScoreSpec
from quintain.records.jobs.talk import TalkSpec
from quintain.records.record import clip, counted

_LENGTH = 160


def label_of(spec: JobSpec) -> str:
    """Return what a job does in one line, such as `grpo starter -> picker on quintain/inventory`."""
    return clip(_label(spec), _LENGTH)


def _label(spec: JobSpec) -> str:
    match spec:
        case TrainSpec():
            return f"{spec.method} {spec.agent.name} -> {spec.name} on {spec.dataset_id or spec.environment}"
        case RecipeSpec():
            stages = ", ".join(stage.label for stage in spec.stages)
            return f"recipe {spec.agent.name} -> {spec.name}: {stages}"
        case EvolveSpec():
            return f"evolve {spec.agent.name} -> {spec.name} on {spec.environment}"
        case RolloutSpec():
            tasks = _tasks(spec.n_tasks, spec.attempts, "attempt")
            return f"rollouts of {_players(spec)} in {spec.environment}: {tasks}, {spec.split}"
        case EvaluateSpec():
            tasks = _tasks(spec.n_tasks, spec.repeats, "repeat")
            return f"evaluate {_players(spec)} on {spec.dataset_id or spec.environment}: {tasks}, {spec.split}"
        case CompareSpec(a=a, b=b):
            tasks = _tasks(a.n_tasks, a.repeats, "repeat")
            return f"compare {a.agent.name} and {b.agent.name} in {a.dataset_id or a.environment}: at most {tasks}, {a.split}"
        case EvaluateDatasetSpec():
            return f"evaluate {spec.agent.name} on {spec.dataset_id}: {spec.split}"
        case _:
            return _data_label(spec)


def _data_label(spec: JobSpec) -> str:
    match spec:
        case ImportSpec():
            return f"import {spec.path}{' (dry run)' if spec.dry_run else ''}"
        case PreviewSpec():
            return f"preview {spec.dataset_id} for {spec.config.method} of {spec.agent.name}"
        case JudgeSpec():
            return f"judge {counted(spec.runs.n, 'run')} by {spec.rubric.name} with {spec.endpoint.name}"
        case ScoreSpec():
            by = "" if spec.rubric is None else f" by {spec.rubric.name}"
            return f"score {counted(spec.runs.n, 'run')}{by} with {spec.agent.name}"
        case StepLabelSpec():
            return f"step labels of {counted(spec.runs.n, 'run')} by {spec.agent.name} in {spec.environment}"
        case InfluenceSpec():
            return (
                f"influence of {counted(spec.runs.n, 'run')} on {counted(spec.targets.n, 'run')} by {spec.agent.name}"
            )
        case ReplaySpec():
            return f"replay {counted(spec.runs.n, 'run')}"
        case TalkSpec():
            return f"talk to {spec.agent.name}" + (f" with the tools of {spec.environment}" if spec.environment else "")
        case ExportAgentSpec():
            return f"export {spec.agent.name} as {spec.format}"
        case FetchSpec():
            return f"fetch {spec.url}"
        case PushSpec():
            return f"push {spec.dataset_id} to {spec.destination}"
        case _:
            return spec.kind


def _players(spec: RolloutSpec | EvaluateSpec) -> str:
    against = f" against {spec.opponent.name}" if spec.opponent is not None else ""
    return f"{spec.agent.name}{against}"


def _tasks(n: int, each: int, of: str) -> str:
    return counted(n, "task") + (f" x {counted(each, of)}" if each > 1 else "")
