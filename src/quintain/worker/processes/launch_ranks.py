"""A job in several processes of this machine: start them, and record why they ended if they have not done so."""

from __future__ import annotations

from quintain.errors import QuintainError, TrainingFailed
from quintain.jobs.directory import JobDirectory
from quintain.records.hyperparameters.methods import TrainingConfig
from quintain.records.jobs.job_events import JobEvent
from quintain.trainers.distributed.launcher import launch
from quintain.worker.processes.attempt import failure_of, open_reporter


def launch_ranks(directory: JobDirectory, attempt: int, training: TrainingConfig) -> int:
    """Run an attempt in the processes of this machine. Return 0 if the job succeeded, else 1."""
    error: QuintainError | None = None
    try:
        program = ("-P", "-m", "quintain.worker.rank", str(directory.path), str(attempt))
        exits = launch(program, training.processes, training.machines, training.rendezvous)
    except QuintainError as refused:
        exits, error = [], refused
    recorded = _recorded(directory, attempt)
    if "result" in recorded:
        return 0
    # The others have only noticed that a killed one is gone.
    cause = next((one for one in exits if one.was_killed), None)
    if cause is None and "failed" not in recorded:
        cause = next(iter(exits), None)
    if cause is not None:
        error = TrainingFailed(
            f"process {cause.rank + 1} of {training.processes} {cause}; resume the job from the newest checkpoint; if memory ran "
            "out, train with fewer processes or a smaller batch_tokens",
            code="process_lost",
        )
    if error is not None:
        open_reporter(directory, attempt).failed(failure_of(error))
    return 1


def _recorded(directory: JobDirectory, attempt: int) -> set[str]:
    """Return the types of the events of an attempt."""
    with directory.events.open("rb") as lines:
        return {event.type for event in map(JobEvent.model_validate_json, lines) if event.attempt == attempt}
