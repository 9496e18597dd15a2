"""The kinds of job, and who carries them out; those that load much are imported when a job needs them."""

from __future__ import annotations

from pathlib import Path

from quintain.records.handover import ExportAgentSpec
from quintain.records.job import (
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
from quintain.records.seams import Reporter
from quintain.worker import preview, selftest
from quintain.worker import train as training


def run(spec: JobSpec, directory: Path, reporter: Reporter) -> JobResult:
    """Carry out a job.

    Args:
        spec: What to do.
        directory: The job's folder; what an earlier attempt left in `checkpoints/` and `outputs/` is continued.
        reporter: Hears what happens, and says whether to stop.

    Returns:
        What the job made. A run that `reporter` told to stop, and that stopped early, returns nothing but a `report` (`is_partial`).
    """
    match spec:
        case SelftestSpec():
            return selftest.run(spec, directory, reporter)
        case TrainSpec():
            return training.run(spec, directory, reporter)
        case RolloutSpec() | EvaluateSpec():
            from quintain.worker import rollouts

            return rollouts.run(spec, directory, reporter)
        case EvaluateDatasetSpec():
            from quintain.worker import dataset_evaluation

            return dataset_evaluation.run(spec, directory, reporter)
        case ImportSpec():
            from quintain.worker import imports

            return imports.run(spec, directory, reporter)
        case PreviewSpec():
            return preview.run(spec, directory, reporter)
        case JudgeSpec():
            from quintain.worker.judging import job as judging

            return judging.run(spec, directory, reporter)
        case ScoreSpec():
            from quintain.worker.judging import local_models as scoring

            return scoring.run(spec, directory, reporter)
        case StepLabelSpec():
            from quintain.worker import step_labels

            return step_labels.run(spec, directory, reporter)
        case ReplaySpec():
            from quintain.worker import replay

            return replay.run(spec, directory, reporter)
        case ExportAgentSpec():
            from quintain.worker import export_agent

            return export_agent.run(spec, directory, reporter)
        case RecipeSpec():
            from quintain.worker.recipe import run as run_recipe

            return run_recipe(spec, directory, reporter)
        case EvolveSpec():
            from quintain.worker.evolution.loop import run as run_evolution

            return run_evolution(spec, directory, reporter)
