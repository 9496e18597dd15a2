"""What one database holds: the ingestion of jobs is measured, then many homes with many actors are simulated on it.

Run as `python -m benchmarks.scaling [--actors N] [--runs-per-day N] [--poll-s S ...]`; prints one JSON line a figure.

The model: homes poll their jobs. A poll that finds k new runs ingests them, which takes `fixed + each * k` seconds and is
counted as if it held the database's write lock throughout; polls of other homes queue for it in order. A home polls again
`poll_s` seconds after its last poll ended. Actors finish runs at random (Poisson). Both parameters are measured here, through
the real ingestion of a real job folder into PostgreSQL with its default durability. `--flush-ms` takes another disk's.
"""

from __future__ import annotations

import argparse
import heapq
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.data.store import noted_run
from benchmarks.figures import report, say, summarize
from benchmarks.postgres_server import NoServer, Server, in_full, new_database
from quintain.jobs.directory import JobDirectory
from quintain.jobs.ingestion import ingest
from quintain.jobs.runner import JobOptions, JobRunner
from quintain.records.filters import TrajectoryFilter
from quintain.records.jobs.job import Job, JobStatus, SelftestSpec
from quintain.store.store import Store, open_store
from quintain.tools.services import utc_now
from quintain.worker.processes.reporter import FileReporter

ACTORS_PER_HOME = 16
DAY_S = 86_400.0
SIMULATED_S = 600.0


class Cost(NamedTuple):
    """Seconds that the ingestion of k runs takes: `fixed + each * k`."""

    fixed: float
    each: float


class Outcome(NamedTuple):
    """Of a simulation: the share of time in which the write lock is held, and seconds from a run's end to its row."""

    utilization: float
    median_s: float
    p99_s: float


def measure(store: Store, server: Server, folder: Path, *, quick: bool, flush_ms: float | None) -> tuple[Cost, float]:
    """Measure polls that find 1 and 400 runs. Return their cost, and the bytes of a run in the database.

    The cost is the processor time of both sides and the waits for the disk, since other work on this machine slows down the
    clock and not these: waits are the number of the database's flushes times the time of one.
    """
    now = utc_now()
    directory = JobDirectory(folder / "job-scaling")
    job = Job(
        id="job-scaling",
        kind="selftest",
        status=JobStatus.QUEUED,
        spec=SelftestSpec(),
        request_key="scaling",
        max_attempts=1,
        created_at=now,
        updated_at=now,
    )
    store.jobs.insert(job)
    directory.prepare(job)
    reporter = FileReporter(directory, 1, utc_now)
    number, points = 0, []
    flushes = _flushes(store)
    plan = ((1, 20), (400, 3)) if quick else ((1, 100), (400, 10))
    for k, rounds in plan:
        clock, processor = [], 0.0
        for _ in range(rounds):
            for _ in range(k):
                number += 1
                reporter.output("trajectory", noted_run(random.Random(number), number))
            reporter.progress(number, 10**6, {"reward": 0.5})
            began, began_cpu = time.perf_counter(), time.process_time() + server.cpu_seconds()
            assert ingest(store, job.id, directory, utc_now())
            processor += time.process_time() + server.cpu_seconds() - began_cpu
            clock.append(1000 * (time.perf_counter() - began))
        points.append(processor / rounds)
        report("poll_ms", clock, "ms", None, "lower", runs=k, processor_ms=round(1000 * points[-1], 2))
    each = (points[1] - points[0]) / 399
    waits = (_flushes(store) - flushes) / sum(rounds for _, rounds in plan)
    flush_s = flush_ms / 1000 if flush_ms else _flush_s(folder)
    with store.engine.connect() as connection:
        size = connection.exec_driver_sql("SELECT pg_total_relation_size('trajectories')").scalar_one()
    cost = Cost(max(0.0, points[0] - each) + waits * flush_s, each)
    report("poll_flushes", [waits], "1", None, "lower")
    report("flush_ms", [1000 * flush_s], "ms", None, "lower")
    return cost, size / number


def _flushes(store: Store) -> int:
    """Return how often the server has flushed its log to the disk. Its statistics are up to a second late."""
    time.sleep(1.2)
    store.trajectories.count(TrajectoryFilter())
    with store.engine.connect() as connection:
        return int(connection.exec_driver_sql("SELECT wal_sync FROM pg_stat_wal").scalar_one())


def _flush_s(folder: Path) -> float:
    """Return the median time of a write of 8 kB that waits for the disk."""
    times = []
    with (folder / "flush").open("wb") as file:
        for _ in range(100):
            began = time.perf_counter()
            file.write(bytes(8192))
            file.flush()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - began)
    return statistics.median(times)


