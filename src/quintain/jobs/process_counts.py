"""Number of processes that a job's trainings ask for."""

from __future__ import annotations

from typing import NamedTuple

from quintain.records.hyperparameters import TrainingConfig
from quintain.records.job import EvolveSpec, JobSpec, RecipeSpec, TrainSpec
from quintain.records.recipe import TrainStage


class ProcessCounts(NamedTuple):
    """Processes of a job on all its machines."""

    processes: int
    machines: int
    rendezvous: str | None
    """host:port of the first machine, where the others connect."""

    @property
    def per_machine(self) -> int:
        """Processes on each machine."""
        return self.processes // self.machines


ONE_PROCESS = ProcessCounts(1, 1, None)


def process_counts(spec: JobSpec) -> ProcessCounts | None:
    """Return what the training with the most processes asks for; None if each training has one process."""
    largest = max(_configs(spec), key=lambda config: config.processes, default=None)
    if largest is None or largest.processes == 1:
        return None
    return ProcessCounts(largest.processes, largest.machines, largest.rendezvous)


def _configs(spec: JobSpec) -> list[TrainingConfig]:
    if isinstance(spec, TrainSpec):
        return [spec.config]
    if isinstance(spec, RecipeSpec):
        return [stage.config for stage in spec.stages if isinstance(stage, TrainStage)]
    return [spec.training] if isinstance(spec, EvolveSpec) else []
