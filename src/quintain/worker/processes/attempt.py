"""One attempt of a job: configure the process by the home folder, run the job, record how it ended."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from quintain.environments import configuration
from quintain.environments.configuration import configure_retrieval
from quintain.errors import QuintainError, TrainingFailed, disk_remedy, is_refused_by_disk
from quintain.jobs.directory import JobDirectory
from quintain.records.hyperparameters.methods import TrainingConfig
from quintain.records.jobs.job import JobError
from quintain.records.jobs.job_events import JobEvent
from quintain.records.protocols import TextRetriever
from quintain.settings import secret
from quintain.trainers.models.gguf_copies import keep_copies
from quintain.worker import job_kinds
from quintain.worker.processes.reporter import FileReporter

_home: Path | None = None


def configure(home: Path) -> None:
    """Configure environments, retrieval and caches of this process."""
    global _home
    configuration.configure(home / "environments.toml", secret, home / "endpoints.toml")
    configure_retrieval(_open_retriever)
    keep_copies(home / "cache" / "models")
    _home = home


def configured_home() -> str | None:
    """Return the home folder of this process, which its actors are configured by; None if there is none."""
    return None if _home is None else str(_home)


def _open_retriever(folder: Path, texts: Sequence[str]) -> TextRetriever:
    from quintain.trainers.retriever import open_retriever

    return open_retriever(folder, texts)


logger = logging.getLogger(__name__)


def configure_process(home: Path) -> None:
    """Set up logging, environments, endpoints and the cache of models of a home folder."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    configure(home)


def home_of(directory: JobDirectory) -> Path:
    """Return the home folder of a job."""
    return directory.path.absolute().parents[1]


def open_reporter(directory: JobDirectory, attempt: int) -> FileReporter:
    """Return the reporter of an attempt."""
    return FileReporter(directory, attempt, lambda: datetime.now(UTC))


def run_attempt(
    directory: JobDirectory, attempt: int, explain: Callable[[JobError], JobError] = lambda failure: failure
) -> int:
    """Run the attempt in this process. Return 0 if the job succeeded, else 1.

    Args:
        directory: The job's folder.
        attempt: Number of the attempt.
        explain: Maps the error of a failed job to the one that is recorded.
    """
    reporter = open_reporter(directory, attempt)
    signal.signal(signal.SIGTERM, lambda *_: reporter.request_stop())
    try:
        result = job_kinds.run(directory.read_spec(), directory.path, reporter)
    except Exception as error:
        logger.exception("job failed")
        reporter.failed(explain(failure_of(error)))
        return 1
    if reporter.stop_acknowledged and result.is_partial:
        reporter.cancelled()
        return 1
    reporter.result(result)
    return 0


def failure_of(error: Exception) -> JobError:
    """Convert an exception to the job's error. Its traceback is only in the log."""
    if isinstance(error, QuintainError):
        return JobError(code=error.code, message=error.message)
    # torch's exception is recognized by name, because torch is not imported here.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return JobError(
            code="out_of_memory",
            message=f"out of memory: {error}",
            hint="Use a smaller batch (batch_tokens), a shorter max_length, LoRA, or a smaller model.",
        )
    if isinstance(error, OSError) and is_refused_by_disk(error):
        remedy = disk_remedy(error)
        return JobError(
            code="disk_refused",
            message=f"the disk refuses a file: {error}",
            hint=f"{remedy[0].upper()}{remedy[1:]}, then resume the job to continue from the newest checkpoint.",
        )
    return JobError(
        code="crashed",
        message=f"{type(error).__name__}: {error}",
        hint="This is a bug in the program or its environment. The job's log contains the traceback.",
    )


def launch_ranks(directory: JobDirectory, attempt: int, training: TrainingConfig) -> int:
    """Run an attempt in the processes of this machine. Return 0 if the job succeeded, else 1."""
    from quintain.trainers.distributed.launcher import launch  # torch

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
            f"process {cause.rank + 1} of {training.processes} {cause}; if memory ran out, train with fewer processes or a "
            "smaller batch_tokens",
            code="process_lost",
        )
    if error is not None:
        open_reporter(directory, attempt).failed(failure_of(error))
    return 1


def _recorded(directory: JobDirectory, attempt: int) -> set[str]:
    """Return the types of the events of an attempt."""
    with directory.events.open("rb") as lines:
        return {event.type for event in map(JobEvent.model_validate_json, lines) if event.attempt == attempt}


def exit_at_once(code: int) -> NoReturn:
    """End this process with everything written: exit handlers of libraries must not delay the end of the job."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)
