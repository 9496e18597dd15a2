"""Many servers on one PostgreSQL database, which is killed or cut off at random: nothing acknowledged is lost or stored twice."""

from __future__ import annotations

import random
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
from quintain.store.store import Store, open_store
from store_shelves import queued
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
    inserted = store.jobs.insert(queued(f"job-{name}-{number}", request_key=f"{name}-{number}")).job
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
