"""What an agent said last: the place where its answer stands."""

from __future__ import annotations

import re
from collections.abc import Iterator

from quintain.records.trajectory import Actor, Step, Trajectory, text_of

_THINKING = re.compile(r"<(think|thinking|thought|reasoning|scratchpad)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_SUBMITS = re.compile(
    r"(?i)^(?:\w+[._/-])?(?:submit|finish|final|answer|complete|done|respond|return)(?:[._-]?\w+){0,2}$"
)
_ANSWER_FIELDS = (
    "answer",
    "final_answer",
    "result",
    "response",
    "solution",
    "output",
    "value",
    "text",
    "message",
    "content",
)
MAX_CHARS = 200_000
"""Of a message; the end counts."""


def final_messages(run: Trajectory) -> Iterator[str]:
    """What the agent said to others, newest first; a call that hands an answer in counts as said, thinking does not."""
    for step in reversed(run.steps):
        if step.actor is Actor.AGENT and not step.copied_context and (said := _said(step)):
            yield said


def asked(run: Trajectory) -> str:
    """All that the agent was told: the task's prompt and what users and the system said."""
    told = [text_of(step.message) for step in run.steps if step.actor is not Actor.AGENT]
    return "\n".join([run.task.prompt, *told])[: 2 * MAX_CHARS]


def _said(step: Step) -> str:
    said = _THINKING.sub("", text_of(step.message)[-MAX_CHARS:]).strip()
    for action in reversed(step.actions):
        if _SUBMITS.match(action.tool) and action.args:
            handed = next((action.args[name] for name in _ANSWER_FIELDS if name in action.args), None)
            if len(action.args) == 1 and handed is None:
                handed = next(iter(action.args.values()))
            if isinstance(handed, str | int | float) and not isinstance(handed, bool) and str(handed).strip():
                return str(handed)[-MAX_CHARS:].strip()
    return said
