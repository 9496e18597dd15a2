"""The four classes of agent tasks, told from a run: which tool, in which order, whether now, and found where.

The rules are those of SAGE's agent fine-tuning (`agent_training/data_formatter.py`, v0.2.4.13), with whole words in place
of substrings: what the task says of itself, else three distinct tools or eight turns are planning, else a prompt
that asks to search is retrieval, else one that sets a condition is timing, else it is a matter of selection.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import get_args

from quintain.records.dataset import TaskClass
from quintain.records.trajectory import Actor, Trajectory

CLASSES: tuple[TaskClass, ...] = get_args(TaskClass)

PLANNING_TOOLS = 3
PLANNING_TURNS = 8

_PROMPT_CHARS = 4000
"""The words that decide stand at the beginning; a pasted document does not."""

_RETRIEVAL = re.compile(r"\b(?:search(?:es|ed|ing)?|finds?|finding|retriev(?:e|es|ed|ing|al))\b", re.IGNORECASE)
_TIMING = re.compile(r"\b(?:if|when|wait(?:s|ed|ing)?|check(?:s|ed|ing)?|conditions?)\b", re.IGNORECASE)


def task_class(run: Trajectory, known: Mapping[str, TaskClass] | None = None) -> TaskClass:
    """The class of a run's task.

    Args:
        run: Its task, its turns and the tools that the agent called.
        known: Task id or type -> class; goes before every rule.
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
    if len(tools) >= PLANNING_TOOLS or turns >= PLANNING_TURNS:
        return "multi_step_planning"
    prompt = task.prompt[:_PROMPT_CHARS]
    if _RETRIEVAL.search(prompt):
        return "tool_retrieval"
    return "timing_decision" if _TIMING.search(prompt) else "tool_selection"
