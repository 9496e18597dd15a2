"""Many servers on one PostgreSQL database, which is killed or cut off at random: nothing acknowledged is lost or stored twice."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
import sqlalchemy
from benchmarks.postgres_server import PASSWORD, Server

from network_path import NetworkPath
from quintain.errors import Unavailable
from quintain.records.filters import TrajectoryFilter
from quintain.records.job import Job, JobStatus, SelftestSpec
from quintain.store.store import Store, open_store
from trajectory_runs import NOW, run

_SERVERS = 4


@pytest.fixture
def path(server: Server) -> Iterator[NetworkPath]:
    made = NetworkPath(str(server.folder / ".s.PGSQL.5432"))
    yield made
    made.close()


class Log(NamedTuple):
    """What one server tried, what was acknowledged, and the errors."""

    tried: list[str]
    acknowledged: list[str]
    errors: list[str]


def _write_until(stop: threading.Event, url: str, name: str, log: Log) -> None:
    """Record runs and start jobs, as a server does, until told to stop; every failed write is tried once more."""
    store = _open(url, stop, log)
    number = 0
    while not stop.is_set():
        number += 1
        log.tried.append(f"{name}-{number}")
        for _ in range(2):
            try:
                _write(store, name, number)
                log.acknowledged.append(f"{name}-{number}")
                break
            except Unavailable as error:
                log.errors.append(str(error))
                time.sleep(0.05)
    store.close()


def _open(url: str, stop: threading.Event, log: Log) -> Store:
    while True:
        try:
            return open_store(url)
        except Unavailable as error:
            log.errors.append(str(error))
            assert not stop.wait(0.05)


def _write(store: Store, name: str, number: int) -> None:
    store.trajectories.add_many([run(f"{name}-{number}"), run(f"shared-{number}")], NOW)
    job = Job(
        id=f"job-{name}-{number}",
        kind="selftest",
        status=JobStatus.QUEUED,
        spec=SelftestSpec(steps=1),
        request_key=f"{name}-{number}",
        max_attempts=9,
        created_at=NOW,
        updated_at=NOW,
    )
    inserted = store.jobs.insert(job).job
    store.jobs.begin_attempt(inserted.id, 0, 1, NOW)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", ["kill", "cut"])
def test_thirty_random_faults_lose_nothing_acknowledged_and_servers_recover(
    server: Server, shared: Store, path: NetworkPath, fault: str
) -> None:
    dice = random.Random(18)
    url = sqlalchemy.make_url(shared.url).set(host="127.0.0.1", port=path.port, query={})
    address = url.render_as_string(hide_password=False)
    stop = threading.Event()
    logs = [Log([], [], []) for _ in range(_SERVERS)]
    writers = [threading.Thread(target=_write_until, args=(stop, address, f"s{n}", log)) for n, log in enumerate(logs)]
    for writer in writers:
        writer.start()
    for _ in range(30):
        before = sum(len(log.acknowledged) for log in logs)
        _until(lambda before=before: sum(len(log.acknowledged) for log in logs) >= before + 8)
        time.sleep(dice.uniform(0, 0.1))
        if fault == "cut":
            path.cut()
        else:
            server.kill()
            server.start()
    before = [len(log.acknowledged) for log in logs]
    _until(lambda: all(len(log.acknowledged) > n for log, n in zip(logs, before, strict=True)))
    stop.set()
    for writer in writers:
        writer.join(60)

    stored = Counter(trajectory.task.id for trajectory in shared.trajectories.iterate())
    jobs = {job.request_key: job for job in shared.jobs.unfinished()}
    for log in logs:
        assert set(log.acknowledged) <= set(stored), "nothing acknowledged is lost"
        assert all(jobs[key].attempt == 1 for key in log.acknowledged)
        assert log.errors, "every server met a fault"
    assert set(stored.values()) == {1}, "no run is stored twice, even if two servers record it, or one repeats a call"
    assert set(stored) <= {name for log in logs for name in log.tried} | {name for name in stored if "shared" in name}
    errors = [error for log in logs for error in log.errors]
    assert all(error.startswith("[database_unavailable]") for error in errors)
    assert not [error for error in errors if PASSWORD in error]


def _until(condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "the servers do not recover"
        time.sleep(0.01)


_SERVER = """
import sys
from datetime import UTC, datetime
from quintain.records.job import LIGHT_KINDS
from quintain.store.store import open_store
from trajectory_runs import NOW, run

url, me = sys.argv[1:]
store = open_store(url)
for number in range(200):
    [mine] = store.trajectories.add_many([run(f"{me}-{number}")], NOW)
    print("run", mine.id, flush=True)
    store.trajectories.add_many([run(f"shared-{number}")], NOW)
while startable := store.jobs.startable(25, frozenset()):
    for job in startable:
        if store.jobs.begin_attempt(job.id, 0, 1, NOW):
            print("job", job.id, flush=True)
            assert store.jobs.finish(job.id, 1, "succeeded", NOW)
store.close()
"""


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_eight_servers_share_a_database_and_nothing_is_lost_or_done_twice(shared: Store) -> None:
    """8 x 200 runs of their own and 400 that all record make 2,000 runs in calls of one; 200 jobs are each begun once."""
    for number in range(200):
        job = Job(
            id=f"job-{number}", kind="selftest", status=JobStatus.QUEUED, spec=SelftestSpec(steps=1),
            request_key=str(number), max_attempts=9, created_at=NOW, updated_at=NOW,
        )  # fmt: skip
        shared.jobs.insert(job)
    argv = [sys.executable, "-c", _SERVER, shared.url]
    environment = {"PYTHONPATH": ":".join(sys.path)}
    servers = [subprocess.Popen([*argv, f"s{n}"], stdout=subprocess.PIPE, text=True, env=environment) for n in range(8)]
    lines = [line.split() for server in servers for line in server.communicate()[0].splitlines()]
    assert [server.returncode for server in servers] == [0] * 8
    runs, jobs = ([name for kind, name in lines if kind == wanted] for wanted in ("run", "job"))
    assert (len(runs), len(set(runs))) == (1600, 1600)
    assert {item.id for item in shared.trajectories.iterate()} >= set(runs)
    assert shared.trajectories.count(TrajectoryFilter()) == 1800
    assert sorted(jobs) == sorted(f"job-{number}" for number in range(200)), "each job was begun by one server"
    assert shared.jobs.unfinished() == []
