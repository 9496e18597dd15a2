"""`quintain demo`: the main job, driven as an assistant drives it.

A real MCP client spawns `quintain serve` in its own home folder and calls its tools over stdio. The embedded agent
acts; what it did is scored and frozen. Then it learns from the same start in three ways: from its good runs (SFT), from
pairs of a good and a bad run of one task (DPO), and by acting anew while it learns (GRPO). All four agents are measured on
the same held-out tasks and compared. Nothing here touches the store, the jobs or the model by another way.
"""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer
from mcp import Client, StdioServerParameters
from mcp.types import TextContent, TextResourceContents
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from quintain.cli.layout import Column, print_table
from quintain.cli.session import Session, write_file
from quintain.errors import InvalidInput, QuintainError, Unavailable
from quintain.records.jobs.job import UNFINISHED

ENVIRONMENT = "quintain/inventory"

_METHODS = ("sft", "dpo", "grpo")
_SHOWN = {
    "sft": ("loss", "SFT: loss on the agent's own good runs", "nats a token", "training rows"),
    "dpo": ("reward_margin", "DPO: margin between good and bad runs", "implicit reward, chosen - rejected", "margin"),
    "grpo": ("success_rate", "GRPO: success while it acts", "share of tasks solved", "training tasks"),
}
"""Method -> the metric to draw, the panel's title, the unit and the legend."""


@dataclass(frozen=True)
class Scale:
    """How much of everything a demo does."""

    collect_tasks: int
    attempts: int
    """Runs of each task; pairs need a good and a bad one."""
    eval_tasks: int
    hyperparameters: Mapping[str, Mapping[str, Any]]


FULL = Scale(
    collect_tasks=150,
    attempts=4,
    eval_tasks=200,
    hyperparameters={
        "sft": {"epochs": 3, "batch_size": 16, "learning_rate": 1e-3},
        "dpo": {"epochs": 1, "batch_size": 16, "learning_rate": 1e-4},
        "grpo": {"rollouts": 12, "learning_rate": 3e-4, "max_new_tokens": 96},
    },
)
FAST = Scale(
    collect_tasks=60,
    attempts=3,
    eval_tasks=80,
    hyperparameters={
        "sft": {"epochs": 2, "batch_size": 8, "learning_rate": 1e-3},
        "dpo": {"epochs": 1, "batch_size": 8, "learning_rate": 1e-4},
        "grpo": {"rollouts": 4, "learning_rate": 3e-4, "max_new_tokens": 96},
    },
)


def demo(
    json_file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="With --json: file for the results; default: standard output."),
    ] = None,
    fast: Annotated[bool, typer.Option("--fast", help="The short form: fewer episodes and tasks.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of tasks, sampling and training.")] = 0,
    json_out: Annotated[
        bool, typer.Option("--json", help="Print the results as JSON; what happens goes to stderr.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for the demo's home folder and its picture.")] = Path("demo-out"),
) -> None:
    """Watch an agent get better: collect, score, export, train, evaluate, compare, all through a real MCP client."""
    with Session(None):  # a wrong path is refused before the work
        if json_file is not None and not json_out:
            raise InvalidInput(f"expected --json with a file, got {str(json_file)!r} alone; add --json")
        if json_file is not None:
            write_file(json_file, "", "the results")
    console = Console(stderr=json_out and json_file is None)
    folder = (out / f"{time.strftime('%Y%m%d-%H%M%S')}-seed{seed}").resolve()
    folder.mkdir(parents=True, exist_ok=False)
    began = time.monotonic()
    try:
        result = anyio.run(_with_server, FAST if fast else FULL, seed, folder, console)
    except QuintainError as error:
        console.print(str(error), style="red", markup=False)
        console.print(f"The results so far are in {folder}", style="dim")
        raise typer.Exit(1) from None
    summary = {**result, "duration_s": round(time.monotonic() - began, 1)}
    if json_file is not None:
        write_file(json_file, json.dumps(summary, indent=2) + "\n", "the results")
    elif json_out:
        print(json.dumps(summary))
    _print_result(console, summary, folder)


async def _with_server(scale: Scale, seed: int, folder: Path, console: Console) -> dict[str, Any]:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "quintain.cli.main", "serve", "--home", str(folder / "home")],
        env={"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
    )
    columns = (TextColumn("{task.description:<38}"), BarColumn(bar_width=30), MofNCompleteColumn(), TimeElapsedColumn())
    async with Client(server) as client:
        tools = await client.list_tools()
        console.print(
            f"Connected over stdio (MCP {client.protocol_version}); the server offers {len(tools.tools)} tools.\n"
        )
        with Progress(*columns, console=console) as progress:
            return await Demo(client, progress, scale, seed).run(folder)


