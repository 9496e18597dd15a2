"""A server of its own on a home: `python -m benchmarks.faults.starter HOME SPEC KEY GATE`.

Prints "ready", waits for the file GATE, starts the job, prints its id, and reconciles until it has ended.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from benchmarks.faults.home import FaultHome
from quintain.jobs.directory import SPEC
from quintain.records.job import UNFINISHED


def main(folder: str, spec: str, key: str, gate: str) -> None:
    """Start the job once the gate exists."""
    home = FaultHome(Path(folder))
    print("ready", flush=True)
    while not Path(gate).exists():
        time.sleep(0.002)
    started = home.runner.start(SPEC.validate_json(spec), request_key=key)
    print(started.job.id, started.deduplicated, flush=True)
    while home.store.jobs.get(started.job.id).status in UNFINISHED:
        home.runner.reconcile()
        time.sleep(0.02)
    home.store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
