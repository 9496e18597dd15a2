"""`quintain evaluate` and `quintain compare`: their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from quintain.cli.options import HomeOption

ReportOption = Annotated[
    Path | None, typer.Option(help="Also write a report to this file: .md, .html (needs no network) or .json.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the whole result as JSON.")]


def evaluate(
    agent: Annotated[str, typer.Argument(help="Agent id or name, `starter`, a model folder, or endpoint:NAME.")],
    environment: Annotated[str | None, typer.Option(help="Where it acts, e.g. quintain/inventory; or a=2,b=1.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Instead: loss and next actions on this dataset.")] = None,
    n_tasks: Annotated[int, typer.Option(min=1, help="Tasks, or rows of the dataset.")] = 100,
    repeats: Annotated[int, typer.Option(min=1, help="Episodes for each task, for pass@k and pass^k.")] = 1,
    split: Annotated[Literal["held_out", "train"], typer.Option(help="Which tasks or rows.")] = "held_out",
    temperature: Annotated[float | None, typer.Option(min=0, max=5, help="0 is greedy; default: the agent's.")] = None,
    max_turns: Annotated[int | None, typer.Option(min=1, help="Turns of an episode.")] = None,
    forbidden: Annotated[list[str] | None, typer.Option(help="A tool that it must not call; repeat.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same tasks and same sampling.")] = 0,
    report: ReportOption = None,
    json_out: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Measure an agent: success with its interval, where it fails and why, by task type and difficulty."""
    from quintain.cli.evaluate import run_evaluate

    asked = {
        "environment": environment,
        "dataset_id": dataset,
        "n_tasks": n_tasks,
        "repeats": repeats,
        "split": split,
        "max_turns": max_turns,
        "forbidden": forbidden,
        "seed": seed,
    }
    raise typer.Exit(run_evaluate(agent, asked, temperature=temperature, report=report, json_out=json_out, home=home))


def compare(
    agents: Annotated[list[str], typer.Argument(help="Agents or eval- ids, two or more.")],
    environment: Annotated[str | None, typer.Option(help="Only evaluations in this environment.")] = None,
    correction: Annotated[
        Literal["holm", "benjamini_hochberg", "bonferroni"], typer.Option(help="For the number of pairs.")
    ] = "holm",
    report: ReportOption = None,
    json_out: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Say which agent is better: paired on the same tasks, with intervals and corrected p-values."""
    from quintain.cli.compare import run_compare

    raise typer.Exit(
        run_compare(agents, environment=environment, correction=correction, report=report, json_out=json_out, home=home)
    )
