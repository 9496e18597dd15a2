"""Pages of lists of a million runs and jobs, and of ten million runs."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.data.store import fill_runs
from benchmarks.figures import not_run, percentile, report
from benchmarks.load.server import MB, Server
from quintain.records.jobs.job import JobStatus, SelftestSpec


def pages(folder: Path, *, quick: bool) -> None:
    """Pages of 50 of a million runs and jobs over stdio, at any depth and by each filter of the lists."""
    n, calls = (50_000, 60) if quick else (1_000_000, 200)
    Server(folder).close()  # creates the database
    (folder / "quintain.db").unlink()
    fill_runs(folder / "quintain.db", n, 160)
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
        report("server_rss_with_a_million_rows_mb", [server.process.memory_info().rss / MB], "MB", 150, "lower")
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
    fill_runs(folder / "quintain.db", n, 160)
    os.sync()
    size, seconds = (folder / "quintain.db").stat().st_size / 1e9, time.perf_counter() - began
    report("many_runs_filled_per_s", [n / seconds], "1/s", None, gb=round(size, 1))
    began = time.perf_counter()
    server = Server(folder)
    report("many_runs_server_ready_s", [time.perf_counter() - began], "s", None, "lower")
    try:
        _pages_of(server, "many_runs", "search_trajectories", {}, n, calls)
        _pages_of(server, "many_runs_by_agent", "search_trajectories", {"filter": {"agent": "helper"}}, n, calls)
        report("many_runs_server_rss_mb", [server.process.memory_info().rss / MB], "MB", 150, "lower")
    finally:
        server.close()


def _pages_of(server: Server, name: str, tool: str, given: dict[str, Any], n: int, calls: int) -> None:
    from quintain.store.database.paging import encode_cursor

    noun = "trajectories" if tool == "search_trajectories" else "jobs"
    depths = itertools.cycle([None, n // 2, n - 100, n // 3, 10_000])
    cursors = [None if depth is None else encode_cursor(depth, noun) for depth in itertools.islice(depths, calls)]
    server.latencies(5, lambda i: (tool, {"limit": 50, **given}), 0.0)
    before = server.cpu_s()
    times = server.latencies(calls, lambda i: (tool, {"limit": 50, "cursor": cursors[i], **given}), 0.0)
    cpu = round(1e3 * (server.cpu_s() - before) / calls, 2)
    report(f"{name}_page_p99_ms", [percentile(times, 0.99)], "ms", 25, "lower", rows=n, processor_ms=cpu)


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
