"""`python -m quintain.jobs LAUNCH_FILE`: reconcile. A shim executes this when its job has ended.

It reconciles again when an attempt's pause is over, so that a job goes on without a server.

The options are in the file. The database's URL and the address of Ray are in the environment, because their passwords must be in
no file of a job.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from quintain.jobs.launch import RAY_VARIABLE, URL_VARIABLE, Launch
from quintain.jobs.runner import JobRunner
from quintain.store.store import open_store

ELECTION_WAIT_S = 60.0

LOOK_S = 2.0
"""Seconds between two looks while an attempt pauses: a server may start it, or a user cancel it."""


def main(launch_file: str) -> None:
    """Wait for the leader lock and reconcile."""
    logging.basicConfig(level=logging.WARNING)
    options = Launch.model_validate_json(Path(launch_file).read_bytes()).options
    options = replace(options, cluster=replace(options.cluster, ray_address=os.environ.get(RAY_VARIABLE)))
    store = open_store(os.environ[URL_VARIABLE])
    try:
        runner = JobRunner(store, options, lambda: datetime.now(UTC))
        runner.reconcile(wait_s=ELECTION_WAIT_S)
        while (pause_s := runner.next_start_s()) is not None:
            time.sleep(min(pause_s, LOOK_S))
            runner.reconcile(wait_s=ELECTION_WAIT_S)
    finally:
        store.close()


if __name__ == "__main__":
    main(sys.argv[1])
    logging.shutdown()
    os._exit(0)  # the store is closed: to free every module one by one takes a sixth of the time
