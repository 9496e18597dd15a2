"""Many servers with homes of their own on one PostgreSQL database, all with real jobs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.postgres_server import NoServer, Server, in_full, new_database

from quintain.records.filters import TrajectoryFilter
from quintain.records.jobs.job import JobStatus
from quintain.store.store import open_store

_SERVERS, _RUNS, _JOBS = 8, 250, 25

_SERVER = """
import sys, time
from datetime import UTC, datetime
from pathlib import Path
from quintain.jobs.runner import JobOptions, JobRunner
from quintain.records.jobs.job import UNFINISHED, SelftestSpec
from quintain.store.store import open_store
from trajectory_runs import NOW, run

url, home, runs, jobs = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:])
options = JobOptions(jobs_dir=home / "jobs", slots=1, max_attempts=5, auto_resume=True, grace_s=5.0, light_kinds=frozenset())
options.jobs_dir.mkdir(parents=True)
store = open_store(url)
runner = JobRunner(store, options, lambda: datetime.now(UTC))
ids = []
for number in range(runs):
    [mine] = store.trajectories.add_many([run(f"{home.name}-{number}")], NOW)
    print("run", mine.id, flush=True)
    if number < jobs:
        ids.append(runner.start(SelftestSpec(steps=2), request_key=f"{home.name}-{number}").job.id)
        print("job", ids[-1], flush=True)
while any(store.jobs.get(job_id).status in UNFINISHED for job_id in ids):
    runner.reconcile()
    time.sleep(0.1)
store.close()
"""


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_eight_servers_with_homes_of_their_own_lose_no_run_and_run_no_job_twice(tmp_path: Path) -> None:
    """2,000 acknowledged runs and 200 jobs with workers of their own. A job's steps would appear twice if it ran twice."""
    try:
        server = Server("fsync=off")
    except NoServer as reason:
        pytest.skip(str(reason))
    try:
        with new_database(in_full(server.url())) as url:
            _run_servers(url, tmp_path)
    finally:
        server.close()


def _run_servers(url: str, folder: Path) -> None:
    homes = [folder / f"home-{number}" for number in range(_SERVERS)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    argv = [sys.executable, "-c", _SERVER, url]
    servers = [
        subprocess.Popen([*argv, str(home), str(_RUNS), str(_JOBS)], stdout=subprocess.PIPE, text=True, env=environment)
        for home in homes
    ]
    lines = [line.split() for one in servers for line in one.communicate()[0].splitlines()]
    assert [one.returncode for one in servers] == [0] * _SERVERS
    runs, jobs = ({name for kind, name in lines if kind == wanted} for wanted in ("run", "job"))
    assert (len(runs), len(jobs)) == (_SERVERS * _RUNS, _SERVERS * _JOBS)
    store = open_store(url)
    assert {found.id for found in store.trajectories.iterate()} == runs
    assert store.trajectories.count(TrajectoryFilter()) == len(runs)
    for job_id in jobs:
        job = store.jobs.get(job_id)
        assert (job.status, job.attempt) == (JobStatus.SUCCEEDED, 1)
        assert [event.step for event in store.jobs.events(job_id, type="progress")] == [1, 2]
        assert [(home / "jobs" / job_id).is_dir() for home in homes].count(True) == 1
    store.close()