def measure_jobs(store: Store, folder: Path, n: int) -> None:
    """Start so many small jobs at once, each with its shim and its worker process, and wait for all of them."""
    options = JobOptions(jobs_dir=folder / "jobs", slots=1, max_attempts=1, auto_resume=False, grace_s=5.0)
    options.jobs_dir.mkdir()
    runner = JobRunner(store, options, utc_now)
    began = time.perf_counter()
    starts = []
    for number in range(n):
        start = time.perf_counter()
        runner.start(SelftestSpec(steps=1), request_key=str(number))
        starts.append(1000 * (time.perf_counter() - start))
    while any(job.id != "job-scaling" for job in store.jobs.unfinished()):
        runner.reconcile()
        time.sleep(0.1)
    seconds = time.perf_counter() - began
    while any(str(folder) in " ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])):
        time.sleep(0.1)  # the shims of the last jobs still look for further ones
    report("job_start_ms", starts, "ms", None, "lower")
    report("small_jobs_per_minute", [60 * n / seconds], "1/min", None, jobs=n)


def simulate(cost: Cost, actors: int, runs_per_day: float, poll_s: float, seed: int = 0) -> Outcome:
    """Simulate ten minutes of homes that ingest what their actors finish, through one write lock."""
    dice = random.Random(seed)
    homes = -(-actors // ACTORS_PER_HOME)
    rate = runs_per_day / DAY_S / homes
    polls = [(dice.uniform(0, poll_s), home) for home in range(homes)]
    heapq.heapify(polls)
    following = [dice.expovariate(rate) for _ in range(homes)]
    free_at = busy = 0.0
    delays: list[float] = []
    while polls and polls[0][0] < SIMULATED_S:
        at, home = heapq.heappop(polls)
        ended: list[float] = []
        while following[home] <= at:
            ended.append(following[home])
            following[home] += dice.expovariate(rate)
        done = at
        if ended:
            took = cost.fixed + cost.each * len(ended)
            done = max(at, free_at) + took
            free_at, busy = done, busy + took
            delays += [done - moment for moment in ended]
        heapq.heappush(polls, (done + poll_s, home))
    delays.sort()
    p99 = delays[int(0.99 * (len(delays) - 1))]
    return Outcome(min(1.0, busy / SIMULATED_S), statistics.median(delays), p99)


def capacity(cost: Cost, actors: int, poll_s: float, limit_s: float) -> float:
    """Return the most runs a day of which 99 % are stored within `limit_s` seconds, to 5 %."""
    low, high = 0.0, 1e5
    while simulate(cost, actors, high, poll_s).p99_s <= limit_s and high < 1e9:
        low, high = high, 2 * high
    while high - low > 0.05 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if simulate(cost, actors, middle, poll_s).p99_s <= limit_s else (low, middle)
    return low


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and simulate."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description="What one database holds.")
    parser.add_argument("--actors", type=int, default=1000)
    parser.add_argument("--runs-per-day", type=float, default=1e7)
    parser.add_argument("--poll-s", type=float, nargs="+", default=[0.3, 2.0, 10.0])
    parser.add_argument(
        "--flush-ms", type=float, help="time of a write that waits for the disk, instead of this disk's"
    )
    parser.add_argument("--quick", action="store_true", help="few rounds: for a look, not for a claim")
    given = parser.parse_args(arguments)
    try:
        server = Server()
    except NoServer as reason:
        say(f"skipped: {reason}")
        return 0
    try:
        with new_database(in_full(server.url())) as url, tempfile.TemporaryDirectory() as folder:
            store = open_store(url)
            cost, size = measure(store, server, Path(folder), quick=given.quick, flush_ms=given.flush_ms)
            measure_jobs(store, Path(folder), 4 if given.quick else 20)
            store.close()
    finally:
        server.close()
    report("poll_fixed_ms", [1000 * cost.fixed], "ms", None, "lower")
    report("poll_each_run_ms", [1000 * cost.each], "ms", None, "lower")
    report("database_gb_a_day", [size * given.runs_per_day / 1e9], "GB", None, "lower", bytes_per_run=round(size))
    common = {"actors": given.actors, "homes": -(-given.actors // ACTORS_PER_HOME)}
    for poll_s in given.poll_s:
        outcome = simulate(cost, given.actors, given.runs_per_day, poll_s)
        more = {**common, "poll_s": poll_s, "runs_per_day": given.runs_per_day}
        report("write_lock_held_share", [outcome.utilization], "1", None, "lower", **more)
        report("run_stored_after_s", [outcome.median_s], "s", None, "lower", p99=round(outcome.p99_s, 2), **more)
        most = capacity(cost, given.actors, poll_s, limit_s=poll_s + 10)
        report("most_runs_per_day", [most], "1/day", None, stored_within_s=poll_s + 10, poll_s=poll_s, **common)
    summarize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
