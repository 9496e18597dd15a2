"""`quintain`: the commands and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

app = typer.Typer(
    help="Train agents by conversation: an MCP server and its tools.", no_args_is_help=True, add_completion=False
)

HomeOption = Annotated[
    Path | None, typer.Option(help="Home folder; default: QUINTAIN_HOME, else the platform's data folder.")
]


@app.command()
def demo(
    fast: Annotated[bool, typer.Option("--fast", help="The short form: fewer episodes and tasks.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of tasks, sampling and training.")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the results to this file.")] = None,
    out: Annotated[Path, typer.Option(help="Folder that receives the demo's home folder and its picture.")] = Path(
        "demo-out"
    ),
) -> None:
    """Watch an agent get better: collect, score, export, train, evaluate, compare, all through a real MCP client."""
    from quintain.cli.demo import run_demo

    raise typer.Exit(run_demo(fast=fast, seed=seed, json_file=json_file, out=out))


@app.command()
def serve(
    transport: Annotated[str, typer.Option(help="stdio, or http on this machine's loopback address.")] = "stdio",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port for http.")] = 8765,
    toolsets: Annotated[
        str | None, typer.Option(help="Comma-separated: data, label, train, evaluate. Default: all.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Offer only tools that change nothing.")] = False,
    home: HomeOption = None,
) -> None:
    """Serve the tools over MCP."""
    from quintain.cli.serve import run_server

    raise typer.Exit(run_server(transport=transport, port=port, toolsets=toolsets, read_only=read_only, home=home))


@app.command()
def train(
    config: Annotated[
        Path | None, typer.Option(help="YAML or JSON file: one training, or a recipe with `stages`.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="sft, bc, pretrain, dpo, orpo, simpo, kto, ranking, grpo.")] = None,
    model: Annotated[str | None, typer.Option(help="Agent, `starter` or model folder to start from.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Dataset id or name.")] = None,
    environment: Annotated[str | None, typer.Option(help="Where to learn online (grpo).")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the resulting agent.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of data order and initialisation.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Hyperparameter KEY=VALUE, e.g. epochs=2 or lora.rank=8; repeat.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Start the job and return at once.")] = False,
    home: HomeOption = None,
) -> None:
    """Train an agent and watch it, by a config file, by options, or both: options go before the file."""
    from quintain.cli.train import run_train

    request = {
        "method": method,
        "model": model,
        "dataset": dataset,
        "environment": environment,
        "name": name,
        "seed": seed,
    }
    given = {key: value for key, value in request.items() if value is not None}
    raise typer.Exit(run_train(config, given, settings or [], detach=detach, home=home))


@app.command()
def jobs(
    action: Annotated[
        Literal["list", "show", "watch", "cancel", "resume"], typer.Argument(help="What to do.")
    ] = "list",
    job_id: Annotated[str | None, typer.Argument(help="The job, for all but list.")] = None,
    home: HomeOption = None,
) -> None:
    """List jobs, or show, watch, cancel or resume one."""
    from quintain.cli.jobs import run_jobs

    raise typer.Exit(run_jobs(action, job_id, home))


@app.command()
def doctor(home: HomeOption = None) -> None:
    """Check this installation: folders, database, embedded model, and a real job from start to end."""
    from quintain.cli.doctor import run_doctor

    raise typer.Exit(run_doctor(home))


@app.command()
def version() -> None:
    """Print the version."""
    from quintain import __version__

    typer.echo(__version__)


if __name__ == "__main__":
    app()
