"""The composite scores of knowlyr, SAGE and HelloAgents with their published weights, on rules that are sound.

Sources: knowlyr-gym `agentreward` (0.4 outcome, 0.5 process, 0.1 efficiency); SAGE v0.2.4.13 `agent_training/reward_model.py`;
HelloAgents V0.2.9 `rl/rewards.py`. Parts that need a judge, a reference or targets are left out where these are missing, and the
weights of the others grow in proportion: nothing is filled in.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from quintain.checkers.answers import expected_answer
from quintain.records.labels.profiles import DomainProfile
from quintain.records.score import Component, Score, StepScore
from quintain.records.trajectory import OutcomeStatus, Trajectory
from quintain.scoring.outcomes.answer_scorers import TextScorer
from quintain.scoring.outcomes.final_message import agent_text
from quintain.scoring.outcomes.whole_run_scores import scored, unscored
from quintain.scoring.profiles import Credit, credit_of, profile_for, unknown_outcome
from quintain.scoring.rules.faults import call_fault, is_known, timing, turn_fault
from quintain.scoring.rules.information import information_use
from quintain.scoring.rules.redundancy import non_redundancy
from quintain.scoring.rules.references import reference_steps, steps_taken, target_tools, tool_choice
from quintain.scoring.rules.regression import non_regression
from quintain.scoring.rules.view import View, index_of, view_of


class _Published:
    """A scorer with a profile, which says how the outcome counts."""

    def __init__(self, profile: DomainProfile | None = None) -> None:
        """Take the profile; None: the one that fits each run."""
        self._profile = profile

    def _credit(self, run: Trajectory) -> tuple[DomainProfile, Credit]:
        profile = self._profile or profile_for(run)
        return profile, credit_of(run, profile.outcome)


class KnowlyrScorer(_Published):
    """0.4 outcome + 0.5 process + 0.1 efficiency; process is the mean of the steps' rubric values."""

    name = "knowlyr"

    def score(self, trajectory: Trajectory) -> Score:
        """The weighted mean of the parts that are known; unscored without an outcome."""
        run = trajectory.identified()
        profile, credit = self._credit(run)
        view = view_of(run, index_of(profile))
        rubrics = _knowlyr_rubrics().get(profile.name, _knowlyr_rubrics()["default"])
        steps = _knowlyr_steps(view, rubrics)
        values = [step.value for step in steps if step.value is not None]
        reference, why = reference_steps(run.task.metadata)
        taken = steps_taken(run)
        outcome = (
            None if credit.success is None else credit.share if credit.share is not None else float(credit.success)
        )
        unjudged = ", ".join(name for name in rubrics if name not in _RULED)
        parts = [
            Component(name="outcome", weight=0.4, value=outcome, feedback=credit.description),
            Component(
                name="process",
                weight=0.5,
                value=sum(values) / len(values) if values else None,
                feedback=f"Left out without a judge: {unjudged}." if unjudged else "",
            ),
            Component(
                name="efficiency",
                weight=0.1,
                value=min(1.0, reference / taken) if reference is not None and taken else None,
                feedback=why or f"{taken} steps where {reference:g} are enough.",
            ),
        ]
        return _weighted(run, self.name, parts, steps=steps)


_RULED = frozenset({"info_utilization", "non_redundancy"})
"""Rubrics that rules answer."""


@cache
def _knowlyr_rubrics() -> Mapping[str, Mapping[str, float]]:
    return tomllib.loads(Path(__file__).with_name("knowlyr_rubrics.toml").read_text(encoding="utf-8"))