class Demo:
    """One conversation with the server: the calls that an assistant would make, in their order."""

    def __init__(self, client: Client, progress: Progress, scale: Scale, seed: int) -> None:
        self.client, self.progress, self.scale, self.seed = client, progress, scale, seed

    async def run(self, folder: Path) -> dict[str, Any]:
        """Collect, score, export, train three times, evaluate, compare; returns what `--json` writes."""
        await self.call(
            "register_agent", {"name": "baseline", "model": "starter", "description": "The embedded model as shipped."}
        )
        runs = await self._act()
        datasets = {kind: await self._export(kind, runs) for kind in ("sft", "dpo")}
        results = {"baseline": await self._evaluate("baseline")}
        jobs = {}
        for method in _METHODS:
            source = (
                {"dataset_id": datasets[method]["dataset_id"]} if method in datasets else {"environment": ENVIRONMENT}
            )
            jobs[method] = await self._train(method, source)
            results[method] = await self._evaluate(method)
        compared = await self.call("compare_agents", {"agents": list(results), "environment": ENVIRONMENT})
        await self._draw(folder / "curves.png", jobs, compared)
        kept = ("a", "b", "difference", "ci_low", "ci_high", "p_corrected", "significant", "n_tasks")
        return {
            **{
                agent: {"success_rate": r["result"]["success_rate"], "n": r["result"]["n"]}
                for agent, r in results.items()
            },
            "comparisons": [{key: pair[key] for key in kept} for pair in compared["comparisons"]],
            "seed": self.seed,
            "training_rows": datasets["sft"]["rows"],
            "training_pairs": datasets["dpo"]["rows"],
        }

    async def _act(self) -> Mapping[str, Any]:
        """Let the baseline act on training tasks and score what it did; returns the filter that finds its runs."""
        request = {
            "agent": "baseline",
            "environment": ENVIRONMENT,
            "n_tasks": self.scale.collect_tasks,
            "attempts": self.scale.attempts,
            "seed": self.seed,
            "temperature": 1.0,
        }
        rollouts = await self.job("let the baseline act", "collect_rollouts", request)
        found: Mapping[str, Any] = rollouts["result"]["trajectories"]["filter"]
        scores = await self.call("score_trajectories", {"scorer": "outcome", "filter": found})
        self._say(f"scored {scores['scored']} runs, mean {scores['summary']['mean']:.2f}")
        return found

    async def _export(self, kind: str, runs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Freeze the good runs (`sft`), or pairs of a good and a bad run of one task (`dpo`)."""
        request = {"kind": kind, "name": f"own-{kind}", "filter": runs, "scorer": "outcome", "seed": self.seed}
        limits = {"min_score": 1.0} if kind == "sft" else {"max_pairs_per_task": 2}
        dataset = await self.call("export_dataset", {**request, **limits})
        left_out = ", ".join(f"{n} {reason}" for reason, n in dataset["dropped"].items())
        what = "good runs" if kind == "sft" else "pairs of a good and a bad run"
        self._say(f"froze {dataset['rows']} {what}; runs left out: {left_out or 'none'}")
        return dataset

    async def _train(self, method: str, source: Mapping[str, Any]) -> Mapping[str, Any]:
        titles = {
            "sft": "learn from good runs (SFT)",
            "dpo": "learn from pairs (DPO)",
            "grpo": "learn by acting (online GRPO)",
        }
        request = {"method": method, "model": "baseline", "name": method, "seed": self.seed, **source}
        settings = {"hyperparameters": dict(self.scale.hyperparameters[method])}
        return await self.job(titles[method], "start_training", {**request, **settings})

    def _say(self, text: str) -> None:
        self.progress.console.print(f"  {text}", style="dim", soft_wrap=True)

    async def _evaluate(self, agent: str) -> Mapping[str, Any]:
        request = {"agent": agent, "environment": ENVIRONMENT, "n_tasks": self.scale.eval_tasks, "seed": self.seed}
        return await self.job(f"evaluate {agent} on held-out tasks", "evaluate_agent", request)

    async def call(self, tool: str, arguments: Mapping[str, Any], **options: Any) -> Mapping[str, Any]:
        """Call a tool and return its structured result.

        Raises:
            Unavailable: the server answered with an error; its text is the message.
        """
        result = await self.client.call_tool(tool, dict(arguments), **options)
        if result.is_error or result.structured_content is None:
            text = " ".join(block.text for block in result.content if isinstance(block, TextContent))
            raise Unavailable(f"{tool} failed: {text}", code="demo_failed")
        answer: Mapping[str, Any] = result.structured_content
        return answer

    async def job(self, title: str, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Start a job and follow it with progress until it has succeeded."""
        bar = self.progress.add_task(title, total=None)
        started = await self.call(tool, arguments)
        while True:
            follow = {"job_id": started["job_id"], "wait_s": 20}
            view = await self.call("get_job", follow, progress_callback=_mover(self.progress, bar, title))
            self.progress.update(bar, completed=view["step"], total=view["total_steps"])
            if view["status"] not in UNFINISHED:
                break
        self.progress.update(bar, description=title)
        self.progress.stop_task(bar)
        if view["status"] != "succeeded":
            raise Unavailable(f"{title}: {view['job_id']} is {view['status']}: {view['error']}", code="demo_failed")
        return view

    async def _draw(self, path: Path, jobs: Mapping[str, Mapping[str, Any]], compared: Mapping[str, Any]) -> None:
        """Draw the answer first, success on the same held-out tasks, then what each method optimised."""
        from quintain.evaluation.reports.figures import Bar, Figure, Panel, line, spans_decades
        from quintain.tools.jobs.plots import draw

        order = ["baseline", *_METHODS]
        rows = sorted(compared["leaderboard"], key=lambda row: order.index(_name_of(row["agent"])))
        bars = [
            Bar(
                label=f"{_name_of(row['agent'])} (n = {row['n']})",
                value=row["success_rate"],
                low=row["ci_low"],
                high=row["ci_high"],
                strong=_name_of(row["agent"]) != "baseline",
            )
            for row in rows
        ]
        panels = [
            Panel(
                title="Success on held-out tasks, 95 % interval",
                ylabel="share of tasks solved",
                format="percent",
                bars=bars,
            )
        ]
        for method, (metric, title, ylabel, label) in _SHOWN.items():
            curve = line(await self._curve(jobs[method]["job_id"], metric), label)
            panel = Panel(title=title, xlabel="optimizer step", ylabel=ylabel, lines=[curve])
            if metric == "success_rate":
                panel["format"] = "percent"
            elif spans_decades([curve]):
                panel["log"] = True
            panels.append(panel)
        title = f"One start, three ways to learn: the embedded model in {ENVIRONMENT}"
        figure = Figure(title=title, subtitle=f"quintain demo, seed {self.seed}", panels=panels)
        await anyio.Path(path).write_bytes(await anyio.to_thread.run_sync(draw, figure, path.parent))

    async def _curve(self, job_id: str, name: str) -> dict[int, float]:
        resource = await self.client.read_resource(f"job://{job_id}/metrics")
        (content,) = resource.contents
        assert isinstance(content, TextResourceContents)
        curve = json.loads(content.text)["curves"][name]
        return dict(zip(curve["steps"], curve["values"], strict=True))


def _name_of(agent: str) -> str:
    return agent.removeprefix("agent:").partition("@")[0]


def _mover(progress: Progress, bar: TaskID, title: str) -> Any:
    async def move(step: float, total: float | None, message: str | None) -> None:
        progress.update(bar, completed=step, total=total, description=f"{title} [dim]{message or ''}[/dim]"[:60])

    return move


def _print_result(console: Console, summary: Mapping[str, Any], folder: Path) -> None:
    console.print("\nDid it get better?", style="bold")
    rows = [(name, f"{summary[name]['success_rate']:.1%}", summary[name]["n"]) for name in ("baseline", *_METHODS)]
    print_table(console, ("agent", "success on held-out tasks", Column("tasks", right=True)), rows)
    console.print("95 % intervals are paired by task; p: exact McNemar, corrected for all pairs (Holm)", style="dim")
    for pair in summary["comparisons"]:
        verdict = _verdict(pair)
        console.print(
            f"{pair['b']} - {pair['a']}: {pair['difference']:+.1%}, 95 % CI [{pair['ci_low']:+.1%}, {pair['ci_high']:+.1%}], "
            f"p = {pair['p_corrected']:.2g}, n = {pair['n_tasks']}: [bold]{verdict}[/bold]",
            soft_wrap=True,
        )
    files = f"Curves: {_short(folder / 'curves.png')}   home folder: {_short(folder / 'home')}"
    console.print(f"\n{files}   took {summary['duration_s']} s", soft_wrap=True, markup=False)
    command = Path(sys.executable).with_name("quintain")
    console.print("\nLook at its runs, jobs and agents in a browser:", style="bold")
    ui = shlex.join([_short(command), "ui", "--open", "--home", _short(folder / "home")])
    console.print(f"  {ui}", soft_wrap=True, markup=False)
    console.print("Use it from Claude Code, Claude Desktop, Cursor, VS Code, Codex or Gemini CLI:", style="bold")
    console.print(f"  {shlex.quote(_short(command))} install claude-code", soft_wrap=True, markup=False)
    console.print("or in the MCP settings file of another client:", style="bold")
    entry = {"mcpServers": {"quintain": {"command": str(command), "args": ["serve"]}}}
    console.print(f"  {json.dumps(entry)}", soft_wrap=True, markup=False)


def _verdict(pair: Mapping[str, Any]) -> str:
    if not pair["significant"]:
        return "no significant difference"
    return "better" if pair["difference"] > 0 else "worse"


def _short(path: Path) -> str:
    with suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)
