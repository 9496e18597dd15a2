"""Timing: calls that are wrong by the order of the calls alone."""

from __future__ import annotations

from quintain.records.profiles import ToolCategory
from quintain.scoring.rules.view import View


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
