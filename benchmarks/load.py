"""What the server costs and how long it takes under load, over stdio, with real workers.

Run as `python -m benchmarks.load [--quick] [--only NAME ...]`; prints one JSON line a figure. Beside the clock stands the
processor time of the server where both can be measured: other work on the machine slows the clock, and not the processor time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import signal
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from benchmarks.data_store import _fill
from benchmarks.fault_home import call
from benchmarks.figures import not_run, report, say, summarize
from benchmarks.server import OURS, Client
from quintain.jobs.directory import JobDirectory
from quintain.jobs.launch import JobOptions
from quintain.jobs.runner import JobRunner
from quintain.records.job import JobStatus, SelftestSpec
from quintain.store.store import open_store

_MB = 1024**2


class Server:
    """A server over stdio, with its process."""

    def __init__(self, home: Path) -> None:
        self.client = Client(OURS, home)
        self.client.list_tools()
        self.process = psutil.Process(self.client.process.pid)
        call(self.client, "list_jobs", limit=1)

    def cpu_s(self) -> float:
        """Return the processor time that the server has used so far."""
        times = self.process.cpu_times()
        return times.user + times.system

    def close(self) -> None:
        """End the server as a client does."""
        self.client.close()

    def latencies(self, n: int, arguments: Callable[[int], tuple[str, dict[str, Any]]], pause_s: float) -> list[float]:
        """Return the milliseconds of n calls by the clock."""
        times = []
        for number in range(n):
            tool, given = arguments(number)
            began = time.perf_counter()
            call(self.client, tool, **given)
            times.append(1e3 * (time.perf_counter() - began))
            time.sleep(pause_s)
        return times


def jobs(folder: Path, *, quick: bool) -> None:
    """1,000 queued and 50 running jobs of 10 events a second: calls, the server's cost, cancelling, starting."""
    n_running, n_queued, n_calls, n_cancelled = (10, 200, 40, 60) if quick else (50, 1000, 150, 300)
    server = Server(folder)
    more = {"running": n_running, "queued": n_queued}
    try:
        with _slot_holder(server, folder) as starts:
            _clone_queued(folder, n_queued - 1)
            ids = _start_running(folder, n_running)
            _settle(server, ids)
            _calls_under_load(server, ids, n_calls, more)
            starts += server.latencies(20 if quick else 60, lambda n: _training(n), 0.05)
            report("start_training_p95_ms", [_percentile(starts, 0.95)], "ms", 300, "lower", calls=len(starts), **more)
            _shims(folder, ids)
            _cancelling(server, folder, n_cancelled, ids)
    finally:
        server.close()
        _kill_rest(folder)


def _training(number: int) -> tuple[str, dict[str, Any]]:
    key = f"training-{number}"
    return "start_training", {"method": "sft", "model": "starter", "dataset_id": "load", "request_key": key}


@contextmanager
def _slot_holder(server: Server, folder: Path) -> Iterator[list[float]]:
    """Stop the worker of a training that has the only slot, so that others wait. Yield the times of starts."""
    steps = [{"actor": "user", "message": "Count to three."}, {"actor": "agent", "message": "one two three"}]
    runs = [
        {"task": {"id": str(n), "prompt": "Count."}, "steps": steps, "outcome": {"status": "success"}} for n in range(8)
    ]
    for run in runs:
        call(server.client, "record_trajectory", trajectory=run)
    call(server.client, "export_dataset", kind="sft", name="load", filter={"outcome": "success"})
    began = time.perf_counter()
    tool, given = _training(-1)
    holder = call(server.client, tool, **given)["job_id"]
    first = 1e3 * (time.perf_counter() - began)
    shim = JobDirectory(folder / "jobs" / holder).shim()
    assert shim is not None
    assert shim.worker is not None
    os.kill(shim.worker, signal.SIGSTOP)
    try:
        yield [first]
    finally:
        with suppress(ProcessLookupError):
            os.kill(shim.worker, signal.SIGKILL)


def _clone_queued(folder: Path, n: int) -> None:
    """Insert copies of a queued job: as many starts would leave."""
    with closing(sqlite3.connect(folder / "quintain.db", timeout=30)) as connection:
        names = [row[1] for row in connection.execute("PRAGMA table_info(jobs)") if row[1] != "seq"]
        row = dict(
            zip(names, connection.execute(f"SELECT {', '.join(names)} FROM jobs LIMIT 1").fetchone(), strict=True)
        )
        row |= {"status": "queued", "attempt": 0, "lease_until": None, "started_at": None}
        rows = [tuple((row | {"id": f"job-{i:010x}", "request_key": f"clone-{i}"}).values()) for i in range(n + 1)]
        connection.executemany(f"INSERT INTO jobs ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})", rows)
        connection.commit()


