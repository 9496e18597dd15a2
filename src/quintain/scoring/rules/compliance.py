"""Format: calls that can be read and carried out, where one was due; and calls of tools that were not offered."""

from __future__ import annotations

import re

from quintain.scoring.profiles import bare_name
from quintain.scoring.rules.view import Call, Turn, View

_CALL_MARKS = re.compile(
    r"<tool_call|</tool_call|<function[=_ ]|<invoke |<\|tool_call|\[TOOL_CALLS\]|^Action(?: Input)?:", re.MULTILINE
)
"""How calls begin in the formats of models: left in a text, a call that could not be read."""


def call_fault(call: Call, view: View) -> str | None:
    """Return the fault in how a call was written; None for a well-formed one."""
    if not call.readable:
        return f"arguments of {call.name[:60]!r} that are not valid JSON"
    missing = [name for name in view.required.get(call.name, ()) if name not in call.args]
    if missing:
        return f"{call.name[:60]!r} without its argument {missing[0][:60]!r}"
    return None


def is_known(call: Call, view: View) -> bool | None:
    """Whether the tool was offered, with or without its namespace; None where the run does not list its tools."""
    return call.name in view.offered or bare_name(call.name) in view.offered if view.offered else None


def turn_fault(turn: Turn, view: View, *, needs_tools: bool) -> str | None:
    """Return the fault of a turn without calls; None for a faultless one.

    Args:
        turn: A turn without calls.
        view: Its run.
        needs_tools: Whether the task needs tools and the run called none.
    """
    if not turn.text.strip():
        return None if turn.thought.strip() and not view.calls_due else "an empty turn"
    if needs_tools:
        return "the task needs tools and none was called"
    if view.calls and _CALL_MARKS.search(turn.text):
        return "a call that could not be read"
    if view.calls_due and not turn.is_answer:
        return "a step without a readable call"
    return None
