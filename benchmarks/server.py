"""Cold start of the server next to a bare server of the same SDK, and how long a read tool takes.

Run as `python -m benchmarks.server`; prints one JSON line a figure. The two servers are started in alternation, so that
a busy machine slows both down alike.
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
from typing import Any

PAIRS = 7
CALLS = 300

BARE = """
from mcp.server import MCPServer
server = MCPServer("bare", log_level="WARNING")
@server.tool()
def add(a: int, b: int) -> int:
    return a + b
server.run()
"""
OURS = """
from quintain.server.app import create_server
from quintain.server.stdio import serve_stdio
from quintain.settings import Settings
serve_stdio(create_server(Settings()))
"""


class Client:
    """A raw JSON-RPC client: one line out, one line in."""

    def __init__(self, code: str, home: Path) -> None:
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
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
        self.process.wait(20)


def cold_start_s(code: str, home: Path) -> float:
    """Seconds from the start of the process to its list of tools."""
    client = Client(code, home)
    client.list_tools()
    seconds = time.perf_counter() - client.started
    client.close()
    return seconds


def report(name: str, value: float, unit: str, goal: float | None, better: str = "lower") -> None:
    print(json.dumps({"name": name, "value": round(value, 4), "unit": unit, "goal": goal, "better": better}))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for code in (BARE, OURS):  # compiled files and the migrated database
            cold_start_s(code, home)
        pairs = [(cold_start_s(BARE, home), cold_start_s(OURS, home)) for _ in range(PAIRS)]
        bare, ours = ([pair[i] for pair in pairs] for i in (0, 1))
        report("cold_start_bare_min", min(bare), "s", None)
        report("cold_start_min", min(ours), "s", None)
        report("cold_start_median", statistics.median(ours), "s", 1.0)
        report("cold_start_ratio_of_minima", min(ours) / min(bare), "1", 1.4)
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
