"""The official protocol suite, the Inspector and the linter of tool definitions against our server.

Run as `make conformance`. Each figure is a JSON line: passed checks of the scenarios that a protocol version requires, and
those of scenarios that do not count; the Inspector's strict check of the list of tools in both eras; errors and warnings of
`tdqs lint`. The first run installs the tools below the environment (`.venv/conformance`), with npm, and needs network.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import uvicorn
import yaml

from benchmarks.conformance.mount import mount
from benchmarks.figures import report, say
from quintain.server.app import create_server
from quintain.server.http.application import http_application
from quintain.server.http.serving import access_of, limits_of
from quintain.settings import Settings

SUITE = "@modelcontextprotocol/conformance"
PACKAGES = {SUITE: "0.2.0-alpha.12", "@modelcontextprotocol/inspector": "2.12.0"}
NODE = "24"
"""Major version of node that the suite and the Inspector run on, from npm: the system's is often older."""

TDQS = "tdqs==0.1.0"
VERSIONS = ("2025-11-25", "2026-07-28")
_TOOLS = Path(sys.prefix) / "conformance"
_LIMIT_S = 300.0
_STAMP = re.compile(r"-\d{4}-\d{2}-\d{2}T[^/]*$")
"""The time at the end of the name of a scenario's folder."""


def main() -> int:
    """Run what can be had; returns 1 where a required check fails."""
    reason = _install()
    if reason:
        say(f"conformance: skipped: {reason}")
        report("conformance.skipped", [1], "runs", None, reason=reason)
        return 0
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        with _served(Path(folder) / "home") as url:
            for version in VERSIONS:
                failed += _suite(version, url, Path(folder) / version)
        for era in ("legacy", "modern"):
            failed += _inspector(era, Path(folder) / "home")
        failed += _definitions(Path(folder))
    return 1 if failed else 0


def _install() -> str:
    """Install the tools where they are missing. Return why they cannot be had, or nothing."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        return "node and npm are not installed"
    packages = [f"{name}@{version}" for name, version in PACKAGES.items()] + [f"{_node_package()}@{NODE}"]
    wanted = json.dumps(packages)
    stamp = _TOOLS / "installed.json"
    if stamp.exists() and stamp.read_text() == wanted:
        return ""
    _TOOLS.mkdir(parents=True, exist_ok=True)
    command = ["npm", "install", "--prefix", str(_TOOLS), "--no-audit", "--no-fund", "--ignore-scripts", *packages]
    done = _run(command)
    if done.returncode:
        return f"npm cannot install {', '.join(packages)}: {done.stderr.strip().splitlines()[-1:]}"
    stamp.write_text(wanted)
    return ""


def _node_package() -> str:
    script = "process.stdout.write(`node-${process.platform}-${process.arch}`)"
    return _run(["node", "-e", script]).stdout


def _run(command: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LIMIT_S, **more)


def _node_tool(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a tool of npm on the node that was installed beside it."""
    modules = _TOOLS / "node_modules"
    node = modules / _node_package() / "bin" / "node"
    return _run([str(node), str((modules / ".bin" / name).resolve()), *arguments])


@contextmanager
def _served(home: Path) -> Iterator[str]:
    """Serve our server with the suite's fixtures; yields its URL."""
    settings = Settings(home=home, http_calls_per_s=1000)
    listener = socket.create_server(("127.0.0.1", 0))
    access = access_of(settings, "127.0.0.1", listener.getsockname()[1], None)
    app = http_application(mount(create_server(settings)), access, limits_of(settings))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
    thread = threading.Thread(target=lambda: anyio.run(server.serve, [listener]), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    server.should_exit = True
    thread.join(10)


def _suite(version: str, url: str, out: Path) -> int:
    """Run what a version of the protocol requires; returns how many required checks fail."""
    done = _node_tool("conformance", "server", "--url", url, "--requirements", version, "-o", str(out))
    requirements = _TOOLS / "node_modules" / SUITE / "requirements" / f"{version}.yaml"
    required = set(yaml.safe_load(requirements.read_text())["server"])
    scored, unscored = Counter[str](), dict[str, str]()
    for file in sorted(out.glob("server-*/checks.json")):
        scenario = _STAMP.sub("", file.parent.name.removeprefix("server-"))
        found = Counter(check["status"] for check in json.loads(file.read_text()))
        if scenario in required:
            scored += found
            if found["FAILURE"]:
                say(f"{version} {scenario}: {found['FAILURE']} checks fail")
        else:
            unscored[scenario] = f"{found['SUCCESS']} of {found['SUCCESS'] + found['FAILURE']}"
    total = scored["SUCCESS"] + scored["FAILURE"]
    report(f"conformance.{version}", [scored["SUCCESS"]], "checks", total, "higher", unscored=unscored)
    if not total or done.returncode:
        say(done.stdout[-2000:] + done.stderr[-2000:])
    return scored["FAILURE"] + (0 if total else 1)


_CONNECT_MS = "120000"
"""Of the Inspector, whose 15 s a server's first start needs on a busy machine."""


def _inspector(era: str, home: Path) -> int:
    """Check the list of tools by the Inspector's strict rules over stdio; returns 1 where it finds fault."""
    server = [sys.executable, "-m", "quintain.cli.main", "serve", "--home", str(home)]
    done = _node_tool(
        "mcp-inspector",
        "--cli",
        "--protocol-era",
        era,
        "--connect-timeout",
        _CONNECT_MS,
        *server,
        "--method",
        "tools/list",
        "--strict",
        "--format",
        "json",
    )
    warnings = [line for line in done.stderr.splitlines() if "warn" in line.lower()]
    tools = json.loads(done.stdout)["result"]["tools"] if done.returncode == 0 else []
    found = len(warnings) + (done.returncode != 0)
    report(f"inspector.{era}", [found], "findings", 0, "lower", tools=len(tools), exit_status=done.returncode)
    for line in warnings or ([done.stderr[-1000:]] if found else []):
        say(line)
    return int(found > 0)


def _definitions(folder: Path) -> int:
    """Lint the list of tools by `tdqs`; returns 1 where it finds an error."""
    program = _TOOLS / "tdqs" / "bin" / "tdqs"
    if not program.exists():
        _run([sys.executable, "-m", "venv", str(_TOOLS / "tdqs")])
        if _run([str(program.with_name("pip")), "install", "-q", TDQS]).returncode:
            say(f"tdqs: skipped: pip cannot install {TDQS}")
            return 0
    from quintain.server.calls.bindings import bind_all
    from quintain.tools.catalog import CATALOG

    bound = bind_all(CATALOG)
    tools = [bound[one.name].listing.model_dump(by_alias=True, exclude_none=True) for one in CATALOG if one.is_listed]
    file = folder / "tools.json"
    file.write_text(json.dumps({"tools": tools}))
    done = _run([str(program), "lint", "--file", str(file), "--format", "json", "--fail-on", "error"])
    rules = Counter(finding["severity"] for finding in json.loads(done.stdout)["findings"])
    size = len(json.dumps(tools, separators=(",", ":")).encode())
    report("tdqs.errors", [rules["error"]], "findings", 0, "lower", warnings=rules["warning"], notes=rules["info"])
    report("tools_list", [size], "bytes", 40_000, "lower", tools=len(tools))
    return int(rules["error"] > 0)


if __name__ == "__main__":
    sys.exit(main())
