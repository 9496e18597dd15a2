"""Format: calls that can be read and carried out, where one was due; and calls of tools that were not offered."""

from __future__ import annotations

import re

from quintain.scoring.profiles import bare_name
from quintain.scoring.rules.view import Call, Turn, View

_CALL_MARKS = re.compile(
    r"<tool_call|</tool_call|<function[=_ ]|<invoke |<\|tool_call|\[TOOL_CALLS\]|^Action(?: Input)?:", re.MULTILINE
)
"""How calls begin in the formats of models: in a run whose calls are told from text, one that could not be read."""


def call_fault(call: Call, view: View) -> str | None:
    """What is wrong with how a call was written."""
    if not call.readable:
        return f"arguments of {call.name[:60]!r} that are not valid JSON"
    missing = [name for name in view.required.get(call.name, ()) if name not in call.args]
    if missing:
        return f"{call.name[:60]!r} without its argument {missing[0][:60]!r}"
    return None


def is_known(call: Call, view: View) -> bool | None:
    """Was the tool offered, be it without a namespace before it? None where the run does not say what was."""
    return call.name in view.offered or bare_name(call.name) in view.offered if view.offered else None


def turn_fault(turn: Turn, view: View, *, needs_tools: bool) -> str | None:
    """What is wrong with a turn that calls nothing; None where nothing is.

    Args:
        turn: A turn without calls.
        view: Its run.
        needs_tools: Did the task need tools, and was none called in the whole run?
    """
    if not turn.text.strip():
        return None if turn.thought.strip() and not view.calls_due else "an empty turn"
    if needs_tools:
        return "no tool was called, and the task needs some"
    if view.calls and _CALL_MARKS.search(turn.text):
        return "a call that could not be read"
    if view.calls_due and not turn.is_answer:
        return "a step without a readable call"
    return None