def _runner(folder: Path) -> JobRunner:
    options = JobOptions(jobs_dir=folder / "jobs", slots=1, max_attempts=5, auto_resume=True, grace_s=10.0)
    return JobRunner(open_store(f"sqlite:///{folder / 'quintain.db'}"), options, lambda: datetime.now(UTC))


def _start_running(folder: Path, n: int) -> list[str]:
    """Start jobs that report a step each 0.1 s for an hour, from this process, as another server would."""
    runner = _runner(folder)
    spec = SelftestSpec(steps=36_000, step_s=0.1, checkpoint_every_steps=1000)
    ids = []
    for number in range(n):
        ids.append(runner.start(spec, request_key=f"running-{number}").job.id)
        say(f"  started {number + 1} of {n}") if (number + 1) % 10 == 0 else None
    return ids


def _settle(server: Server, ids: Sequence[str]) -> None:
    """Wait until each job has reported a step."""
    for job_id in ids:
        while not call(server.client, "get_job", job_id=job_id)["step"]:
            time.sleep(0.5)


def _calls_under_load(server: Server, ids: Sequence[str], n: int, more: dict[str, Any]) -> None:
    """Measure the cost of the server alone, then calls about running and queued jobs and lists."""
    before, began = server.cpu_s(), time.perf_counter()
    time.sleep(10)
    alone = (server.cpu_s() - before) / (time.perf_counter() - began)
    report("server_share_of_a_core_without_calls", [alone], "1", 0.25, "lower", **more)
    queued = f"job-{1:010x}"
    kinds = {
        "get_job": lambda i: ("get_job", {"job_id": ids[i % len(ids)]}),
        "get_queued_job": lambda i: ("get_job", {"job_id": queued}),
        "list_jobs": lambda i: ("list_jobs", {}),
    }
    for name, arguments in kinds.items():
        before, began = server.cpu_s(), time.perf_counter()
        times = server.latencies(n, arguments, 0.02)
        cpu = server.cpu_s() - before - alone * (time.perf_counter() - began)
        extra = {"calls": n, "processor_ms": round(1e3 * cpu / n, 2), **more}
        report(f"{name}_p99_ms", [_percentile(times, 0.99)], "ms", 100, "lower", **extra)
        report(f"{name}_p50_ms", [statistics.median(times)], "ms", None, "lower")
    before, began = server.cpu_s(), time.perf_counter()
    server.latencies(20, kinds["get_job"], 0.5)
    share = (server.cpu_s() - before) / (time.perf_counter() - began)
    report("server_share_of_a_core_with_2_calls_a_second", [share], "1", 0.25, "lower", **more)
    report("server_rss_mb", [server.process.memory_info().rss / _MB], "MB", 150, "lower", **more)


def _shims(folder: Path, ids: Sequence[str]) -> None:
    """Measure the memory of shims, and their processor time and that of the workers."""
    rss, cpu = [], 0.0
    shims = [record for job_id in ids if (record := JobDirectory(folder / "jobs" / job_id).shim())]
    processes = [psutil.Process(record.shim) for record in shims]
    before = sum(sum(process.cpu_times()[:2]) for process in processes)
    time.sleep(5)
    cpu = (sum(sum(process.cpu_times()[:2]) for process in processes) - before) / 5 / len(processes)
    rss = [process.memory_info().rss / _MB for process in processes]
    report("shim_rss_mb", rss, "MB", 15, "lower")
    report("shim_share_of_a_core", [cpu], "1", None, "lower")


def _cancelling(server: Server, folder: Path, n: int, running: Sequence[str]) -> None:
    """Cancel queued jobs one call after the other, then the running ones, and wait for their ends."""
    before, began = server.cpu_s(), time.perf_counter()
    times = server.latencies(n, lambda i: ("cancel_job", {"job_id": f"job-{i + 2:010x}"}), 0.0)
    seconds = time.perf_counter() - began
    cpu = round(1e3 * (server.cpu_s() - before) / n, 2)
    report("cancel_300_queued_jobs_s", [seconds * 300 / n], "s", 5, "lower", jobs=n, processor_ms=cpu)
    report("cancel_job_p99_ms", [_percentile(times, 0.99)], "ms", None, "lower")
    began = time.perf_counter()
    server.latencies(len(running), lambda i: ("cancel_job", {"job_id": running[i]}), 0.0)
    report("cancel_running_call_ms", [1e3 * (time.perf_counter() - began) / len(running)], "ms", None, "lower")
    waiting = set(running)
    while waiting and time.perf_counter() - began < 120:
        time.sleep(0.2)
        waiting &= {job["job_id"] for job in call(server.client, "list_jobs", status="running", limit=200)["items"]}
    seconds = time.perf_counter() - began
    report("running_jobs_ended_after_cancel_s", [seconds], "s", None, "lower", jobs=len(running), left=len(waiting))


