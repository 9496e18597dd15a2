"""`python -m quintain.worker JOB_DIR ATTEMPT [LOCK_FD|none]`: execute one attempt of a job and record how it ended.

The third argument is given by a shim: the descriptor of the job's lock, or `none` on a machine without it.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from quintain.environments.registry import configure
from quintain.environments.retrieval import configure_retrieval
from quintain.errors import QuintainError
from quintain.jobs.directory import JobDirectory
from quintain.records.job import JobError
from quintain.records.protocols import TextRetriever
from quintain.settings import secret
from quintain.trainers.gguf_copies import keep_copies
from quintain.worker import job_kinds, parent_watch
from quintain.worker.reporter import FileReporter

logger = logging.getLogger(__name__)

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def main(arguments: list[str]) -> int:
    """Run the attempt. Return 0 if the job succeeded, else 1."""
    folder, attempt = arguments[0], int(arguments[1])
    if arguments[2:]:
        parent_watch.watch_parent(None if arguments[2] == "none" else int(arguments[2]))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    directory = JobDirectory(Path(folder))
    home = directory.path.absolute().parents[1]
    configure(home / "environments.toml", secret, home / "endpoints.toml")
    configure_retrieval(_open_retriever)
    keep_copies(home / "cache" / "models")
    reporter = FileReporter(directory, attempt, lambda: datetime.now(UTC))
    signal.signal(signal.SIGTERM, lambda *_: reporter.request_stop())
    try:
        result = job_kinds.run(directory.read_spec(), directory.path, reporter)
    except Exception as error:
        logger.exception("job failed")
        reporter.failed(failure_of(error))
        return 1
    if reporter.stop_acknowledged and result.is_partial:
        reporter.cancelled()
        return 1
    reporter.result(result)
    return 0


def _open_retriever(folder: Path, texts: Sequence[str]) -> TextRetriever:
    from quintain.trainers.retriever import open_retriever

    return open_retriever(folder, texts)


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
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        return JobError(
            code="disk_refused",
            message=f"the disk is full: {error}",
            hint="Free disk space, then resume the job to continue from the newest checkpoint.",
        )
    return JobError(
        code="crashed",
        message=f"{type(error).__name__}: {error}",
        hint="This is a bug in the program or its environment. The job's log contains the traceback.",
    )


if __name__ == "__main__":
    code = main(sys.argv[1:])
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)  # everything is written: exit handlers of libraries must not delay the end of the job
