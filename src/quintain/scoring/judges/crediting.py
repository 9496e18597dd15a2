"""Turn a verdict into the score of a run: the weighted mean of its criteria, less what the control gets too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quintain.records.labels.judging import Rubric, Verdict
from quintain.records.score import Component, Score, StepScore
from quintain.records.wording import clip, list_names
from quintain.scoring.judges.answer_parsing import mean, rounded_share, weighted_mean
from quintain.scoring.judges.empty_run_control import Control, Credit
from quintain.scoring.judges.shown_run import ShownRun

_QUOTE_CHARS = 200
_NAMED = 5
"""Criteria, steps and amounts that a note names."""


def score_of(
    verdict: Verdict,
    rubric: Rubric,
    trajectory_id: str,
    *,
    scorer: str = "judge",
    rater: str | None = None,
    view: ShownRun | None = None,
    control: Control | None = None,
) -> Score:
    """Return the score that a verdict gives a run.

    The value is the weighted mean of the criteria; where the verdict is of steps alone, the mean over the steps that have a
    value, each the weighted mean of its criteria. A missing criterion leaves the run unscored, with the reason.

    Steps that were not shown are listed without a value. What the control got is subtracted from each criterion.
    """
    weights = {criterion.name: criterion.weight for criterion in rubric.criteria}
    credit = control or Control()
    steps = _step_scores(verdict, weights, view, credit)
    fixed: dict[str, Any] = {"trajectory_id": trajectory_id, "scorer": scorer, "rater": rater, "rubric": rubric.name}
    notes = _notes(view, control, verdict)
    if verdict.failed is not None:
        return Score(**fixed, status="unscored", reason=f"the judgement failed: {verdict.failed}", feedback=notes)
    about: dict[str, Any] = {"steps": steps, "feedback": " ".join(filter(None, (verdict.rationale, notes)))}
    if not verdict.scores and not verdict.unproven and verdict.steps:
        missing = {name for marks in verdict.steps.values() if marks for name in weights if name not in marks}
        of_steps = [step.value for step in steps if step.value is not None]
        if missing or verdict.unproven_steps or not of_steps:
            return _unscored(fixed | about, sorted(missing), verdict)
        return Score(**fixed, **about, status="scored", value=mean(of_steps))
    components = {name: _component(name, weights, verdict, credit.run.get(name)) for name in weights}
    about["components"] = tuple(components.values())
    if lacking := [name for name in weights if name not in verdict.scores]:
        return _unscored(fixed | about, lacking, verdict)
    values = {name: component.value or 0.0 for name, component in components.items()}
    return Score(**fixed, **about, status="scored", value=weighted_mean(values, weights))


def is_withheld(score: Score) -> bool:
    """Whether some credit of a score was subtracted, because the control got it too."""
    return any(part.control for part in score.components) or _TAKEN in score.feedback


_TAKEN = "[control] Subtracted"


def _component(name: str, weights: Mapping[str, float], verdict: Verdict, credit: Credit | None) -> Component:
    value = verdict.scores.get(name)
    return Component(
        name=name,
        weight=weights[name],
        value=None if value is None else _less(value, credit),
        control=credit and credit.value,
        noise=credit and credit.noise,
        feedback=_quoted(verdict.quotes.get(name, ())),
    )


def _less(value: float, credit: Credit | None) -> float:
    return value if credit is None else rounded_share(value - credit.value)


def _quoted(quotes: Sequence[str]) -> str:
    return clip(" ".join(f'"{" ".join(quote.split())}"' for quote in quotes), _QUOTE_CHARS)


def _unscored(fields: dict[str, Any], lacking: Sequence[str], verdict: Verdict) -> Score:
    if unproven := [name for name in lacking if name in verdict.unproven]:
        reason = f"no quote of the judge for {list_names(list(map(repr, unproven)), _NAMED)} is in the run"
    elif verdict.unproven_steps:
        reason = "the judge quotes for some steps what is not in them"
    elif lacking:
        reason = f"the judge gave no value for {', '.join(map(repr, lacking))}"
    else:
        reason = "the judge gave no step a value"
    return Score(**fields, status="unscored", reason=reason)


def _step_scores(
    verdict: Verdict, weights: Mapping[str, float], view: ShownRun | None, control: Control
) -> tuple[StepScore, ...]:
    if not verdict.steps:
        return ()
    hidden = set(range(view.n_steps)) - set(view.steps) if view is not None else set()
    found = []
    for step in sorted(hidden | set(verdict.steps)):
        credits = control.at(step)
        marks = {name: _less(value, credits.get(name)) for name, value in verdict.steps.get(step, {}).items()}
        complete = bool(marks) and all(name in marks for name in weights)
        if step in hidden:
            about = "not shown to the judge"
        elif step in verdict.unproven_steps:
            about = "no quote of the judge is in the step"
        else:
            about = _quoted(verdict.step_quotes.get(step, ())) if marks else "nothing to judge"
        value = weighted_mean(marks, weights) if complete else None
        found.append(StepScore(step=step, value=value, parts=marks, feedback=about))
    return tuple(found)


def _notes(view: ShownRun | None, control: Control | None, verdict: Verdict) -> str:
    notes = [_control_note(control, verdict)] if control is not None else []
    if view is not None and len(view.steps) < view.n_steps:
        notes.append(f"[shortened] The judge saw {len(view.steps)} of {view.n_steps} steps.")
    elif view is not None and view.shortened:
        notes.append("[shortened] The judge saw long texts cut.")
    return " ".join(filter(None, notes))


def _control_note(control: Control, verdict: Verdict) -> str:
    if control.failed is not None:
        return f"[control] Unknown, nothing was subtracted: {clip(control.failed, _QUOTE_CHARS)}."
    amounts = [
        f"{name} {credit.value:.2f}" for name, credit in control.run.items() if name in verdict.scores and credit.value
    ]
    for step in verdict.steps:
        amounts += [
            f"{name} of step {step} {credit.value:.2f}" for name, credit in control.at(step).items() if credit.value
        ]
    if not amounts:
        return ""
    return f"{_TAKEN}, because the judge gives it without the agent's words too: {list_names(amounts, _NAMED)}."
