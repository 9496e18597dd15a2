"""The scorer `rules`: the value of a run by faults in its steps and by what its task states of a good run.

It needs no outcome and calls no model. Every rule gives a part in 0..1 (1: nothing wrong) and has a weight, the largest share of
the value that it can take away. Rules multiply, so that a useless call scores 0 however well it was written:

    call = product over step rules r of (1 - w_r (1 - part_r))
    step = mean of its calls
    run  = mean over all calls, times the product over run rules r of (1 - w_r (1 - part_r))

A turn without calls counts as one call where a rule finds fault with it or a call was due; otherwise it is not scored. A rule with
nothing to examine has no part: neither 0 nor 1. See docs/reference/rules.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from quintain.records.labels.profiles import DomainProfile, RunRule, StepRule
from quintain.records.score import Component, Score, StepScore
from quintain.records.trajectory import Trajectory
from quintain.records.wording import counted
from quintain.scoring.integrity.tampering import tampering_traces
from quintain.scoring.outcomes.whole_run_scores import scored, unscored
from quintain.scoring.profiles import profile_for
from quintain.scoring.rules.faults import call_fault, has_failed, is_known, recovery, timing, turn_fault
from quintain.scoring.rules.information import information_use
from quintain.scoring.rules.redundancy import looping, non_redundancy, repetitive
from quintain.scoring.rules.references import reference_steps, steps_taken, target_tools, tool_choice
from quintain.scoring.rules.regression import non_regression
from quintain.scoring.rules.view import Turn, View, index_of, view_of

WEIGHTS: dict[StepRule | RunRule, float] = {
    "format": 1.0,
    "known_tools": 1.0,
    "non_redundancy": 1.0,
    "repetition": 1.0,
    "non_regression": 0.7,
    "information_use": 0.5,
    "errors": 0.3,
    "recovery": 0.5,
    "timing": 0.3,
    "integrity": 1.0,
    "tool_choice": 0.5,
    "efficiency": 0.3,
}
"""Default weights: the largest share of the value that a rule can take away."""

_STEP_RULES: tuple[StepRule, ...] = get_args(StepRule)
_RUN_RULES: tuple[RunRule, ...] = get_args(RunRule)

_FAULTS: dict[str, str] = {
    "format": "unreadable, incomplete, or missing where it was due",
    "known_tools": "the tool was not offered",
    "non_redundancy": "repeats an earlier call, or a read of the same lines, with the same answer",
    "repetition": "repeats a loop or a text",
    "non_regression": "undoes an earlier change",
    "information_use": "replaces text in a file that was never read, and that nobody gave",
    "errors": "failed",
    "recovery": "failed without a later recovery",
    "timing": "comes at the wrong moment: after the submission, or as a submission before looking or checking",
}

_CLEAN = {"errors": "no result is marked as an error, for which logs of some formats have no mark"}
"""Fields that a rule without a finding leaves out."""


@dataclass(slots=True)
class RuleParts:
    """The parts of a run by step rules, before they are weighed."""

    view: View
    parts: list[dict[StepRule, float]]
    """Of each call: rule -> part in 0..1."""
    turn_parts: dict[int, dict[StepRule, float]]
    """Of each scored turn without calls."""
    notes: dict[int, str]
    """Turn -> the fault in detail, where a rule knows more than its name."""


def apply_step_rules(view: View, *, needs_tools: bool = False) -> RuleParts:
    """Return the parts of a run by every step rule."""
    columns: dict[StepRule, Sequence[float | None]] = {
        "non_redundancy": non_redundancy(view),
        "repetition": looping(view),
        "non_regression": non_regression(view),
        "information_use": information_use(view),
        "recovery": recovery(view),
        "timing": timing(view),
    }
    notes: dict[int, str] = {}
    parts: list[dict[StepRule, float]] = []
    for i, call in enumerate(view.calls):
        fault = call_fault(call, view)
        if fault:
            notes.setdefault(call.turn, fault)
        found: dict[StepRule, float] = {"format": 0.0 if fault else 1.0}
        known = is_known(call, view)
        if known is not None:
            found["known_tools"] = float(known)
            if not known:
                notes.setdefault(call.turn, f"unknown tool {call.name[:60]!r}")
        if call.result is not None:
            found["errors"] = 0.0 if has_failed(call, view) else 1.0
        for rule, column in columns.items():
            value = column[i]
            if value is not None:
                found[rule] = value
        parts.append(found)
    return RuleParts(view, parts, _turns(view, notes, needs_tools=needs_tools), notes)


def _turns(view: View, notes: dict[int, str], *, needs_tools: bool) -> dict[int, dict[StepRule, float]]:
    """Return the parts of turns without calls: a missing call, a repeated text, a repetitive text."""
    parts: dict[int, dict[StepRule, float]] = {}
    earlier: set[str] = set()
    faulty = False
    is_talk = view.index.profile.calls == "optional" and sum(not turn.calls for turn in view.turns) > 1
    for turn in view.turns:
        if turn.calls:
            if repetitive(turn.thought) or repetitive(turn.text):
                parts[turn.index] = {"repetition": 0.0}
            continue
        fault = turn_fault(turn, view, needs_tools=needs_tools)
        words = " ".join(turn.text.casefold().split())
        again = (len(words) >= 40 and words in earlier) or repetitive(turn.text)
        earlier.add(words)
        faulty |= again or fault is not None
        if fault or again or is_talk or not view.calls or (view.calls_due and not turn.is_answer):
            parts[turn.index] = {"format": 0.0 if fault else 1.0, "repetition": 0.0 if again else 1.0}
            if turn.failed:
                parts[turn.index]["errors"] = 0.0
        if fault:
            notes.setdefault(turn.index, fault)
    # A run of faultless talk alone gives the rules nothing to score.
    return parts if view.calls or faulty or is_talk else {}


class RulesScorer:
    """Score runs by the rules; the module's docstring has the formula."""

    name = "rules"

    def __init__(self, profile: DomainProfile | None = None, *, off: Sequence[RunRule] = ()) -> None:
        """Without a profile take the one that fits each run. Rules that are off weigh 0, whatever the profile sets."""
        self._index = index_of(profile) if profile else None
        self._off: dict[StepRule | RunRule, float] = dict.fromkeys(off, 0.0)

    def score(self, trajectory: Trajectory) -> Score:
        """Return the value by the rules; unscored where no call was made and none was due."""
        run = trajectory.identified()
        index = self._index or index_of(profile_for(run))
        weights = WEIGHTS | index.profile.rules | self._off
        view = view_of(run, index)
        targets = target_tools(run.task.metadata)
        judged = apply_step_rules(view, needs_tools=bool(targets) and not view.calls)
        steps, value = weigh(judged, weights)
        components = _step_components(judged, weights) + self._run_components(run, view, weights, targets)
        if value is None:
            reason = "expected tool calls, got a run without any and none was due; score it by outcome, answer or judge"
            return unscored(run, self.name, reason, components)
        for part in components:
            if part.name in _RUN_RULES and part.value is not None:
                value *= 1.0 - part.weight * (1.0 - part.value)
        return scored(run, self.name, value, _feedback(components, steps), components, steps)

    def _run_components(
        self,
        trajectory: Trajectory,
        view: View,
        weights: dict[StepRule | RunRule, float],
        targets: tuple[str, ...] | None,
    ) -> tuple[Component, ...]:
        parts = [_integrity(trajectory, view, weights["integrity"])]
        parts += _choice(trajectory, view, weights["tool_choice"], targets)
        reference, why = reference_steps(trajectory.task.metadata)
        taken = steps_taken(trajectory)
        if reference is not None:
            why = f"{taken} steps where {reference:g} are enough."
        value = None if reference is None else min(1.0, reference / taken) if taken else None
        parts.append(_component("efficiency", weights["efficiency"], value, why))
        return tuple(parts)


