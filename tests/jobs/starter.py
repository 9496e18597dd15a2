"""Another process that starts a job, as a second server would: `starter.py URL OPTIONS SPEC KEY [GATE]`, the middle three in JSON.

With a gate it prints "ready" and waits until that file exists, so that many start at one moment. It prints the job's id,
then reconciles until the job has ended or someone kills it.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter

from quintain.jobs.directory import SPEC
from quintain.jobs.runner import JobOptions, JobRunner
from quintain.records.job import UNFINISHED
from quintain.store.store import open_store

options = TypeAdapter(JobOptions).validate_json(sys.argv[2])
store = open_store(sys.argv[1])
runner = JobRunner(store, options, lambda: datetime.now(UTC))
if len(sys.argv) > 5:
    sys.stdout.write("ready\n")
    sys.stdout.flush()
while len(sys.argv) > 5 and not Path(sys.argv[5]).exists():
    time.sleep(0.01)
started = runner.start(SPEC.validate_json(sys.argv[3]), request_key=json.loads(sys.argv[4]))
sys.stdout.write(f"{started.job.id} {started.deduplicated}\n")
sys.stdout.flush()
while store.jobs.get(started.job.id).status in UNFINISHED:
    runner.reconcile()
    time.sleep(0.05)
store.close()