def _knowlyr_steps(view: View, rubrics: Mapping[str, float]) -> tuple[StepScore, ...]:
    """Each step by the rubrics that rules answer: a repeated look 0, a repeated act 0.3, an uninformed act 0.7."""
    own = {name: weight for name, weight in rubrics.items() if name in _RULED}
    rows: dict[int, list[tuple[float, float]]] = {}
    regressions, informed = non_regression(view), information_use(view)
    for i, (call, fresh) in enumerate(zip(view.calls, non_redundancy(view), strict=True)):
        floor = 0.0 if call.category in {"read", "search"} else 0.3
        kept = regressions[i]
        novelty = min(max(fresh, floor), 1.0 if kept is None else kept)
        rows.setdefault(call.turn, []).append((1.0 if informed[i] != 0.0 else 0.7, novelty))
    steps = []
    for turn in view.turns:
        row = rows.get(turn.index)
        if not own or row is None or turn.is_copy:
            steps.append(StepScore(step=turn.index))
            continue
        found = {
            "info_utilization": sum(use for use, _ in row) / len(row),
            "non_redundancy": sum(novelty for _, novelty in row) / len(row),
        }
        parts = {name: found[name] for name in own}
        value = sum(own[name] * part for name, part in parts.items()) / sum(own.values())
        steps.append(StepScore(step=turn.index, value=min(1.0, value), parts=parts))
    return tuple(steps)


SAGE_WEIGHTS = {
    "task_completion": 0.40,
    "tool_accuracy": 0.25,
    "efficiency": 0.15,
    "timing_quality": 0.10,
    "format_compliance": 0.10,
}
SAGE_PENALTIES = {"wrong_tool": 0.3, "redundant_call": 0.2, "format_error": 0.1, "timeout": 0.5, "hallucination": 0.4}
"""Deduction for each kind of fault, once (SAGE, `AgentRewardConfig.penalties`); how often it occurs counts in the parts."""


class SageScorer(_Published):
    """0.40 completion + 0.25 tool F1 + 0.15 efficiency + 0.10 timing + 0.10 format, less penalties, within 0..1."""

    name = "sage"

    def __init__(
        self,
        profile: DomainProfile | None = None,
        weights: Mapping[str, float] | None = None,
        penalties: Mapping[str, float] | None = None,
    ) -> None:
        """Take the profile, and what parts weigh and penalties take away; None: as published."""
        super().__init__(profile)
        self._weights = SAGE_WEIGHTS if weights is None else weights
        self._penalties = SAGE_PENALTIES if penalties is None else penalties

    def score(self, trajectory: Trajectory) -> Score:
        """The weighted mean of the parts that are known, less the penalties; unscored without an outcome."""
        run = trajectory.identified()
        profile, credit = self._credit(run)
        view = view_of(run, index_of(profile))
        completion = None if credit.success is None else 1.0 if credit.success else credit.share or 0.0
        targets = target_tools(run.task.metadata)
        choice = None if targets is None else tool_choice(view, targets)
        reference, why = reference_steps(run.task.metadata)
        taken = steps_taken(run)
        excess = max(0.0, taken - reference) / reference if reference else 0.0
        redundant = sum(part == 0.0 for part in non_redundancy(view))
        untimely = sum(part == 0.0 for part in timing(view))
        unreadable = sum(call_fault(call, view) is not None for call in view.calls) + sum(
            turn_fault(turn, view, needs_tools=False) is not None for turn in view.turns if not turn.calls
        )
        found = {
            "task_completion": (completion, credit.description),
            "tool_accuracy": (
                choice.f1 if choice else None,
                "" if choice else "No targets: task.metadata.target_tools names none.",
            ),
            "efficiency": (max(0.0, 1.0 - 0.2 * excess) if reference else None, why),
            "timing_quality": (max(0.0, 1.0 - 0.2 * redundant - 0.1 * untimely) if view.calls else None, ""),
            "format_compliance": (max(0.0, 1.0 - 0.2 * unreadable), ""),
        }
        parts = [
            Component(name=name, weight=self._weights.get(name, 0.0), value=value, feedback=feedback)
            for name, (value, feedback) in found.items()
        ]
        invented = len({call.name for call in view.calls if is_known(call, view) is False})
        counts = {
            "wrong_tool": len(choice.needless) if choice else 0,
            "redundant_call": redundant,
            "format_error": unreadable,
            "timeout": int(_timed_out(run)),
            "hallucination": invented,
        }
        penalties = {kind: (n, self._penalties.get(kind, 0.0)) for kind, n in counts.items()}
        return _weighted(run, self.name, parts, penalties=penalties)