def _kill_rest(folder: Path) -> None:
    for process in psutil.process_iter(["cmdline"]):
        if any(str(folder) in part for part in process.info["cmdline"] or ()):
            with suppress(psutil.Error):
                process.kill()


def idle(folder: Path, *, quick: bool) -> None:
    """A server with nothing to do, alone and with a client that polls a list of jobs each second."""
    seconds = 10 if quick else 20
    server = Server(folder)
    try:
        time.sleep(2)
        for name, polls, goal in (("", False, 0.01), ("_polled_each_second", True, None)):
            before, began = server.cpu_s(), time.perf_counter()
            for _ in range(seconds):
                time.sleep(1)
                if polls:
                    call(server.client, "list_jobs")
            share = (server.cpu_s() - before) / (time.perf_counter() - began)
            report(f"idle{name}_share_of_a_core", [share], "1", goal, "lower")
        report("idle_rss_mb", [server.process.memory_info().rss / _MB], "MB", 90, "lower")
    finally:
        server.close()


def servers(folder: Path, *, quick: bool) -> None:
    """Several servers on one home, each recording runs one by one at once: none lost, and the time of a record."""
    n_servers, each = (8, 25) if quick else (16, 60)
    everyone = [Server(folder) for _ in range(n_servers)]
    times: list[float] = []
    failures: list[str] = []
    gate = threading.Barrier(n_servers + 1)

    def record(server: Server, name: int) -> None:
        for number in range(each + 1):
            if number == 1:  # the first call imports what it needs
                gate.wait()
            steps = [{"actor": "user", "message": "Count."}, {"actor": "agent", "message": f"{name}-{number}"}]
            run = {"task": {"id": f"{name}-{number}", "prompt": "Count."}, "steps": steps}
            began = time.perf_counter()
            try:
                call(server.client, "record_trajectory", trajectory=run)
                if number:
                    times.append(1e3 * (time.perf_counter() - began))
            except RuntimeError as error:
                failures.append(str(error))

    threads = [threading.Thread(target=record, args=(server, number)) for number, server in enumerate(everyone)]
    for thread in threads:
        thread.start()
    gate.wait()
    before, began = sum(server.cpu_s() for server in everyone), time.perf_counter()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    cpu = 1e3 * (sum(server.cpu_s() for server in everyone) - before) / (n_servers * each)
    with closing(sqlite3.connect(folder / "quintain.db", timeout=60)) as connection:
        stored = connection.execute("SELECT count(*) FROM trajectories").fetchone()[0]
    more: dict[str, Any] = {"servers": n_servers, "each": each}
    report("records_lost_or_refused", [len(failures) + len(times) + n_servers - stored], "1", 0, "lower", **more)
    report("record_p99_ms", [_percentile(times, 0.99)], "ms", 250, "lower", processor_ms=round(cpu, 2), **more)
    report("record_p50_ms", [statistics.median(times)], "ms", None, "lower", **more)
    report("records_per_s", [len(times) / seconds], "1/s", None, **more)
    for server in everyone:
        server.close()


def pages(folder: Path, *, quick: bool) -> None:
    """Pages of 50 of a million runs and jobs over stdio, at any depth and by each filter of the lists."""
    n, calls = (50_000, 60) if quick else (1_000_000, 200)
    Server(folder).close()  # creates the database
    (folder / "quintain.db").unlink()
    _fill(folder / "quintain.db", n, 160)
    _fill_jobs(folder / "quintain.db", n)
    os.sync()
    server = Server(folder)
    lists: dict[str, dict[str, dict[str, Any]]] = {
        "search_trajectories": {"": {}, "_by_agent": {"filter": {"agent": "helper"}}},
        "list_jobs": {
            "": {},
            "_by_status": {"status": "failed"},
            "_by_kind": {"kind": "import"},
            "_of_no_job": {"kind": "talk"},
            "_by_both": {"status": "succeeded", "kind": "rollout"},
        },
    }
    try:
        for tool, filters in lists.items():
            for suffix, given in filters.items():
                _pages_of(server, f"{tool}{suffix}", tool, given, n, calls)
        report("server_rss_with_a_million_rows_mb", [server.process.memory_info().rss / _MB], "MB", 150, "lower")
    finally:
        server.close()


