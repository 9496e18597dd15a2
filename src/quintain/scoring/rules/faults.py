"""Faults of single calls and turns: form, unknown tools, errors and recovery, the wrong moment."""

from __future__ import annotations

import re

from quintain.records.labels.profiles import ToolCategory
from quintain.scoring.file_activity.programs import Purpose
from quintain.scoring.file_activity.shell import parse_script
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
    """Return the fault of a turn without calls; None for a faultless one."""
    if not turn.text.strip():
        return None if turn.thought.strip() and not view.calls_due else "an empty turn"
    if needs_tools:
        return "the task needs tools and none was called"
    if view.calls and _CALL_MARKS.search(turn.text):
        return "a call that could not be read"
    if view.calls_due and not turn.is_answer:
        return "a step without a readable call"
    return None


def has_failed(call: Call, view: View) -> bool:
    """Whether the call itself failed; failing tests are a finding, and so is a failure of what a user named."""
    if not call.failed or call.purpose is Purpose.CHECK:
        return False
    return not (call.command and view.permissions.names_command(call.turn, parse_script(call.command)))


def recovery(view: View) -> list[float | None]:
    """Return for each failed call 1 where a call of its kind, or on its target, succeeded later, else 0; None for others."""
    pending: dict[str, list[int]] = {}
    parts: list[float | None] = []
    for i, call in enumerate(view.calls):
        failed = has_failed(call, view)
        parts.append(0.0 if failed else None)
        if failed:
            for kind in _kinds(call):
                pending.setdefault(kind, []).append(i)
        elif call.result is not None and pending:
            for kind in _kinds(call):
                for earlier in pending.pop(kind, ()):
                    parts[earlier] = 1.0
    return parts


def _kinds(call: Call) -> tuple[str, ...]:
    """Return the keys by which a later success resolves a failure: category or tool, and target."""
    category = call.category or "tool"
    family = "look" if category in {"read", "search"} else category
    kinds = [family if call.category else f"tool {call.tool}"]
    if call.target:
        kinds.append(f"target {call.target}")
    return tuple(kinds)


def timing(view: View) -> list[float | None]:
    """Return for each call 0 where it comes too late or too early, else 1; None where its moment does not matter.

    Too late: any call after the submission. Too early: a submission before any look although the tools allowed one, or after a
    change that nothing was run on although something could be run.
    """
    can_look = any(call.category in {"read", "search", "navigate"} for call in view.calls) or _offers(
        view, "read", "search"
    )
    can_run = any(call.category == "execute" for call in view.calls) or _offers(view, "execute")
    has_looked = has_checked = False
    has_changed = False
    over: int | None = None
    parts: list[float | None] = []
    for call in view.calls:
        if over is not None and call.turn > over and call.category != "submit":
            if not view.turns[call.turn].after_user:
                parts.append(0.0)
                continue
            over = None
        if call.category == "submit" and not call.repeatable:
            early = (can_look and not has_looked) or (has_changed and can_run and not has_checked)
            parts.append(0.0 if early else 1.0)
            if not call.failed:
                over = call.turn
            continue
        if call.category == "write" and not call.failed:
            has_changed, has_checked = True, False
        elif call.category == "execute":
            has_checked = True
        has_looked |= not call.failed and call.category not in {"think", "write"}
        parts.append(None)
    return parts


def _offers(view: View, *categories: ToolCategory) -> bool:
    return any((tool := view.index.find(name)) is not None and tool.category in categories for name in view.offered)