def _integrity(run: Trajectory, view: View, weight: float) -> Component:
    """Return 0 for a run that surely tampered with its check; no value where it changed tests that a user named."""
    if not view.calls:
        return _component("integrity", weight, None, "")
    traces = tampering_traces(run, [call.activity for call in view.calls if not view.turns[call.turn].is_copy])
    sure = [trace for trace in traces if trace.is_sure]
    if sure:
        first = min(sure, key=lambda trace: trace.turn)
        feedback = f"{counted(len(sure), 'change')} of what the run is checked by; the first in step {first.turn}: {first.label}."
        return _component("integrity", weight, 0.0, feedback)
    named = next((trace for trace in traces if trace.is_named), None)
    if named is None:
        return _component("integrity", weight, 1.0, "")
    feedback = (
        f"step {named.turn} {named.label} in a file that the task names; declare it in task.metadata.allowed_changes "
        "or task.metadata.protected_paths."
    )
    return _component("integrity", weight, None, feedback)


def _choice(run: Trajectory, view: View, weight: float, targets: tuple[str, ...] | None) -> list[Component]:
    if targets is None:
        is_listed = "target_tools" in run.task.metadata
        why = (
            "task.metadata.target_tools is not a list of tool names."
            if is_listed
            else "No targets: task.metadata.target_tools is missing."
        )
        return [_component("tool_choice", weight, None, why)]
    choice = tool_choice(view, targets)
    names = f"missing: {', '.join(choice.missing[:5]) or 'none'}; needless: {', '.join(choice.needless[:5]) or 'none'}."
    return [
        _component("tool_choice", weight, choice.f1, f"F1; {names}"),
        _component("tool_precision", 0.0, choice.precision, "Share of the called tools that were needed."),
        _component("tool_recall", 0.0, choice.recall, "Share of the needed tools that were called."),
    ]