def many_runs(folder: Path, *, quick: bool) -> None:
    """Pages of 50 of ten million runs over stdio, and the start of a server on them."""
    n, calls = (100_000, 60) if quick else (10_000_000, 200)
    if (free := shutil.disk_usage(folder).free) < (needed := 6_000 * n):
        reason = f"needs {needed / 1e9:.0f} GB of free disk space, there are {free / 1e9:.0f}"
        not_run("many_runs_page_p99_ms", "ms", 25, "lower", reason)
        return
    Server(folder).close()  # creates the database
    (folder / "quintain.db").unlink()
    began = time.perf_counter()
    _fill(folder / "quintain.db", n, 160)
    os.sync()
    size, seconds = (folder / "quintain.db").stat().st_size / 1e9, time.perf_counter() - began
    report("many_runs_filled_per_s", [n / seconds], "1/s", None, gb=round(size, 1))
    began = time.perf_counter()
    server = Server(folder)
    report("many_runs_server_ready_s", [time.perf_counter() - began], "s", None, "lower")
    try:
        _pages_of(server, "many_runs", "search_trajectories", {}, n, calls)
        _pages_of(server, "many_runs_by_agent", "search_trajectories", {"filter": {"agent": "helper"}}, n, calls)
        report("many_runs_server_rss_mb", [server.process.memory_info().rss / _MB], "MB", 150, "lower")
    finally:
        server.close()


def _pages_of(server: Server, name: str, tool: str, given: dict[str, Any], n: int, calls: int) -> None:
    from quintain.store.paging import encode_cursor

    noun = "trajectories" if tool == "search_trajectories" else "jobs"
    depths = itertools.cycle([None, n // 2, n - 100, n // 3, 10_000])
    cursors = [None if depth is None else encode_cursor(depth, noun) for depth in itertools.islice(depths, calls)]
    server.latencies(5, lambda i: (tool, {"limit": 50, **given}), 0.0)
    before = server.cpu_s()
    times = server.latencies(calls, lambda i: (tool, {"limit": 50, "cursor": cursors[i], **given}), 0.0)
    cpu = round(1e3 * (server.cpu_s() - before) / calls, 2)
    report(f"{name}_page_p99_ms", [_percentile(times, 0.99)], "ms", 25, "lower", rows=n, processor_ms=cpu)


def _fill_jobs(path: Path, n: int) -> None:
    """Insert ended jobs of several kinds and states, as bare rows."""
    spec = SelftestSpec().model_dump(mode="json")
    kinds = [("rollout", 0.9), ("selftest", 0.09), ("import", 0.01)]
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def rows() -> Iterator[tuple[Any, ...]]:
        for i in range(n):
            place = (i * 0.618033988749895) % 1.0
            kind = next(name for name, _ in kinds if (place := place - dict(kinds)[name]) < 0)
            status = JobStatus.FAILED if i % 50 == 0 else JobStatus.SUCCEEDED
            yield (f"job-{i:010x}", kind, status, f"key-{i}", json.dumps(spec), 0, 1, 5, moment, moment)

    names = "id, kind, status, request_key, spec, priority, attempt, max_attempts, created_at, updated_at"
    filled = "step, metrics, warnings, offsets, cancel_requested"
    values = f"{', '.join('?' * 10)}, 1, '{{}}', '[]', '{{}}', 0"
    with closing(sqlite3.connect(path, timeout=30)) as connection:
        connection.execute("PRAGMA synchronous=OFF").close()
        connection.executemany(f"INSERT INTO jobs ({names}, {filled}) VALUES ({values})", rows())
        connection.commit()


def _percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


PARTS = {"jobs": jobs, "idle": idle, "servers": servers, "pages": pages, "many_runs": many_runs}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the parts that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds: for a look, not for a claim")
    parser.add_argument("--only", nargs="+", choices=sorted(PARTS), default=list(PARTS), help="parts to measure")
    asked = parser.parse_args(arguments)
    measure(asked.only, quick=asked.quick)
    summarize()
    return 0


def measure(names: Sequence[str], *, quick: bool) -> None:
    """Measure parts, each in a home of its own."""
    for name in names:
        say(f"{name}: {(PARTS[name].__doc__ or '').splitlines()[0]}")
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            PARTS[name](Path(folder), quick=quick)


def load_goals(count: int) -> None:
    """Measure all parts so many times."""
    for _ in range(count):
        measure(list(PARTS), quick=False)


if __name__ == "__main__":
    sys.exit(main())
