"""`quintain plan`: which method, which settings, will it fit, how long, and what stands in the way."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from quintain.cli.border import REFUSED, Command
from quintain.cli.remedies import in_commands
from quintain.cli.train import read_settings
from quintain.records.plan import Estimate, TrainingPlan
from quintain.tools.training.planning.plan import plan_training

BLOCKED = 1
"""Exit status of a plan that cannot be carried out as it stands."""


def run_plan(given: Mapping[str, Any], settings: Sequence[str], *, json_out: bool, home: Path | None) -> int:
    """Plan and show; returns the exit status: 0 it can be started, 1 something stands in the way, 2 refused.

    Args:
        given: Arguments of `plan_training` that were named.
        settings: Hyperparameters as KEY=VALUE, which stay as they are.
        json_out: Print the whole plan as JSON.
        home: The home folder; None: the one of the settings.
    """
    console = Console(soft_wrap=True, highlight=False)
    with Command(home) as command:
        hyperparameters = read_settings(settings)
        plan = plan_training(command.services(), **given, hyperparameters=hyperparameters)
        if json_out:
            console.print(plan.model_dump_json(indent=2), markup=False)
        else:
            _show(console, plan)
        return BLOCKED if plan.blockers else 0
    return REFUSED


def _show(console: Console, plan: TrainingPlan) -> None:
    said = [
        ("method", plan.method),
        ("model", plan.model),
        ("dataset", plan.dataset_id),
        ("environment", plan.environment),
    ]
    facts = [(name, str(value)) for name, value in said if value is not None]
    facts += [(name, json.dumps(value)) for name, value in plan.hyperparameters.items()]
    for name, text in [*facts, *_taken(plan.estimate)]:
        console.print(f"{name}: {text}", markup=False)
    console.print(in_commands(plan.why), markup=False)
    for note in (*plan.notes, *(f"{name} is not known: {how}" for name, how in plan.estimate.unknown.items())):
        console.print(f"- {in_commands(note)}", markup=False)
    for blocker in plan.blockers:
        console.print(f"[{blocker.code}] {blocker.message}; {in_commands(blocker.remedy)}", style="red", markup=False)
    if not plan.blockers:
        console.print(f"Start it: {_command(plan)}", markup=False)


def _taken(told: Estimate) -> list[tuple[str, str]]:
    lines = []
    if told.steps is not None:
        lines.append(("steps", f"{told.steps}"))
    if told.memory_mb is not None:
        free = "" if told.available_memory_mb is None else f" of {told.available_memory_mb:,.0f} free"
        lines.append(("memory", f"{told.memory_mb:,.0f} MiB{free} ({told.device})"))
    if told.duration_s is not None:
        lines.append(("duration", f"{told.duration_s:,.0f} s"))
    elif told.duration_range_s is not None:
        low, high = told.duration_range_s
        lines.append(("duration", f"{low:,.0f} to {high:,.0f} s"))
    return lines


def _command(plan: TrainingPlan) -> str:
    """The command that starts it."""
    source = ["--dataset", plan.dataset_id] if plan.dataset_id else ["--environment", plan.environment or ""]
    settings = [f"{name}={json.dumps(value)}" for name, value in plan.hyperparameters.items()]
    start = ["quintain", "evolve", plan.model] if plan.method == "evolve" else _train(plan)
    return shlex.join([*start, *source, *(word for pair in settings for word in ("--set", pair))])


def _train(plan: TrainingPlan) -> list[str]:
    return ["quintain", "train", "--method", plan.method or "", "--model", plan.model]
