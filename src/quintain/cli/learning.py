"""`quintain plan`, `quintain train`, `quintain evolve` and `quintain export-agent`: their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from quintain.cli.options import HomeOption

DetachOption = Annotated[bool, typer.Option("--detach", help="Start the job and return at once.")]


def plan(
    goal: Annotated[str | None, typer.Argument(help="In plain words, such as: imitate the good runs.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Dataset id or name; default: what the library has.")] = None,
    model: Annotated[str | None, typer.Option(help="Agent, `starter` or model folder to start from.")] = None,
    environment: Annotated[str | None, typer.Option(help="Where the agent may act.")] = None,
    method: Annotated[str | None, typer.Option(help="Default: chosen.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Hyperparameter KEY=VALUE that stays as it is; repeat.")
    ] = None,
    json_out: Annotated[bool, typer.Option("--json", help="Print the whole plan as JSON.")] = False,
    home: HomeOption = None,
) -> None:
    """Plan a training: method, settings, memory, duration, and what stands in the way; exit status 1 where something does."""
    from quintain.cli.plan import run_plan

    asked = {"goal": goal, "dataset_id": dataset, "model": model, "environment": environment, "method": method}
    given = {key: value for key, value in asked.items() if value is not None}
    raise typer.Exit(run_plan(given, settings or [], json_out=json_out, home=home))


def train(
    config: Annotated[
        Path | None, typer.Option(help="YAML or JSON file: one training, or a recipe with `stages`.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="sft, bc, pretrain, dpo, orpo, simpo, kto, ranking, grpo.")] = None,
    model: Annotated[str | None, typer.Option(help="Agent, `starter` or model folder to start from.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Dataset id or name.")] = None,
    environment: Annotated[str | None, typer.Option(help="Where to learn online (grpo, dpo).")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the resulting agent.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of data order and initialisation.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Hyperparameter KEY=VALUE, e.g. epochs=2 or lora.rank=8; repeat.")
    ] = None,
    detach: DetachOption = False,
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


def evolve(
    agent: Annotated[
        str | None, typer.Argument(help="Agent, `starter` or model folder to start from; default: starter.")
    ] = None,
    environment: Annotated[
        str | None, typer.Option(help="Where it acts and is measured, e.g. quintain/inventory.")
    ] = None,
    iterations: Annotated[int | None, typer.Option(min=1, help="Rounds of exploring and training at most (5).")] = None,
    train: Annotated[str | None, typer.Option(help="How a round learns: sft, bc, dpo, grpo.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the resulting agent.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of tasks, sampling and training.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="YAML or JSON file with any of this; options go before it.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Setting KEY=VALUE, e.g. attempts=8 or training.epochs=1; repeat."),
    ] = None,
    detach: DetachOption = False,
    home: HomeOption = None,
) -> None:
    """Let an agent explore, learn from its best runs and be measured, round after round, and see whether it got better."""
    from quintain.cli.evolve import run_evolve

    asked = {"model": agent, "environment": environment, "name": name, "seed": seed}
    given = {key: value for key, value in asked.items() if value is not None}
    chosen = {key: value for key, value in (("iterations", iterations), ("train", train)) if value is not None}
    raise typer.Exit(run_evolve(config, given, chosen, settings or [], detach=detach, home=home))


def export_agent(
    agent: Annotated[str, typer.Argument(help="Agent id or name.")],
    format: Annotated[
        Literal["adapter", "merged"], typer.Option(help="adapter: the LoRA weights alone; merged: all weights.")
    ] = "merged",
    path: Annotated[Path | None, typer.Option(help="New folder; default: NAME-VERSION-FORMAT in the exports.")] = None,
    json_out: Annotated[bool, typer.Option("--json", help="Print the job's report as JSON.")] = False,
    home: HomeOption = None,
) -> None:
    """Write an agent's files for other programs, read them back, and compare them with the agent."""
    from quintain.cli.export_agent import run_export_agent

    raise typer.Exit(run_export_agent(agent, format, path=path, json_out=json_out, home=home))
