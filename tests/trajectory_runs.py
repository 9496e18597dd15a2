"""Small real trajectories for tests of store, formats and rewards."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from quintain.records.trajectory import Action, Actor, Observation, Outcome, OutcomeStatus, Step, Task, Trajectory

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

TOOLS = tuple(
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("look", "take")
)


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def call(tool: str = "look", result: str = "ok", *, is_error: bool = False, **args: Any) -> Step:
    """An agent step with one call and its observation."""
    return Step(
        actor=Actor.AGENT,
        actions=(Action(tool=tool, args=args),),
        observations=(Observation(content=result, is_error=is_error),),
    )


def answer(text: str = "Done.") -> Step:
    return Step(actor=Actor.AGENT, message=text)


def user(text: str = "Find the red box.") -> Step:
    return Step(actor=Actor.USER, message=text)


def run(
    task_id: str | None = "t1",
    *steps: Step,
    status: OutcomeStatus = OutcomeStatus.SUCCESS,
    reward: float | None = None,
    **fields: Any,
) -> Trajectory:
    """A run of task `task_id`; without steps: one question, one call, one answer."""
    fields.setdefault("task", Task(id=task_id, prompt="Find the red box.", environment="quintain/inventory"))
    fields.setdefault("tools", TOOLS)
    return Trajectory(
        steps=steps or (user(), call(item="box"), answer()),
        outcome=Outcome(status=status, reward=reward),
        **fields,
    )
