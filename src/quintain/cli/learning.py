"""`quintain train` and `quintain evolve`: their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quintain.cli.options import HomeOption

DetachOption = Annotated[bool, typer.Option("--detach", help="Start the job and return at once.")]


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
