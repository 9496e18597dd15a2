"""An agent on a public MCP server, through its true protocol: what a step costs, and whether training lifts the agent.

The server comes from PyPI into a separate virtual environment. The embedded model meets tasks that are generated from the
server's schemas, learns from scripted solutions of training tasks by SFT, and is measured on held-out tasks against what it
was before. Everything goes through the tools that an assistant calls, and every job through its own worker.
"""

from __future__ import annotations

import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import run
from typing import Any

from benchmarks.figures import report, say
from benchmarks.jobs import finished_job
from quintain.environments.mcp_server.generation import expert
from quintain.environments.registry import task_source
from quintain.evaluation.episodes import EpisodePlan, EpisodeSettings, run_episodes
from quintain.records.filters import TrajectoryFilter
from quintain.records.protocols import Environment, TaskSource
from quintain.records.trajectory import Action, AgentInfo
from quintain.settings import Settings
from quintain.tools.data.datasets import export_dataset
from quintain.tools.evaluation.comparison import compare_agents
from quintain.tools.evaluation.rollouts import evaluate_agent
from quintain.tools.results import JobStarted
from quintain.tools.services import Services, open_services
from quintain.tools.training.start import start_training


@dataclass(frozen=True)
class PublicServer:
    """A server on PyPI that needs no network, and values for what its schemas leave open."""

    package: str
    command: str
    profile: str
    """Its fields in `environments.toml`."""
    call: Action
    """One that it answers."""

    @property
    def name(self) -> str:
        """How its environment is called here."""
        return self.command.removeprefix("mcp-server-")


CALCULATOR = PublicServer(
    "mcp-server-calculator==0.2.1",
    "mcp-server-calculator",
    'fresh = "session"\nmax_turns = 4\ngenerate_from = ["calculate"]\n[mcp.calculator.values]\n'
    'expression = ["{100..999} + {100..999}", "{100..999} - {10..99}", "{10..99} * {10..99}"]\n',
    Action(tool="calculate", args={"expression": "12 * 13"}),
)
TIME = PublicServer(
    "mcp-server-time==2026.10.10",
    "mcp-server-time",
    'fresh = "session"\ntools = ["convert_time"]\ngenerate_from = ["convert_time"]\nmax_turns = 4\n'
    '[mcp.time.values]\ntime = ["{10..23}:{10..59}"]\n'
    'source_timezone = ["Europe/Paris", "Asia/Tokyo", "America/New_York", "Africa/Cairo"]\n'
    'target_timezone = ["Asia/Kolkata", "Europe/London", "America/Chicago", "Australia/Sydney"]\n',
    Action(
        tool="convert_time",
        args={"source_timezone": "Europe/Paris", "time": "10:30", "target_timezone": "Asia/Tokyo"},
    ),
)


ECHO = PublicServer(
    "a server that answers at once",
    "mcp-server-echo",
    'tasks = "echo.jsonl"\n',
    Action(tool="echo", args={}),
)
"""Bare lines of JSON: what is left is the cost of the environment and of the client."""

_ECHO = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    result = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "echo", "version": "1"}},
        "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": "here"}]},
    }.get(asked["method"])
    answer = {"result": result} if result else {"error": {"code": -32601, "message": "no"}}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""


