"""Errors, and whether the agent got over them."""

from __future__ import annotations

from quintain.scoring.file_activity.programs import Purpose
from quintain.scoring.file_activity.shell import parse_script
from quintain.scoring.rules.view import Call, View


def has_failed(call: Call, view: View) -> bool:
    """Whether the call itself failed; failing tests are a finding, and so is a failure of what a user named."""
    if not call.failed or call.purpose is Purpose.CHECK:
        return False
    return not (call.command and view.permissions.names_command(call.turn, parse_script(call.command)))


def recovery(view: View) -> list[float | None]:
    """For each call that failed 1 where another of its kind, or on what it worked on, succeeded later, else 0; None for others.

    A mere repetition of the call is no other call, unless it then succeeds.
    """
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
    """Under which names a failure is open: its tool; what it worked on; any tool, where none of this name exists."""
    category = call.category or "tool"
    family = "look" if category in {"read", "search"} else category
    kinds = [family if call.category else f"tool {call.tool}"]
    if call.target:
        kinds.append(f"target {call.target}")
    return tuple(kinds)
