"""A killed server of PostgreSQL: under servers that record runs, under jobs, and inside a migration."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import text

from benchmarks.faults.home import exit_code, forked, record
from benchmarks.faults.store import OLD_RUNS, open_and_close, write_oldest
from benchmarks.figures import not_run, report
from benchmarks.postgres_server import NoServer, Server, in_full, new_database
from quintain.errors import Unavailable
from quintain.jobs.launch import JobOptions
from quintain.jobs.runner import JobRunner
from quintain.records.jobs.job import JobStatus, SelftestSpec
from quintain.store.database.engine import create_engine, read_transaction
from quintain.store.migrations import REVISIONS
from quintain.store.store import Store, open_store

STEPS_A_KILL = 30
"""Steps of 0.1 s of each job for each kill, so that the jobs outlast the kills."""


@contextmanager
def _server(figure: str) -> Iterator[Server | None]:
    """Yield a new server; None, and a figure that was not run, where there is none."""
    try:
        server = Server()
    except NoServer as reason:
        not_run(figure, "rows", 0, "lower", str(reason))
        yield None
        return
    try:
        yield server
    finally:
        server.close()


def postgresql(count: int) -> None:
    """Kill the server while threads record runs and three jobs run: acknowledged rows are there, each job goes on to its end."""
    with _server("acknowledged_lost_on_postgresql") as server, TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        if server is None:
            return
        url, stop, dice = in_full(server.url()), threading.Event(), random.Random(6)
        store = open_store(url)
        options = JobOptions(Path(folder) / "jobs", slots=4, max_attempts=5, auto_resume=True, grace_s=2.0)
        runner = JobRunner(store, options, lambda: datetime.now(UTC))
        steps = STEPS_A_KILL * count
        jobs = [runner.start(SelftestSpec(steps=steps, step_s=0.1), request_key=str(n)).job.id for n in range(3)]
        acknowledged: list[list[str]] = [[] for _ in range(3)]
        codes: set[str] = set()
        works = [partial(_write_until, url, stop, f"w{n}", own, codes) for n, own in enumerate(acknowledged)]
        threads = [threading.Thread(target=work) for work in (*works, partial(_reconcile_until, stop, runner, store))]
        for thread in threads:
            thread.start()
        for _ in range(count):
            _grown(acknowledged, sum(map(len, acknowledged)) + 10)
            time.sleep(dice.uniform(0, 0.2))
            server.kill()
            server.start()
        _grown(acknowledged, sum(map(len, acknowledged)) + 3)
        stop.set()
        for thread in threads:
            thread.join(600)
        stored = [run.task.id for run in store.trajectories.iterate()]
        wrong = [fault for job_id in jobs for fault in _job_faults(store, job_id, steps)]
        store.close()
    written = [name for own in acknowledged for name in own]
    wrong += [f"stored twice: {name}" for name in set(stored) if stored.count(name) > 1]
    wrong += [f"code {code}" for code in codes - {"database_unavailable"}]
    lost = len(set(written) - set(stored))
    report("postgresql_kills", [count], "kills", None, acknowledged=len(written), jobs=len(jobs))
    report("acknowledged_lost_on_postgresql", [lost], "rows", 0, "lower")
    report("faults_on_postgresql", [len(wrong)], "faults", 0, "lower", codes=sorted(codes), found=wrong[:5])


def _grown(acknowledged: list[list[str]], size: int) -> None:
    deadline = time.monotonic() + 60
    while sum(map(len, acknowledged)) < size and time.monotonic() < deadline:
        time.sleep(0.01)


def _write_until(url: str, stop: threading.Event, name: str, acknowledged: list[str], codes: set[str]) -> None:
    store = open_store(url)
    number = 0
    while not stop.is_set():
        number += 1
        for _ in range(2):
            try:
                record(store, f"{name}-{number}")
                acknowledged.append(f"{name}-{number}")
                break
            except Unavailable as error:
                codes.add(error.code)
                time.sleep(0.05)
    store.close()


def _reconcile_until(stop: threading.Event, runner: JobRunner, store: Store) -> None:
    """Look after the jobs as a server does, until they have ended and the writers have stopped."""
    is_done = False
    while not is_done:
        with suppress(Unavailable):
            runner.reconcile()
            is_done = stop.is_set() and not store.jobs.unfinished()
        time.sleep(0.1)


def _job_faults(store: Store, job_id: str, steps: int) -> Iterator[str]:
    job = store.jobs.get(job_id)
    if (job.status, job.attempt) != (JobStatus.SUCCEEDED, 1):
        yield f"{job_id} is {job.status} in attempt {job.attempt}: {job.error}"
    if [event.step for event in store.jobs.events(job_id, type="progress")] != list(range(1, steps + 1)):
        yield f"{job_id}: steps are missing or repeated"


def postgresql_migrations(count: int) -> None:
    """Kill the server at random moments of a migration, then let two servers migrate at once."""
    dice, wrong, cut = random.Random(13), [], 0
    with _server("faults_after_killed_migrations_on_postgresql") as server:
        if server is None:
            return
        usual_s = _migrated(server, None)[0]
        for number in range(count):
            _, code, faults = _migrated(server, dice.uniform(0, usual_s))
            cut += code != 0
            wrong += [f"migration {number}: {fault}" for fault in faults]
    report("migrations_killed_on_postgresql", [count], "kills", None, before_its_end=cut)
    report("faults_after_killed_migrations_on_postgresql", [len(wrong)], "faults", 0, "lower", found=wrong[:5])


def _migrated(server: Server, after_s: float | None) -> tuple[float, int, list[str]]:
    """Migrate a database of the first schema, with a kill of the server. Return its seconds, its exit code, and what is wrong."""
    with new_database(in_full(server.url()), migrated=False) as url:
        write_oldest(url)
        begin, child = time.monotonic(), forked(_migrate, url)
        if after_s is not None:
            time.sleep(after_s)
            server.kill()
        code, seconds = exit_code(child), time.monotonic() - begin
        if after_s is None:
            return seconds, code, []
        server.start()
        wrong = _between(url, {REVISIONS[0], REVISIONS[-1]})
        children = [forked(open_and_close, url) for _ in range(2)]
        wrong += [f"a later migration ended with {code}" for code in map(exit_code, children) if code]
        return seconds, code, wrong + _between(url, {REVISIONS[-1]})


def _migrate(url: str) -> None:
    try:
        open_and_close(url)
    except Unavailable:
        os._exit(1)  # the server was killed


def _between(url: str, revisions: set[str]) -> list[str]:
    """Return what is wrong with a database: it has one of these revisions, and all runs."""
    engine = create_engine(url)
    with read_transaction(engine) as connection:
        revision = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one()
        runs = connection.execute(text("SELECT count(*) FROM trajectories")).scalar_one()
    engine.dispose()
    wrong = [] if runs == OLD_RUNS else [f"{runs} of {OLD_RUNS} runs"]
    return wrong + ([] if revision in revisions else [f"at {revision}"])
