"""Calls a second over HTTP, their latency, and the memory of the idle server with its web page in use.

Run as `python -m benchmarks.http`; prints one JSON line per figure. Clients are threads of this process with one connection
each; they share the machine with the server. The rate of one client is not limited here, all other limits are at their
defaults. The figures beside a busy process have a second process that computes without pause.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.figures import report, rounded, summarize
from benchmarks.machine import busy_processes, free_port

CONNECTIONS = 4
ROUNDS = 3
SECONDS = 2.0
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "benchmark", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
READ = "search_trajectories"
LIST = "list_jobs"
"""It also looks after the jobs, as the server does by itself."""
HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
MODERN = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call"}


class Server:
    """`quintain serve --transport http` as a separate process."""

    def __init__(self, home: Path) -> None:
        command = [str(Path(sys.executable).with_name("quintain")), "serve", "--transport", "http"]
        environment = {**os.environ, "QUINTAIN_HOME": str(home), "QUINTAIN_HTTP_CALLS_PER_S": "1000000"}
        self.port = free_port()
        self.process = subprocess.Popen(
            [*command, "--port", str(self.port)], stderr=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stderr is not None
        while self.process.stderr.readline().strip() != "ready":
            assert self.process.poll() is None
        self.token = (home / "http-token").read_text().strip()

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def call(self, connection: http.client.HTTPConnection, tool: str) -> None:
        """Call a tool by the protocol of 2026-07-28."""
        params = {"name": tool, "arguments": {}, "_meta": META}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        self._post(connection, "/mcp", body, MODERN | {"Mcp-Name": tool})

    def call_of_page(self, connection: http.client.HTTPConnection, tool: str) -> None:
        """Call a tool as the web page does."""
        self._post(connection, f"/api/tools/{tool}", {}, {})

    def _post(self, connection: http.client.HTTPConnection, path: str, body: object, headers: dict[str, str]) -> None:
        connection.request(
            "POST", path, json.dumps(body), HEADERS | headers | {"Authorization": f"Bearer {self.token}"}
        )
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status == 200, content

    def cpu_s(self) -> float:
        times = psutil.Process(self.process.pid).cpu_times()
        return times.user + times.system

    def memory(self) -> dict[str, float]:
        """Return the resident memory, and the part of it that no other process shares, in MB."""
        found = psutil.Process(self.process.pid).memory_full_info()
        return {"resident": found.rss / 1e6, "own": found.uss / 1e6}


@contextmanager
def serving() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder))
        try:
            yield server
        finally:
            server.process.terminate()
            server.process.wait(30)


class Round(NamedTuple):
    """Calls of all connections together."""

    rate: float
    """Calls a second."""
    cpu_ms: float
    """Processor time of the server for each call, which other processes disturb little."""
    latencies: list[float]
    """Milliseconds, sorted."""


def measure(server: Server, call: Callable[[http.client.HTTPConnection], None]) -> Round:
    """Call from several connections for a time."""
    latencies: list[float] = []
    end = time.perf_counter() + SECONDS

    def client() -> None:
        connection = server.connect()
        while (begun := time.perf_counter()) < end:
            call(connection)
            latencies.append(1e3 * (time.perf_counter() - begun))
        connection.close()

    threads = [threading.Thread(target=client) for _ in range(CONNECTIONS)]
    begun, cpu = time.perf_counter(), server.cpu_s()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    calls = len(latencies)
    rate, cpu_ms = calls / (time.perf_counter() - begun), 1e3 * (server.cpu_s() - cpu) / calls
    return Round(rate, cpu_ms, sorted(latencies))


def rates(server: Server, name: str, call: Callable[[http.client.HTTPConnection], None], goal: float | None) -> None:
    rounds = [measure(server, call) for _ in range(ROUNDS)]
    report(f"{name}_calls_per_s", [found.rate for found in rounds], "1/s", goal)
    report(f"{name}_cpu_per_call", [found.cpu_ms for found in rounds], "ms", goal and 1e3 / goal, "lower")
    for share in (0.5, 0.99):
        found = [latencies[int(share * len(latencies))] for _, _, latencies in rounds]
        report(f"{name}_p{100 * share:.0f}", found, "ms", None, "lower")


def idle_memory(server: Server) -> None:
    """The memory after the page was opened: its file, a list, and the stream of events that stays open."""
    connection, stream = server.connect(), server.connect()
    connection.request("GET", "/jobs")
    connection.getresponse().read()
    server.call_of_page(connection, LIST)
    stream.request("GET", "/api/events")
    stream.getresponse().readline()
    time.sleep(3)
    found = server.memory()
    report("idle_memory_with_page", [found["resident"]], "MB", 90, "lower", own=rounded(found["own"]))
    stream.close()
    connection.close()


def main() -> None:
    with serving() as server:
        idle_memory(server)
        warm = server.connect()
        for _ in range(50):
            server.call(warm, READ)
        rates(server, "protocol", partial(server.call, tool=READ), 300)
        rates(server, "page", partial(server.call_of_page, tool=READ), 300)
        rates(server, "list_jobs", partial(server.call, tool=LIST), None)
        with busy_processes(1):
            rates(server, "protocol_beside_a_busy_process", partial(server.call, tool=READ), None)
        report("memory_after_all_calls", [server.memory()["resident"]], "MB", None, "lower")
    summarize()


if __name__ == "__main__":
    main()