def echo(home: Path) -> Path:
    """The program of `ECHO`, with a task."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "echo.jsonl").write_text('{"id": "a", "prompt": "Call.", "split": "train"}\n', encoding="utf-8")
    program = home / "echo"
    program.write_text(f"#!{sys.executable}\n{_ECHO}", encoding="utf-8")
    program.chmod(0o700)
    return program


def install(server: PublicServer, folder: Path) -> Path:
    """The server's program in a separate virtual environment; made where it is not there yet."""
    program = folder / server.name / "bin" / server.command
    if not program.exists():
        say(f"installing {server.package} into {folder / server.name}")
        venv.create(folder / server.name, with_pip=True)
        pip = [str(program.with_name("python")), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run([*pip, server.package], check=True, stdout=sys.stderr)
    return program


def open_home(home: Path, servers: Sequence[tuple[PublicServer, Path]]) -> Services:
    """A home folder whose operator has written the servers down."""
    home.mkdir(parents=True, exist_ok=True)
    tables = [f'[mcp.{server.name}]\ncommand = "{program}"\n{server.profile}' for server, program in servers]
    settings = Settings(home=home, poll_s=0.05)
    settings.environments_file.write_text("\n".join(tables), encoding="utf-8")
    return open_services(settings)


def finish(services: Services, started: JobStarted) -> dict[str, Any]:
    """Wait for a job; its result."""
    view = finished_job(services, started.job_id)
    assert view.result is not None
    return view.result.model_dump(mode="json")


def step_cost(source: TaskSource, action: Action, steps: int) -> tuple[float, list[float]]:
    """Seconds until an episode begins, and milliseconds of a step in nine rounds."""
    environment: Environment = source.make()
    task = source.tasks("train", 1, 0)[0]
    began = time.perf_counter()
    environment.reset(task)
    start = time.perf_counter() - began
    rounds = []
    for _ in range(9):
        began = time.perf_counter()
        for _ in range(steps):
            seen = environment.step((action,)).observations[0]
        rounds.append((time.perf_counter() - began) / steps * 1000)
    assert not seen.is_error, seen.content
    environment.close()
    return start, rounds


def demonstrate(services: Services, environment: str, n: int) -> dict[str, Any]:
    """Scripted solutions of training tasks as stored runs; the dataset that is made of them."""
    source = task_source(environment)
    tasks = source.tasks("train", n, 0)
    tag = f"{environment.removeprefix('mcp:')}-expert"
    settings = EpisodeSettings(0, None, 8, AgentInfo(name="expert"), job_id=tag, tags=(tag,))
    played = list(run_episodes(source, expert(tasks), [EpisodePlan(task) for task in tasks], settings))
    solved = sum(episode.result.success is True for episode in played)
    say(f"the scripted policy solved {solved} of {len(played)} tasks of {environment}")
    services.store.trajectories.add_many([episode.trajectory for episode in played], services.clock())
    made = export_dataset(services, kind="sft", name=tag, filter=TrajectoryFilter(tags=(tag,)))
    say(f"{made.rows} runs became rows of a dataset; left out: {made.dropped or 'none'}")
    return {"dataset": made.dataset_id, "solved": solved, "played": len(played)}


@dataclass(frozen=True)
class Scale:
    """How much of everything."""

    demonstrations: int
    held_out: int
    epochs: int


def learn(services: Services, environment: str, scale: Scale) -> Any:
    """Train `starter` on demonstrations and compare it with itself on held-out tasks."""
    shown = demonstrate(services, environment, scale.demonstrations)
    settings = {"epochs": scale.epochs, "batch_size": 16, "learning_rate": 1e-3}
    pupil = f"{environment.removeprefix('mcp:')}-pupil"
    given = {"method": "sft", "model": "starter", "dataset_id": shown["dataset"], "name": pupil}
    trained = finish(services, start_training(services, **given, hyperparameters=settings))
    say(f"trained {trained['agent']}, final loss {trained['final_loss']:.3f}")
    for agent in ("starter", pupil):
        result = finish(services, evaluate_agent(services, agent, environment, n_tasks=scale.held_out, seed=1))
        say(f"{agent}: {result['success_rate']} of {result['n']} held-out tasks, {result['n_error']} without a verdict")
    (pair,) = compare_agents(services, ["starter", pupil], environment).comparisons
    return pair


def cases(studies: int, folder: Path | None = None) -> None:
    """The figures; a server that cannot be installed is said and left out."""
    cache = folder or Path(tempfile.gettempdir()) / "quintain-public-servers"
    with tempfile.TemporaryDirectory() as home:
        servers = [(ECHO, echo(Path(home)))]
        for server in (CALCULATOR, TIME):
            try:
                servers.append((server, install(server, cache)))
            except Exception as error:  # no network, or the package is gone
                say(f"{server.package} cannot be installed ({error}); left out")
        services = open_home(Path(home), servers)
        try:
            for server, _ in servers:
                start, rounds = step_cost(task_source(f"mcp:{server.name}"), server.call, studies // 100)
                goal = 1.0 if server is ECHO else None
                report(f"a step on {server.package}", rounds, "ms", goal, "lower", start_s=round(start, 2))
            for server, _ in servers[1:]:
                _lift(services, server, Scale(400, 100, 10) if studies > 5000 else Scale(200, 40, 6))
        finally:
            services.close()


def _lift(services: Services, server: PublicServer, scale: Scale) -> None:
    began = time.perf_counter()
    pair = learn(services, f"mcp:{server.name}", scale)
    report(
        f"SFT on {server.name}: success on held-out tasks, gain",
        [pair.difference],
        "share",
        0.0,
        ci=[pair.ci_low, pair.ci_high],
        p=pair.p,
        significant=pair.significant,
        n=pair.n_tasks,
        took_s=round(time.perf_counter() - began),
    )