def _timed_out(run: Trajectory) -> bool:
    return run.outcome.status is OutcomeStatus.TRUNCATED and "time" in (run.outcome.exit_status or "").casefold()


class HelloAgentsScorer(_Published):
    """Accuracy, less a penalty for length, plus a bonus for steps that only a right answer earns; divided by 1.5, its most."""

    name = "helloagents"

    def score(self, trajectory: Trajectory) -> Score:
        """The right answer's 2/3 less the penalty, and up to 1/3 for its steps; 0 for a wrong answer."""
        run = trajectory.identified()
        if expected_answer(run.task) is not None:
            verdict = TextScorer("answer").score(run)
            accuracy, description = verdict.value, verdict.feedback or verdict.reason or ""
        else:
            _, credit = self._credit(run)
            accuracy, description = (None if credit.success is None else float(credit.success)), credit.description
        text = agent_text(run)
        penalty = _LENGTH_WEIGHT * max(0, len(text) - _MAX_CHARS) / _MAX_CHARS
        marks = len(set(STEP_MARKS.findall(text)))
        steps = min(1.0, 0.2 * marks)
        right = accuracy is not None and accuracy > 0
        parts = [
            Component(
                name="accuracy",
                weight=2 / 3,
                value=None if accuracy is None else max(0.0, accuracy - penalty) if right else 0.0,
                feedback=description,
            ),
            Component(
                name="steps",
                weight=1 / 3,
                value=None if accuracy is None else steps if right else 0.0,
                feedback=f"{marks} step marks in the text, such as a line that begins with `Step 2` or `2.`; calls do not count.",
            ),
            Component(
                name="length",
                weight=0.0,
                value=max(0.0, 1.0 - penalty),
                feedback=f"{len(text):,} characters; free up to {_MAX_CHARS:,}.",
            ),
        ]
        return _weighted(run, self.name, parts)


_MAX_CHARS, _LENGTH_WEIGHT = 1024, 0.1
STEP_MARKS = re.compile(r"(?mi)^[ \t#*]{0,20}(?:step\s*\d{1,3}\b|第\s*\d{1,3}\s*步|\d{1,3}[.)]\s)")
"""`Step 3`, `第3步`, `3.` at the start of a line: the marks that its documentation names."""


def _weighted(
    run: Trajectory,
    name: str,
    parts: Sequence[Component],
    *,
    steps: tuple[StepScore, ...] = (),
    penalties: Mapping[str, tuple[int, float]] | None = None,
) -> Score:
    """The mean of the known parts with their weights made to add up to 1, less penalties; the first part must be known.

    `penalties` has the number of each kind of fault, and what the kind takes away.
    """
    taken = {kind: n for kind, (n, _) in (penalties or {}).items() if n}
    loss = sum(cost for n, cost in (penalties or {}).values() if n)
    total = sum(part.weight for part in parts if part.value is not None)
    shown = [part.model_copy(update={"weight": part.weight / total if total else part.weight}) for part in parts]
    if penalties is not None:
        description = ", ".join(f"{n} x {kind}" for kind, n in taken.items()) or "none"
        shown.append(
            Component(name="penalties", weight=0.0, value=max(0.0, 1.0 - loss), feedback=f"-{loss:.1f}: {description}.")
        )
    if parts[0].value is None:
        return unscored(run, name, unknown_outcome(parts[0].feedback), shown, steps)
    value = (
        sum(part.weight * part.value for part in shown if part.value is not None and part.name != "penalties") - loss
    )
    weak = [part for part in shown if part.value is not None and (part.weight or part.name == "penalties")]
    worst = min(weak, key=lambda part: part.value if part.value is not None else 1.0)
    feedback = (
        f"Weakest: {worst.name}. {worst.feedback}".strip() if (worst.value or 0.0) < 1.0 else "No part finds fault."
    )
    return scored(run, name, min(1.0, max(0.0, value)), feedback, shown, steps)
