"""`python -m quintain.worker.rank JOB_DIR ATTEMPT`: one of several processes that run a job, started by torchrun or alike.

The first one runs the job. The others take part in its trainings, and do nothing in between.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from quintain.errors import QuintainError
from quintain.jobs.directory import JobDirectory
from quintain.jobs.launch import lease_s
from quintain.records.jobs.job import JobError
from quintain.trainers.distributed.process_group import LOST, ProcessGroup, initialize
from quintain.trainers.models.libraries import import_libraries
from quintain.worker.processes import parent_watch
from quintain.worker.processes.attempt import configure_process, exit_at_once, failure_of, home_of, run_attempt
from quintain.worker.rollouts.concurrent_rollouts import playing_partner

logger = logging.getLogger(__name__)

_SILENT_LEASES = 2
"""Leases of a job after whose time a process of another machine that is not heard of counts as lost."""


def _ignore(*_: Any, **__: Any) -> None:
    """Do nothing: the first process reports the same."""


class SilentReporter:
    """Reporter of the processes that do not report; it requests a stop after SIGTERM."""

    phase = progress = acting = checkpoint = warn = output = staticmethod(_ignore)

    def __init__(self) -> None:
        self._stop = threading.Event()

    def should_stop(self) -> bool:
        """Whether this process was asked to stop."""
        return self._stop.is_set()

    def request_stop(self) -> None:
        """Make `should_stop` return True."""
        self._stop.set()


def main(arguments: list[str]) -> int:
    """Run the job, or take part in its trainings. Return 0 unless the job or this process has failed."""
    parent_watch.end_with_launcher()
    directory = JobDirectory(Path(arguments[0]))
    configure_process(home_of(directory))
    import_libraries()  # before the others wait for this process
    group = initialize(_SILENT_LEASES * lease_s(directory))
    if group.is_first:
        return _lead(group, directory, int(arguments[1]))
    return _follow(group)


def _lead(group: ProcessGroup, directory: JobDirectory, attempt: int) -> int:
    failures: list[JobError] = []

    def explain(failure: JobError) -> JobError:
        """Return the failure of the process to which the connection was lost, if it has reported one."""
        failures.append(failure)
        reported = group.reported_failure() if failure.code == LOST else None
        return JobError.model_validate_json(reported) if reported else failure

    run_attempt(directory, attempt, explain)
    group.dismiss(failed=bool(failures))
    return 1 if failures else 0


def _follow(group: ProcessGroup) -> int:
    from quintain.trainers.train import follow

    reporter = SilentReporter()
    signal.signal(signal.SIGTERM, lambda *_: reporter.request_stop())
    try:
        follow(group, reporter, playing_partner)
    except Exception as error:
        if not (isinstance(error, QuintainError) and error.code == LOST):
            logger.exception("process %d of %d failed", group.rank + 1, group.size)
            group.report_failure(failure_of(error).model_dump_json())
        return 1
    return 0


if __name__ == "__main__":
    exit_at_once(main(sys.argv[1:]))
