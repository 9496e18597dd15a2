"""Job kinds and their implementations, one module each, imported when a job of the kind runs."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from quintain.records.jobs.job import JobResult, JobSpec
from quintain.records.protocols import Reporter

MODULES = {
    "selftest": "worker.job_kinds.selftest",
    "train": "worker.job_kinds.train",
    "rollout": "worker.job_kinds.rollouts",
    "evaluate": "worker.job_kinds.rollouts",
    "compare": "worker.job_kinds.compare",
    "evaluate_dataset": "worker.job_kinds.evaluate_dataset",
    "import": "worker.job_kinds.import_logs",
    "preview": "worker.job_kinds.preview",
    "judge": "worker.judging.job",
    "score": "worker.judging.job",
    "step_labels": "worker.job_kinds.step_labels",
    "influence": "worker.job_kinds.influence",
    "replay": "worker.job_kinds.replay",
    "export_agent": "worker.job_kinds.export_agent",
    "talk": "worker.job_kinds.talk",
    "fetch": "worker.job_kinds.transfers",
    "push": "worker.job_kinds.transfers",
    "recipe": "worker.job_kinds.recipe",
    "evolve": "worker.evolution.loop",
}
"""Kind of a job -> module of quintain whose function `run` executes it."""


def run(spec: JobSpec, directory: Path, reporter: Reporter) -> JobResult:
    """Execute a job and return its result; of a run that was stopped early only a `report` (`is_partial`).

    Args:
        spec: The job spec.
        directory: The job's folder. Work of an earlier attempt in `checkpoints/` and `outputs/` is continued.
        reporter: Receives events, and requests a stop.
    """
    result: JobResult = import_module(f"quintain.{MODULES[spec.kind]}").run(spec, directory, reporter)
    return result
