"""Benchmark rows: a task, its tools, and the results of known runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from quintain.records.dataset import BenchmarkRow, Reference
from quintain.records.trajectory import Trajectory


def reference_of(run: Trajectory) -> Reference:
    """Return the result of a run; success is null if the outcome is not a verdict."""
    steps, verdict = run.agent_steps, run.outcome.status.verdict
    models = dict.fromkeys(step.model or run.agent.model for step in steps)
    return Reference(
        trajectory_id=run.id or "",
        agent=run.agent.name,
        model=next(iter(models)) if len(models) == 1 else run.agent.model,
        success=None if verdict is None else verdict == 1.0,
        reward=run.outcome.reward,
        steps=len(steps),
    )


def rank_references(references: Sequence[Reference]) -> list[Reference]:
    """Sort best first: successes, then higher reward, then fewer steps."""
    return sorted(references, key=_rank)


def benchmark_row(run: Trajectory, references: Sequence[Reference]) -> BenchmarkRow:
    """Build the row of a task."""
    calls = [action.tool for step in run.agent_steps for action in step.actions] if references[0].success else []
    rewards = [reference.reward for reference in references if reference.reward is not None]
    return BenchmarkRow(
        task=run.task,
        tools=run.tools,
        target_tools=tuple(dict.fromkeys(calls)),
        plan=tuple(calls),
        references=tuple(references),
        reward_range=(min(rewards), max(rewards)) if rewards else None,
    )


def _rank(reference: Reference) -> tuple[int, float, int, str]:
    verdict = {True: 0, None: 1, False: 2}[reference.success]
    reward = -math.inf if reference.reward is None else reference.reward
    return verdict, -reward, reference.steps, reference.trajectory_id
