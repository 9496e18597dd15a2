"""Reading what a judge answered, strictly: one JSON object of the form that was asked for, or a failure with its reason.

Nothing is looked for in prose, mended or filled in. A criterion that was left out is missing, and a run without a value for
each criterion of its rubric is unscored: a mean over those that a judge chose to answer is another rubric's value.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from quintain.records.judging import JudgingMode, Rubric, Verdict
from quintain.records.record import nearest, shown
from quintain.records.score import Component, Score, StepScore
from quintain.records.text import MAX_DEPTH
from quintain.scoring.judges.showing import ShownRun

Better = Literal["a", "b", "tie"]

_MAX_CHARS = 200_000
_MAX_RATIONALE = 2000
_FENCED = re.compile(r"```(?:json|JSON)?[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)
_THOUGHT = re.compile(r"<think>.*?</think>\s*", re.DOTALL)


@dataclass(frozen=True)
class PairAnswer:
    """Which of two runs a judge took for the better one; with `failed`, why there is no answer."""

    better: Better | None = None
    rationale: str = ""
    failed: str | None = None


@dataclass(frozen=True)
class RankingAnswer:
    """The order in which a judge put runs, best first; runs of equal worth share a place. Runs are counted from 0."""

    places: tuple[tuple[int, ...], ...] = ()
    rationale: str = ""
    failed: str | None = None


class Unreadable(ValueError):
    """An answer is not what was asked for; caught in this module, where it becomes `failed`."""


def read_verdict(
    answer: str | Mapping[str, Any],
    rubric: Rubric,
    n_steps: int,
    *,
    mode: JudgingMode = "score",
    steps: Collection[int] | None = None,
) -> Verdict:
    """The verdict that an answer holds.

    Args:
        answer: What the judge wrote, or the object that it submitted: `{"scores": {criterion: 0..1}, "rationale"}`, in mode
            `steps` `{"steps": {step: {criterion: 0..1} or null}, "rationale"}`; both keys may be given in both modes.
        rubric: What was asked by.
        n_steps: The agent's steps of the run.
        mode: Which of the two keys must be there.
        steps: The steps that were shown; None: all of them. No other step may have a value.
    """
    try:
        document = _object(answer)
        _known_keys(document, ("scores", "steps", "rationale"))
        wanted = "steps" if mode == "steps" else "scores"
        if wanted not in document:
            _fail(f"the answer has no {wanted!r}")
        allowed = set(range(n_steps)) if steps is None else set(steps)
        scores = _values(document["scores"], rubric, "scores") if "scores" in document else {}
        judged = _steps(document["steps"], rubric, allowed, n_steps) if "steps" in document else {}
        if mode == "steps" and not any(judged.values()):
            _fail("no step has a value")
        return Verdict(scores=scores, rationale=_rationale(document), steps=judged)
    except Unreadable as error:
        return Verdict(failed=str(error))


def read_preference(answer: str | Mapping[str, Any]) -> PairAnswer:
    """The preference that an answer `{"better": "A" | "B" | "tie", "rationale"}` holds."""
    try:
        document = _object(answer)
        _known_keys(document, ("better", "rationale"))
        better = document.get("better")
        read: dict[str, Better] = {"a": "a", "b": "b", "tie": "tie"}
        if not isinstance(better, str) or better.strip().lower() not in read:
            _fail(f"'better' is {shown(better)}; it must be 'A', 'B' or 'tie'")
        return PairAnswer(read[better.strip().lower()], _rationale(document))
    except Unreadable as error:
        return PairAnswer(failed=str(error))


def read_ranking(answer: str | Mapping[str, Any], n: int) -> RankingAnswer:
    """The order of `n` runs that an answer `{"ranking": [[2], [1, 3]], "rationale"}` holds; runs are called 1 to n."""
    try:
        document = _object(answer)
        _known_keys(document, ("ranking", "rationale"))
        ranking = document.get("ranking")
        if not isinstance(ranking, list):
            _fail(f"'ranking' is {shown(ranking)}; it must be a list of lists of run numbers")
        places = tuple(
            tuple(_run_number(run, n) for run in (place if isinstance(place, list) else [place])) for place in ranking
        )
        seen = [run for place in places for run in place]
        if sorted(seen) != list(range(n)):
            _fail(f"'ranking' is {shown(ranking)}; each of the runs 1 to {n} must occur once")
        return RankingAnswer(tuple(place for place in places if place), _rationale(document))
    except Unreadable as error:
        return RankingAnswer(failed=str(error))


def score_of(
    verdict: Verdict,
    rubric: Rubric,
    trajectory_id: str,
    *,
    scorer: str = "judge",
    rater: str | None = None,
    view: ShownRun | None = None,
) -> Score:
    """The score that a verdict gives a run.

    The value is the weighted mean of the criteria; where the verdict is of steps alone, the mean over the steps that have a
    value, each the weighted mean of its criteria. A criterion that is missing leaves the run unscored, with the reason.

    Args:
        verdict: As it was read.
        rubric: What it was given by.
        trajectory_id: The run.
        scorer: Under which name it is kept.
        rater: Who judged, as `Score.rater`.
        view: What the judge was shown: steps that were not shown are listed without a value, and where the run addressed its
            judge, the feedback says so.
    """
    weights = {criterion.name: criterion.weight for criterion in rubric.criteria}
    steps = _step_scores(verdict, weights, view)
    fixed: dict[str, Any] = {"trajectory_id": trajectory_id, "scorer": scorer, "rater": rater, "rubric": rubric.name}
    notes = _notes(view)
    if verdict.failed is not None:
        return Score(**fixed, status="unscored", reason=f"the judgement failed: {verdict.failed}", feedback=notes)
    components = tuple(
        Component(name=name, weight=weight, value=verdict.scores.get(name)) for name, weight in weights.items()
    )
    told: dict[str, Any] = {"steps": steps, "feedback": " ".join(filter(None, (verdict.rationale, notes)))}
    if not verdict.scores and verdict.steps:
        lacking = sorted({name for given in verdict.steps.values() if given for name in weights if name not in given})
        values = [step.value for step in steps if step.value is not None]
        if lacking or not values:
            return _without(fixed | told, lacking)
        return Score(**fixed, **told, status="scored", value=_mean(values))
    told["components"] = components
    if lacking := [name for name in weights if name not in verdict.scores]:
        return _without(fixed | told, lacking)
    return Score(**fixed, **told, status="scored", value=weighted_mean(verdict.scores, weights))


def weighted_mean(values: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """The sum of weight times value over the sum of weights, in 0..1; every weight has a value."""
    total = math.fsum(weights.values())
    return _share_of(math.fsum(weights[name] * values[name] for name in weights) / total)


def _without(fields: dict[str, Any], lacking: Sequence[str]) -> Score:
    names = ", ".join(map(repr, lacking))
    reason = f"the judge gave no value for {names}" if lacking else "the judge gave no step a value"
    return Score(**fields, status="unscored", reason=reason)


def _step_scores(verdict: Verdict, weights: Mapping[str, float], view: ShownRun | None) -> tuple[StepScore, ...]:
    if not verdict.steps:
        return ()
    unseen = set(range(view.n_steps)) - set(view.steps) if view is not None else set()
    found = []
    for step in sorted(unseen | set(verdict.steps)):
        given = verdict.steps.get(step, {})
        whole = bool(given) and all(name in given for name in weights)
        about = "not shown to the judge" if step in unseen else "" if given else "nothing to judge"
        value = weighted_mean(given, weights) if whole else None
        found.append(StepScore(step=step, value=value, parts=dict(given), feedback=about))
    return tuple(found)


def _notes(view: ShownRun | None) -> str:
    if view is None:
        return ""
    notes = []
    if view.injections:
        places = ", ".join(dict.fromkeys(view.injections))
        shown = " The task's own words were shown, marked as data." if "the task" in view.injections else ""
        kept = "" if set(view.injections) == {"the task"} else " What it says there was withheld."
        notes.append(f"[injection] The run addresses its judge in {places}.{kept}{shown}")
    if view.doubtful:
        places = ", ".join(dict.fromkeys(view.doubtful))
        notes.append(f"[marked] What may be meant for a judge in {places} was shown, marked as data.")
    if len(view.steps) < view.n_steps:
        notes.append(f"[shortened] The judge saw {len(view.steps)} of {view.n_steps} steps.")
    elif view.shortened:
        notes.append("[shortened] The judge saw long texts cut.")
    return " ".join(notes)


def _mean(values: Sequence[float]) -> float:
    return _share_of(math.fsum(values) / len(values))


def _share_of(mean: float) -> float:
    """A mean of values in 0..1 without what rounding adds: equal values have that value as their mean."""
    return min(1.0, max(0.0, round(mean, 12)))


def _object(answer: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(answer, Mapping):
        return answer
    if len(answer) > _MAX_CHARS:
        _fail(f"the answer has {len(answer):,} characters; at most {_MAX_CHARS:,} are read")
    text = answer.strip()
    if thought := _THOUGHT.match(text):
        text = text[thought.end() :].strip()
    if fenced := _FENCED.fullmatch(text):
        text = fenced[1].strip()
    if not text:
        _fail("the answer is empty")
    if not text.startswith("{"):
        _fail(f"the answer is prose, not one JSON object: {shown(text)}")
    try:
        document = json.loads(text, object_pairs_hook=_distinct, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        _fail(_json_fault(error, text))
    except RecursionError:
        _fail(f"the answer is nested deeper than {MAX_DEPTH} levels")
    except ValueError as error:  # Unreadable, or an integer of more digits than Python reads
        _fail(str(error))
    return dict(document)


def _json_fault(error: json.JSONDecodeError, text: str) -> str:
    if error.msg == "Extra data":
        return f"the answer holds more than one JSON object, or text behind it: {shown(text[error.pos :].strip())}"
    if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
        return f"the answer ends in the middle of its JSON object, after {len(text):,} characters"
    return f"the answer is not valid JSON ({error.msg} at character {error.pos})"


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        _fail(f"the key {shown(next(name for name in names if names.count(name) > 1))} occurs twice")
    return found


def _no_constant(name: str) -> NoReturn:
    _fail(f"{name} is no number from 0 to 1")


def _known_keys(document: Mapping[str, Any], known: Sequence[str]) -> None:
    if unknown := [key for key in document if key not in known]:
        _fail(f"the answer has the unknown key {shown(unknown[0])}; the keys are {', '.join(known)}")


def _values(given: object, rubric: Rubric, where: str) -> dict[str, float]:
    if not isinstance(given, Mapping):
        _fail(f"{where} is {shown(given)}; it must be an object of criteria and values")
    names = [criterion.name for criterion in rubric.criteria]
    if unknown := [key for key in given if key not in names]:
        known = f"the criteria are {', '.join(names)}"
        _fail(f"{where} has the unknown criterion {shown(unknown[0])}{nearest(unknown[0], names)}; {known}")
    return {str(name): _share(value, f"{where}.{name}") for name, value in given.items()}


def _share(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _fail(f"{where} is {shown(value)}; it must be a number from 0 to 1")
    if not 0 <= value <= 1:  # NaN too
        _fail(f"{where} is {shown(value)}, out of the range 0 to 1")
    return float(value)


def _steps(given: object, rubric: Rubric, allowed: set[int], n_steps: int) -> dict[int, dict[str, float]]:
    if not isinstance(given, Mapping):
        _fail(f"'steps' is {shown(given)}; it must be an object of step numbers and values")
    judged: dict[int, dict[str, float]] = {}
    for key, values in given.items():
        step = _step_number(key)
        if step not in allowed:
            about = "was not shown" if 0 <= step < n_steps else f"does not exist: the run has {n_steps}, counted from 0"
            _fail(f"'steps' has step {step}, which {about}")
        if step in judged:
            _fail(f"'steps' has step {step} twice")
        judged[step] = {} if values is None else _values(values, rubric, f"steps.{step}")
    if missing := sorted(allowed - set(judged)):
        _fail(f"'steps' lacks {_listed(missing)}; a step with nothing to judge is null")
    return judged


def _listed(steps: Iterable[int]) -> str:
    names = [str(step) for step in steps]
    return ("step " if len(names) == 1 else "steps ") + ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def _step_number(key: object) -> int:
    if isinstance(key, int) and not isinstance(key, bool):
        return key
    if isinstance(key, str) and re.fullmatch(r"0|[1-9][0-9]{0,8}", key):
        return int(key)
    _fail(f"'steps' has the key {shown(key)}; it must be the number of a step, such as \"0\"")


def _run_number(value: object, n: int) -> int:
    if isinstance(value, str) and re.fullmatch(r"[1-9][0-9]{0,3}", value.strip()):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= n:
        _fail(f"'ranking' names the run {shown(value)}; the runs are 1 to {n}")
    return value - 1


def _rationale(document: Mapping[str, Any]) -> str:
    rationale = document.get("rationale", "")
    if rationale is None:
        return ""
    if not isinstance(rationale, str):
        _fail(f"'rationale' is {shown(rationale)}; it must be text")
    text = " ".join(rationale.encode("utf-8", "replace").decode().split())
    return text if len(text) <= _MAX_RATIONALE else f"{text[: _MAX_RATIONALE - 3]}..."


def _fail(reason: str) -> NoReturn:
    raise Unreadable(reason)
