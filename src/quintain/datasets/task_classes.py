"""The four classes of agent tasks, for sampling: stated by the task or the caller, else by the structure of the run.

The classes are those of SAGE's agent fine-tuning (`agent_training/data_formatter.py`, v0.2.4.13), without its English
keywords.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from quintain.records.dataset import TaskClass
from quintain.records.trajectory import Actor, Trajectory

CLASSES: tuple[TaskClass, ...] = get_args(TaskClass)

PLANNING_TOOLS = 3
PLANNING_TURNS = 8


def task_class(run: Trajectory, known: Mapping[str, TaskClass] | None = None) -> TaskClass:
    """Return the class of a run's task: as `known`, its type or its metadata state it, else by tools and turns.

    Args:
        run: Its task, its turns and the tools that the agent called.
        known: Task id or type -> class.
    """
    task = run.task
    for name in (task.id, task.type):
        if known and name is not None and name in known:
            return known[name]
    for stated in (task.type, task.metadata.get("task_type")):
        for name in CLASSES:
            if stated == name:
                return name
    tools = {action.tool for step in run.steps for action in step.actions}
    turns = sum(step.actor is not Actor.SYSTEM for step in run.steps)
    is_planning = len(tools) >= PLANNING_TOOLS or turns >= PLANNING_TURNS
    return "multi_step_planning" if is_planning else "tool_selection"
