"""`python -m quintain.worker JOB_DIR ATTEMPT [LOCK_FD|none]`: execute one attempt of a job and record how it ended.

The third argument is given by a shim: the descriptor of the job's lock, or `none` on a machine without it.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from quintain.jobs.directory import JobDirectory
from quintain.worker import parent_watch
from quintain.worker.attempt import configure_process, home_of, run_attempt
from quintain.worker.process_counts import process_counts


def main(arguments: list[str]) -> int:
    """Run the attempt, in this process or in those of a training. Return 0 if the job succeeded, else 1."""
    folder, attempt = arguments[0], int(arguments[1])
    if arguments[2:]:
        parent_watch.watch_parent(None if arguments[2] == "none" else int(arguments[2]))
    directory = JobDirectory(Path(folder))
    configure_process(home_of(directory))
    if (counts := process_counts(directory.read_spec())) is not None:
        from quintain.worker.launch_ranks import launch_ranks  # torch

        return launch_ranks(directory, attempt, counts)
    return run_attempt(directory, attempt)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)  # everything is written: exit handlers of libraries must not delay the end of the job
