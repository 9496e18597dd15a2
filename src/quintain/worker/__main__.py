"""`python -m quintain.worker JOB_DIR ATTEMPT [LOCK_FD|none [HOST:PORT]]`: execute one attempt of a job and record how it ended.

A shim passes the descriptor of the job's lock, or `none` on a machine without it, and where the processes of other machines
connect, if its launcher has chosen it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from quintain.jobs.devices import widest_training
from quintain.jobs.directory import JobDirectory
from quintain.worker.processes import parent_watch
from quintain.worker.processes.attempt import configure_process, exit_at_once, home_of, launch_ranks, run_attempt


def main(arguments: list[str]) -> int:
    """Run the attempt, in this process or in those of a training. Return 0 if the job succeeded, else 1."""
    folder, attempt = arguments[0], int(arguments[1])
    if arguments[2:]:
        parent_watch.watch_parent(None if arguments[2] == "none" else int(arguments[2]))
    directory = JobDirectory(Path(folder))
    configure_process(home_of(directory))
    if (training := widest_training(directory.read_spec())).processes > 1:
        if arguments[3:]:
            training = training.model_copy(update={"rendezvous": arguments[3]})
        return launch_ranks(directory, attempt, training)
    return run_attempt(directory, attempt)


if __name__ == "__main__":
    exit_at_once(main(sys.argv[1:]))
