"""A server over stdio with its process, and its cost alone and beside others on one home."""

from __future__ import annotations

import sqlite3
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil

from benchmarks.faults.home import call
from benchmarks.figures import percentile, report
from benchmarks.server import OURS, Client

MB = 1024**2


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
        report("idle_rss_mb", [server.process.memory_info().rss / MB], "MB", 90, "lower")
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
    report("record_p99_ms", [percentile(times, 0.99)], "ms", 250, "lower", processor_ms=round(cpu, 2), **more)
    report("record_p50_ms", [statistics.median(times)], "ms", None, "lower", **more)
    report("records_per_s", [len(times) / seconds], "1/s", None, **more)
    for server in everyone:
        server.close()
