"""The task's own reference of a good run: needed tools and number of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from quintain.records.trajectory import Trajectory
from quintain.records.wording import shown
from quintain.scoring.rules.view import View

_STEPS = ("reference_steps", "optimal_steps")
_SIDE = frozenset({"think", "submit"})
"""Categories of tools whose calls do not count as a choice, unless a target is one of them."""


class ToolChoice(NamedTuple):
    """The called tools beside the needed ones, as sets; shares in 0..1."""

    precision: float | None
    """None where no tool was called."""
    recall: float | None
    """None where no tool is needed."""
    f1: float
    missing: tuple[str, ...]
    needless: tuple[str, ...]


def target_tools(metadata: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the tools in `target_tools` of a task, or None if it is not a list of names."""
    value = metadata.get("target_tools")
    if isinstance(value, str) and value.strip():
        value = [value]
    if not isinstance(value, list | tuple):
        return None
    names = [one.get("name") if isinstance(one, Mapping) else one for one in value]
    texts = tuple(name for name in names if isinstance(name, str) and name.strip())
    return texts if len(texts) == len(names) else None


def tool_choice(view: View, targets: Sequence[str]) -> ToolChoice:
    """Return precision, recall and their harmonic mean F1 (van Rijsbergen 1979); names of one tool count as one."""
    wanted = set(targets)
    own = [call for call in view.calls if not view.turns[call.turn].is_copy]
    called = {call.name for call in own if call.category not in _SIDE or call.name in wanted}
    missing, needless = wanted - called, called - wanted
    others = {view.index.canonical(name): name for name in needless}
    for name in sorted(missing - view.offered):
        # Only a target that was not offered under its own name may be met by an equivalent tool.
        if equivalent := others.pop(view.index.canonical(name), None):
            missing.discard(name)
            needless.discard(equivalent)
    hits = len(called) - len(needless)
    precision = hits / len(called) if called else None
    recall = hits / len(wanted) if wanted else None
    f1 = 2 * hits / (len(wanted) + len(called)) if wanted or called else 1.0
    return ToolChoice(precision, recall, f1, tuple(sorted(missing)), tuple(sorted(needless)))


def reference_steps(metadata: Mapping[str, Any]) -> tuple[float | None, str]:
    """Return the number of steps that the metadata of a task names, or None and the reason."""
    for name in _STEPS:
        value = metadata.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
            return None, f"expected task.metadata.{name} to be a number above 0, got {shown(value)}"
        return float(value), ""
    return None, "no reference: give task.metadata.reference_steps, or reference_steps"


def steps_taken(run: Trajectory) -> int:
    """Return the number of the agent's turns with a call, or of all its turns if none has one. Copied turns do not count."""
    return sum(bool(step.actions) for step in run.own_steps) or len(run.own_steps)
