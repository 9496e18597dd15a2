"""`quintain plan`: which method, which settings, will it fit, how long, and what prevents it."""

from __future__ import annotations

import json

from rich.console import Console

from quintain.cli.command_lines import explain_for_terminal
from quintain.cli.session import show_next_step
from quintain.next_step import Hint
from quintain.records.jobs.plan import Estimate, TrainingPlan
from quintain.records.text import printable
from quintain.records.wording import size_text


def show_plan(console: Console, plan: TrainingPlan) -> None:
    """Print a plan, what is not known of it, and what prevents it."""
    named = {"method": plan.method, "model": plan.model, "dataset": plan.dataset_id, "environment": plan.environment}
    facts = [(name, str(value)) for name, value in named.items() if value is not None]
    facts += [] if plan.reward is None else [("reward", json.dumps(plan.reward))]
    facts += [(name, json.dumps(value)) for name, value in plan.hyperparameters.items()]
    for name, text in [*facts, *_estimated(plan.estimate)]:
        console.print(printable(f"{name}: {text}"))
    console.print(printable(explain_for_terminal(plan.why, "plan")))
    for note in plan.notes:
        console.print(printable(f"- {explain_for_terminal(note, 'export')}"))
    for name, how in plan.estimate.unknown.items():
        console.print(printable(f"- {name} is not known: {explain_for_terminal(how, 'plan')}"))
    if plan.branches:  # their answers are part of `why`
        console.print("What would change the plan:")
    for branch in plan.branches:
        console.print(printable(f"- {explain_for_terminal(branch.otherwise, 'plan')}"))
    for blocker in plan.blockers:
        text = explain_for_terminal(Hint(blocker.message, "; ", blocker.remedy), "plan")
        console.print(printable(f"[{blocker.code}] {text}"), style="red")
    if not plan.blockers:
        show_next_step(console, plan)


def _estimated(estimate: Estimate) -> list[tuple[str, str]]:
    lines = []
    if estimate.steps is not None:
        lines.append(("steps", f"{estimate.steps}"))
    if estimate.memory_mb is not None:
        which = "stated" if estimate.memory_is_stated else "free"
        free = (
            ""
            if estimate.available_memory_mb is None
            else f" of {size_text(estimate.available_memory_mb * 2**20)} {which}"
        )
        lines.append(("memory", f"{size_text(estimate.memory_mb * 2**20)}{free} ({estimate.device})"))
    if estimate.duration_s is not None:
        lines.append(("duration", f"{estimate.duration_s:,.0f} s"))
    elif estimate.duration_range_s is not None:
        low, high = estimate.duration_range_s
        lines.append(("duration", f"{low:,.0f} to {high:,.0f} s"))
    return lines
