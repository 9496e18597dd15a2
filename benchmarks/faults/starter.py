"""A separate server: `python -m benchmarks.faults.starter URL OPTIONS SPEC KEY GATE`, with options and spec in JSON.

Prints "ready", waits for the file GATE, starts the job, prints its id, and reconciles until it has ended.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter

from quintain.jobs.directory import SPEC
from quintain.jobs.launch import JobOptions
from quintain.jobs.runner import JobRunner
from quintain.records.jobs.job import UNFINISHED, JobSpec
from quintain.store.store import open_store

OPTIONS = TypeAdapter(JobOptions)


def starter(url: str, options: JobOptions, spec: JobSpec, key: str, gate: Path) -> subprocess.Popen[str]:
    """Start such a server in a new session."""
    arguments = [url, OPTIONS.dump_json(options).decode(), SPEC.dump_json(spec).decode(), key, str(gate)]
    argv = [sys.executable, "-m", "benchmarks.faults.starter", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True, env=environment)


def main(url: str, options: str, spec: str, key: str, gate: str) -> None:
    """Start the job once the gate exists."""
    store = open_store(url)
    runner = JobRunner(store, OPTIONS.validate_json(options), lambda: datetime.now(UTC))
    print("ready", flush=True)
    while not Path(gate).exists():
        time.sleep(0.002)
    started = runner.start(SPEC.validate_json(spec), request_key=key)
    print(started.job.id, started.deduplicated, flush=True)
    while store.jobs.get(started.job.id).status in UNFINISHED:
        runner.reconcile()
        time.sleep(0.02)
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
