"""`python -m quintain.worker JOB_DIR ATTEMPT [LOCK_FD]`: carry out one attempt of a job and say how it ended."""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

from quintain.environments.registry import configure
from quintain.errors import QuintainError
from quintain.jobs.directory import JobDirectory
from quintain.records.job import JobError
from quintain.settings import secret
from quintain.worker import kinds, lifeline
from quintain.worker.reporter import FileReporter

logger = logging.getLogger(__name__)

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def main(arguments: list[str]) -> int:
    """Run the attempt; returns 0 when the job has succeeded."""
    folder, attempt, lock = arguments[0], int(arguments[1]), int(arguments[2]) if arguments[2:] else None
    lifeline.hold(lock)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    directory = JobDirectory(Path(folder))
    home = directory.path.absolute().parents[1]
    configure(home / "environments.toml", secret, home / "endpoints.toml")
    reporter = FileReporter(directory, attempt, lambda: datetime.now(UTC))
    signal.signal(signal.SIGTERM, lambda *_: reporter.request_stop())
    try:
        result = kinds.run(directory.read_spec(), directory.path, reporter)
    except Exception as error:
        logger.exception("the job failed")
        reporter.failed(failure_of(error))
        return 1
    if reporter.told_to_stop and result.is_partial:
        reporter.cancelled()
        return 1
    reporter.result(result)
    return 0


def failure_of(error: Exception) -> JobError:
    """What the user is told of an exception; its traceback stands in the log alone."""
    if isinstance(error, QuintainError):
        return JobError(code=error.code, message=error.message)
    # torch's own class is known by its name: torch is not imported here.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return JobError(
            code="out_of_memory",
            message=f"there was not enough memory: {error}",
            hint="Use a smaller batch (batch_tokens), a shorter max_length, LoRA, or a smaller model.",
        )
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        return JobError(
            code="disk_refused",
            message=f"the disk is full: {error}",
            hint="Free disk space, and resume the job: it goes on from its newest checkpoint.",
        )
    return JobError(
        code="crashed",
        message=f"{type(error).__name__}: {error}",
        hint="This is a fault in the program or its environment; the job's log holds the traceback.",
    )


if __name__ == "__main__":
    code = main(sys.argv[1:])
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)  # all is written: what libraries do when a program ends, or cannot end, does not hold the job
