"""Errors, and whether the agent recovered from them."""

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
