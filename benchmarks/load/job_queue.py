"""A server with 1,000 queued and 50 running jobs: calls, its cost, cancelling, starting."""

from __future__ import annotations

import os
import signal
import sqlite3
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from benchmarks.faults.home import call
from benchmarks.figures import percentile, report, say
from benchmarks.load.server import MB, Server
from quintain.jobs.directory import JobDirectory
from quintain.jobs.launch import JobOptions
from quintain.jobs.runner import JobRunner
from quintain.records.jobs.job import SelftestSpec
from quintain.store.store import open_store


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
            starts += server.latencies(20 if quick else 60, _training, 0.05)
            report("start_training_p95_ms", [percentile(starts, 0.95)], "ms", 300, "lower", calls=len(starts), **more)
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
        report(f"{name}_p99_ms", [percentile(times, 0.99)], "ms", 100, "lower", **extra)
        report(f"{name}_p50_ms", [statistics.median(times)], "ms", None, "lower")
    before, began = server.cpu_s(), time.perf_counter()
    server.latencies(20, kinds["get_job"], 0.5)
    share = (server.cpu_s() - before) / (time.perf_counter() - began)
    report("server_share_of_a_core_with_2_calls_a_second", [share], "1", 0.25, "lower", **more)
    report("server_rss_mb", [server.process.memory_info().rss / MB], "MB", 150, "lower", **more)


def _shims(folder: Path, ids: Sequence[str]) -> None:
    """Measure the memory of shims, and their processor time and that of the workers."""
    rss, cpu = [], 0.0
    shims = [record for job_id in ids if (record := JobDirectory(folder / "jobs" / job_id).shim())]
    processes = [psutil.Process(record.shim) for record in shims]
    before = sum(sum(process.cpu_times()[:2]) for process in processes)
    time.sleep(5)
    cpu = (sum(sum(process.cpu_times()[:2]) for process in processes) - before) / 5 / len(processes)
    rss = [process.memory_info().rss / MB for process in processes]
    report("shim_rss_mb", rss, "MB", 15, "lower")
    report("shim_share_of_a_core", [cpu], "1", None, "lower")


def _cancelling(server: Server, folder: Path, n: int, running: Sequence[str]) -> None:
    """Cancel queued jobs one call after the other, then the running ones, and wait for their ends."""
    before, began = server.cpu_s(), time.perf_counter()
    times = server.latencies(n, lambda i: ("cancel_job", {"job_id": f"job-{i + 2:010x}"}), 0.0)
    seconds = time.perf_counter() - began
    cpu = round(1e3 * (server.cpu_s() - before) / n, 2)
    report("cancel_300_queued_jobs_s", [seconds * 300 / n], "s", 5, "lower", jobs=n, processor_ms=cpu)
    report("cancel_job_p99_ms", [percentile(times, 0.99)], "ms", None, "lower")
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