def _component(name: str, weight: float, value: float | None, feedback: str) -> Component:
    return Component(name=name, weight=weight, value=value, feedback=feedback)


def weigh(judged: RuleParts, weights: dict[StepRule | RunRule, float]) -> tuple[tuple[StepScore, ...], float | None]:
    """Return the value of each turn, and the mean over all calls and scored turns; copied turns are left out."""
    view, start = judged.view, 0
    steps, total, units = [], 0.0, 0
    for turn in view.turns:
        end = start + len(turn.calls)
        rows = judged.parts[start:end]
        start = end
        own = judged.turn_parts.get(turn.index)
        if own is not None:
            rows = [row | {rule: min(row.get(rule, 1.0), part) for rule, part in own.items()} for row in rows] or [own]
        if turn.is_copy or not rows:
            steps.append(StepScore(step=turn.index))
            continue
        values = [_product(row, weights) for row in rows]
        total += sum(values)
        units += len(values)
        shown: dict[StepRule, float] = {}
        if len(rows) == 1:
            shown = rows[0]
        else:
            for rule in _STEP_RULES:
                column = [row[rule] for row in rows if rule in row]
                if column:
                    shown[rule] = sum(column) / len(column)
        value = sum(values) / len(values)
        steps.append(
            StepScore(
                step=turn.index, value=value, parts=dict(shown), feedback=_worst_fault(turn, shown, weights, judged)
            )
        )
    return tuple(steps), total / units if units else None


def _product(row: dict[StepRule, float], weights: dict[StepRule | RunRule, float]) -> float:
    value = 1.0
    for rule, part in row.items():
        if part != 1.0:
            value *= 1.0 - weights[rule] * (1.0 - part)
    return value


def _worst_fault(
    turn: Turn, parts: dict[StepRule, float], weights: dict[StepRule | RunRule, float], judged: RuleParts
) -> str:
    """Return the fault of a step by the rule that costs it most."""
    worst, cost = "", 0.0
    for rule, part in parts.items():
        if part != 1.0 and (loss := weights[rule] * (1.0 - part)) > cost:
            worst, cost = rule, loss
    if not worst:
        return ""
    note = judged.notes.get(turn.index) if worst in {"format", "known_tools"} else None
    return f"{worst}: {note or _FAULTS[worst]}"


def _step_components(judged: RuleParts, weights: dict[StepRule | RunRule, float]) -> tuple[Component, ...]:
    """Return each step rule over the whole run: the mean of its parts, and its first fault."""
    sums: dict[str, list[float]] = {rule: [] for rule in _STEP_RULES}
    first: dict[str, int] = {}
    places = [(call.turn, row) for call, row in zip(judged.view.calls, judged.parts, strict=True)]
    for turn, row in (*places, *judged.turn_parts.items()):
        if judged.view.turns[turn].is_copy:
            continue
        for rule, part in row.items():
            sums[rule].append(part)
            if part != 1.0:
                first.setdefault(rule, turn)
    components = []
    for rule in _STEP_RULES:
        values = sums[rule]
        if rule in first:
            faults = sum(part < 1.0 for part in values)
            note = judged.notes.get(first[rule]) if rule in {"format", "known_tools"} else None
            feedback = (
                f"{faults} of {counted(len(values), 'call')}: {_FAULTS[rule]}; the first in step {first[rule]}"
                + (f": {note}." if note else ".")
            )
        else:
            feedback = _CLEAN.get(rule, "") if values else "Nothing to examine."
        value = sum(values) / len(values) if values else None
        components.append(_component(rule, weights[rule], value, feedback))
    return tuple(components)


def _feedback(components: Sequence[Component], steps: Sequence[StepScore]) -> str:
    """Return one line on the rule that costs the run most; a step rule counts by all steps, examined or not."""
    judged = [step for step in steps if step.value is not None]
    costs = []
    for part in components:
        if part.name in _STEP_RULES:
            faults = sum(1.0 - step.parts.get(part.name, 1.0) for step in judged)
            costs.append(part.weight * faults / len(judged))
        else:
            costs.append(part.weight * (1.0 - part.value) if part.value is not None else 0.0)
    worst = components[costs.index(max(costs))]
    return f"Weakest: {worst.name}. {worst.feedback}" if max(costs) > 0 else "No rule finds fault."
