"""Cold start of `quintain serve` beside a bare server of the same SDK, and the latency of read tools.

Run as `python -m benchmarks.server`; prints one JSON line per figure. The two servers start in alternation, so that a busy
machine slows both down alike; the figures in CPU time hold on a busy machine too.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil

PAIRS = 7
CALLS = 300

BARE_CODE = """
from mcp.server import MCPServer
server = MCPServer("bare", log_level="WARNING")
@server.tool()
def add(a: int, b: int) -> int:
    return a + b
server.run()
"""
BARE = [sys.executable, "-c", BARE_CODE]
OURS = [str(Path(sys.executable).with_name("quintain")), "serve"]
"""The shipped command, as a client starts it."""


class Client:
    """A raw JSON-RPC client: one line out, one line in."""

    def __init__(self, command: list[str], home: Path) -> None:
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "QUINTAIN_HOME": str(home)},
        )
        self.request_id = 0

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        assert self.process.stdout is not None
        self.request_id += 1
        self.send({"id": self.request_id, "method": method, "params": params or {}})
        while True:
            answer = json.loads(self.process.stdout.readline())
            if answer.get("id") == self.request_id:
                return dict(answer["result"])

    def list_tools(self) -> dict[str, Any]:
        info = {"name": "benchmark", "version": "0"}
        self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info})
        self.send({"method": "notifications/initialized"})
        return self.ask("tools/list")

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(120)
        if self.process.stdout is not None:
            self.process.stdout.close()


class Start(NamedTuple):
    """One cold start, up to the answer to `tools/list`."""

    seconds: float
    cpu_seconds: float
    """User and system time of the process: on a busy machine steadier than the clock."""


def cold_start(command: list[str], home: Path) -> Start:
    """Start a server, list its tools, and measure until the answer."""
    client = Client(command, home)
    client.list_tools()
    seconds = time.perf_counter() - client.started
    times = psutil.Process(client.process.pid).cpu_times()
    client.close()
    return Start(seconds, times.user + times.system)


def report(name: str, value: float, unit: str, goal: float | None, better: str = "lower") -> None:
    print(json.dumps({"name": name, "value": round(value, 4), "unit": unit, "goal": goal, "better": better}))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for command in (BARE, OURS):  # compiled files and the migrated database
            cold_start(command, home)
        pairs = [(cold_start(BARE, home), cold_start(OURS, home)) for _ in range(PAIRS)]
        bare, ours = ([pair[i].seconds for pair in pairs] for i in (0, 1))
        bare_cpu, ours_cpu = (min(pair[i].cpu_seconds for pair in pairs) for i in (0, 1))
        report("cold_start_bare_min", min(bare), "s", None)
        report("cold_start_min", min(ours), "s", None)
        report("cold_start_median", statistics.median(ours), "s", 1.0)
        report("cold_start_ratio_of_minima", min(ours) / min(bare), "1", 1.4)
        report("cold_start_cpu", ours_cpu, "s", None)
        report("cold_start_cpu_ratio", ours_cpu / bare_cpu, "1", 1.4)
        report("cold_start_ratio_of_medians", statistics.median(ours) / statistics.median(bare), "1", 1.4)

        client = Client(OURS, home)
        listed = client.list_tools()
        report("tools_list_bytes", len(json.dumps(listed["tools"], separators=(",", ":")).encode()), "B", 40_000)
        begun = time.perf_counter()
        client.ask("tools/call", {"name": "search_trajectories", "arguments": {}})
        report("first_call", time.perf_counter() - begun, "s", None)
        for tool in ("search_trajectories", "list_jobs"):
            seconds = []
            for _ in range(CALLS):
                begun = time.perf_counter()
                client.ask("tools/call", {"name": tool, "arguments": {}})
                seconds.append(time.perf_counter() - begun)
            seconds.sort()
            report(f"{tool}_p50", 1e3 * seconds[CALLS // 2], "ms", 3.0)
            report(f"{tool}_p99", 1e3 * seconds[int(CALLS * 0.99)], "ms", 25.0)
        client.close()


if __name__ == "__main__":
    main()
