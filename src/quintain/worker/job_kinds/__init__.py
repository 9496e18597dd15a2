"""Job kinds and their implementations, one module each. Modules with large dependencies are imported on demand."""

from __future__ import annotations

from pathlib import Path

from quintain.records.handover import ExportAgentSpec
from quintain.records.job import (
    CompareSpec,
    EvaluateDatasetSpec,
    EvaluateSpec,
    EvolveSpec,
    ImportSpec,
    JobResult,
    JobSpec,
    JudgeSpec,
    PreviewSpec,
    RecipeSpec,
    ReplaySpec,
    RolloutSpec,
    ScoreSpec,
    SelftestSpec,
    StepLabelSpec,
    TrainSpec,
)
from quintain.records.protocols import Reporter
from quintain.worker.job_kinds import preview, selftest
from quintain.worker.job_kinds import train as training


def run(spec: JobSpec, directory: Path, reporter: Reporter) -> JobResult:
    """Execute a job and return its result; of a run that was stopped early only a `report` (`is_partial`).

    Args:
        spec: The job spec.
        directory: The job's folder. Work of an earlier attempt in `checkpoints/` and `outputs/` is continued.
        reporter: Receives events, and requests a stop.
    """
    match spec:
        case SelftestSpec():
            return selftest.run(spec, directory, reporter)
        case TrainSpec():
            return training.run(spec, directory, reporter)
        case RolloutSpec() | EvaluateSpec():
            from quintain.worker.job_kinds import rollouts

            return rollouts.run(spec, directory, reporter)
        case CompareSpec():
            from quintain.worker.job_kinds import compare

            return compare.run(spec, directory, reporter)
        case EvaluateDatasetSpec():
            from quintain.worker.job_kinds import evaluate_dataset

            return evaluate_dataset.run(spec, directory, reporter)
        case ImportSpec():
            from quintain.worker.job_kinds import import_logs

            return import_logs.run(spec, directory, reporter)
        case PreviewSpec():
            return preview.run(spec, directory, reporter)
        case JudgeSpec():
            from quintain.worker.judging import job as judging

            return judging.run(spec, directory, reporter)
        case ScoreSpec():
            from quintain.worker.judging import local_models as scoring

            return scoring.run(spec, directory, reporter)
        case StepLabelSpec():
            from quintain.worker.job_kinds import step_labels

            return step_labels.run(spec, directory, reporter)
        case ReplaySpec():
            from quintain.worker.job_kinds import replay

            return replay.run(spec, directory, reporter)
        case ExportAgentSpec():
            from quintain.worker.job_kinds import export_agent

            return export_agent.run(spec, directory, reporter)
        case RecipeSpec():
            from quintain.worker.job_kinds.recipe import run as run_recipe

            return run_recipe(spec, directory, reporter)
        case EvolveSpec():
            from quintain.worker.evolution.loop import run as run_evolution

            return run_evolution(spec, directory, reporter)
