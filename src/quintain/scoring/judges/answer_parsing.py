"""Read a judge's answer strictly: one JSON object of the form that was asked for, or a failure with its reason.

No value is searched for in prose, repaired or filled in. A value counts with a quote that is in the run (`Passages`). A criterion
without a value leaves the run unscored: a mean over the criteria that a judge chose to answer is the value of another rubric.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from quintain.records.documents import distinct
from quintain.records.labels.judging import JudgingMode, Rubric, Verdict, Vote
from quintain.records.text import MAX_DEPTH
from quintain.records.wording import nearest, shown
from quintain.scoring.judges.shown_run import Passages

Purpose = Literal["credit", "submission", "control"]
"""Subject of an answer, which decides the worth of its quotes; see `read_verdict`."""

_MAX_CHARS = 200_000
_MAX_RATIONALE = 2000
_MAX_QUOTES = 20
_PLACES: Mapping[str, tuple[tuple[int, ...], ...]] = {"a": ((0,), (1,)), "b": ((1,), (0,)), "tie": ((0, 1),)}
"""The better one of two runs -> their ranking."""
_FENCED = re.compile(r"```(?:json|JSON)?[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)
_THOUGHT = re.compile(r"<think>.*?</think>\s*", re.DOTALL)


@dataclass(frozen=True)
class RankingAnswer:
    """The order in which a judge put two or more runs, best first; runs of equal worth share a place."""

    places: tuple[tuple[int, ...], ...] = ()
    """Runs by their number from 0."""
    rationale: str = ""
    failed: str | None = None
    """Why there is no answer."""

    @property
    def better(self) -> Vote:
        """Which of two runs is first."""
        return "tie" if len(self.places) == 1 else "a" if self.places[0] == (0,) else "b"


class Unreadable(ValueError):
    """An answer has not the form that was asked for; caught in this module, where it becomes `failed`."""


def read_verdict(
    answer: str | Mapping[str, Any],
    rubric: Rubric,
    n_steps: int,
    *,
    mode: JudgingMode = "score",
    steps: Collection[int] | None = None,
    purpose: Purpose = "submission",
    passages: Passages | None = None,
) -> Verdict:
    """Read the verdict in an answer.

    Args:
        answer: The text of a judge, or the object that it submitted: `{"scores": {criterion: mark}, "rationale"}`, in mode `steps`
            `{"steps": {step: {"quotes": [...], "scores": {criterion: 0..1}} or null}, "rationale"}`; both keys may be given in
            both modes. A mark is `{"quotes": [...], "value": 0..1}`, or a number alone.
        rubric: Rubric of the question.
        n_steps: The agent's steps of the run.
        mode: Which of the two keys is required.
        steps: The steps that were shown; None: all of them. No other step may have a value.
        purpose: `credit`: a value above 0 without a quote in the run, or in its step, is dropped; `submission`: quotes are
            optional, and a wrong one fails the answer; `control`: quotes are not checked, and every step may be null.
        passages: The recorded texts that quotes are looked up in.
    """
    reader = _MarkReader(rubric, purpose, passages or Passages())
    try:
        document = _object(answer)
        _known_keys(document, ("scores", "steps", "rationale"))
        wanted = "steps" if mode == "steps" else "scores"
        if wanted not in document:
            _fail(f"the answer has no {wanted!r}")
        allowed = set(range(n_steps)) if steps is None else set(steps)
        scores, quotes = reader.run(document["scores"]) if "scores" in document else ({}, {})
        judged = _steps(document["steps"], allowed, n_steps) if "steps" in document else {}
        by_step = {step: reader.step(step, marks) for step, marks in judged.items()}
        if mode == "steps" and purpose != "control" and not any(marks is not None for marks in judged.values()):
            _fail("no step has a value")
        return Verdict(
            scores=scores,
            quotes=quotes,
            rationale=_rationale(document),
            steps={step: values for step, (values, _) in by_step.items()},
            step_quotes={step: quotes for step, (_, quotes) in by_step.items() if quotes},
            unproven=tuple(reader.unproven),
            unproven_steps=tuple(reader.unproven_steps),
        )
    except Unreadable as error:
        return Verdict(failed=str(error))


@dataclass
class _MarkReader:
    """Reads values with their quotes, and drops those whose quotes are not in the run."""

    rubric: Rubric
    purpose: Purpose
    passages: Passages
    unproven: list[str] = field(default_factory=list)
    unproven_steps: list[int] = field(default_factory=list)

    def run(self, document: object) -> tuple[dict[str, float], dict[str, tuple[str, ...]]]:
        """Read the values of the run by criterion, and their quotes."""
        marks = _by_criterion(document, self.rubric, "scores")
        values: dict[str, float] = {}
        quotes: dict[str, tuple[str, ...]] = {}
        for name, mark in marks.items():
            where = f"scores.{name}"
            if isinstance(mark, Mapping):
                _known_keys(mark, ("quotes", "value"), where)
                value, quotes[name] = _share(mark.get("value"), f"{where}.value"), _quotes(mark.get("quotes"), where)
            else:
                value, quotes[name] = _share(mark, where), ()
            if self._is_proven(value, quotes[name], None, where):
                values[name] = value
            else:
                self.unproven.append(name)
        return values, {name: found for name, found in quotes.items() if found and name in values}

    def step(self, step: int, document: object) -> tuple[dict[str, float], tuple[str, ...]]:
        """Read the values of a step by criterion, and its quotes."""
        if document is None:
            return {}, ()
        where, quotes = f"steps.{step}", tuple[str, ...]()
        values_of: object = document
        if isinstance(document, Mapping) and isinstance(document.get("scores"), Mapping):
            _known_keys(document, ("quotes", "scores"), where)
            values_of, quotes = document["scores"], _quotes(document.get("quotes"), where)
        marks = _by_criterion(values_of, self.rubric, where)
        values = {name: _share(value, f"{where}.{name}") for name, value in marks.items()}
        if self._is_proven(max(values.values(), default=0.0), quotes, step, where):
            return values, quotes
        self.unproven_steps.append(step)
        return {}, ()

    def _is_proven(self, value: float, quotes: tuple[str, ...], step: int | None, where: str) -> bool:
        if self.purpose == "control":
            return True
        if self.purpose == "submission":
            wrong = next((quote for quote in quotes if not self.passages.has(quote, step)), None)
            if wrong is not None:
                place = "the run" if step is None else f"step {step}"
                _fail(f"{where} quotes {shown(wrong)}, which is not in {place} as shown")
            return True
        return value == 0 or self.passages.has_any(quotes, step)


def read_preference(
    answer: str | Mapping[str, Any], passages: Sequence[Passages] = (), *, purpose: Purpose = "submission"
) -> RankingAnswer:
    """Read the preference in an answer `{"quotes": [of A, of B], "better": "A" | "B" | "tie", "rationale"}`.

    The passages are of the runs in the order in which they are shown; a tie needs no quotes.
    """
    try:
        document = _object(answer)
        _known_keys(document, ("quotes", "better", "rationale"))
        better = document.get("better")
        places = _PLACES.get(str(better).strip().lower())
        if places is None:
            _fail(f"expected 'A', 'B' or 'tie' as 'better', got {shown(better)}")
        _check_run_quotes(document, passages, purpose, needed=len(places) > 1, names="AB")
        return RankingAnswer(places, _rationale(document))
    except Unreadable as error:
        return RankingAnswer(failed=str(error))


def read_ranking(
    answer: str | Mapping[str, Any], n: int, passages: Sequence[Passages] = (), *, purpose: Purpose = "submission"
) -> RankingAnswer:
    """Read the order of `n` runs, numbered from 1, in an answer `{"quotes": [...], "ranking": [[2], [1, 3]], "rationale"}`.

    The passages are of the runs in the order in which they are shown; an order in which all share one place needs no quotes.
    """
    try:
        document = _object(answer)
        _known_keys(document, ("quotes", "ranking", "rationale"))
        ranking = document.get("ranking")
        if not isinstance(ranking, list):
            _fail(f"expected a list of lists of run numbers as 'ranking', got {shown(ranking)}")
        places = tuple(
            tuple(_run_number(run, n) for run in (place if isinstance(place, list) else [place])) for place in ranking
        )
        if sorted(run for place in places for run in place) != list(range(n)):
            _fail(f"expected each of the runs 1 to {n} once in 'ranking', got {shown(ranking)}")
        places = tuple(place for place in places if place)
        _check_run_quotes(document, passages, purpose, needed=len(places) > 1, names=[str(k + 1) for k in range(n)])
        return RankingAnswer(places, _rationale(document))
    except Unreadable as error:
        return RankingAnswer(failed=str(error))


def weighted_mean(values: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Return the sum of weight times value over the sum of weights, in 0..1; every weight has a value."""
    total = math.fsum(weights.values())
    return rounded_share(math.fsum(weights[name] * values[name] for name in weights) / total)


def mean(values: Sequence[float]) -> float:
    """Return the mean of values in 0..1."""
    return rounded_share(math.fsum(values) / len(values))


def rounded_share(value: float) -> float:
    """Return a value in 0..1 without the rounding of sums: equal values have that value as their mean."""
    return min(1.0, max(0.0, round(value, 12)))


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
        document = json.loads(text, object_pairs_hook=distinct, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        _fail(_json_fault(error, text))
    except RecursionError:
        _fail(f"the answer is nested deeper than {MAX_DEPTH} levels")
    except ValueError as error:  # also an integer of more digits than Python reads
        _fail(str(error))
    return dict(document)


def _json_fault(error: json.JSONDecodeError, text: str) -> str:
    if error.msg == "Extra data":
        return f"the answer has more than one JSON object, or text behind it: {shown(text[error.pos :].strip())}"
    if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
        return f"the answer ends in the middle of its JSON object, after {len(text):,} characters"
    return f"the answer is not valid JSON ({error.msg} at character {error.pos})"


def _no_constant(name: str) -> NoReturn:
    _fail(f"expected a number from 0 to 1, got {name}")


def _known_keys(document: Mapping[str, Any], known: Sequence[str], where: str = "the answer") -> None:
    if unknown := [key for key in document if key not in known]:
        _fail(f"{where} has the unknown key {shown(unknown[0])}; the keys are {', '.join(known)}")


def _by_criterion(document: object, rubric: Rubric, where: str) -> dict[str, object]:
    if not isinstance(document, Mapping):
        _fail(f"{where}: expected an object of criteria and values, got {shown(document)}")
    names = [criterion.name for criterion in rubric.criteria]
    if unknown := [key for key in document if key not in names]:
        known = f"the criteria are {', '.join(names)}"
        _fail(f"{where} has the unknown criterion {shown(unknown[0])}{nearest(unknown[0], names)}; {known}")
    return {str(name): value for name, value in document.items()}


def _share(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _fail(f"{where}: expected a number from 0 to 1, got {shown(value)}")
    if not 0 <= value <= 1:  # NaN too
        _fail(f"{where} is {shown(value)}, out of the range 0 to 1")
    return float(value)


def _quotes(listed: object, where: str) -> tuple[str, ...]:
    quotes = [listed] if isinstance(listed, str) else [] if listed is None else listed
    if not isinstance(quotes, Sequence) or not all(isinstance(quote, str) for quote in quotes):
        _fail(f"{where}.quotes: expected a list of texts, got {shown(listed)}")
    if len(quotes) > _MAX_QUOTES:
        _fail(f"{where}.quotes has {len(quotes)} quotes; at most {_MAX_QUOTES} are read")
    return tuple(quote.strip() for quote in quotes if quote.strip())


def _check_run_quotes(
    document: Mapping[str, Any], passages: Sequence[Passages], purpose: Purpose, *, needed: bool, names: Sequence[str]
) -> None:
    """Require one quote of each run that is in that run, for credit always and of a submission where it has quotes."""
    listed = document.get("quotes")
    if purpose == "submission" and not listed:
        return
    if not isinstance(listed, Sequence | None) or isinstance(listed, str):
        _fail(f"quotes: expected a list with one quote of each run, got {shown(listed)}")
    if not needed:
        return
    quotes = list(listed or ())
    if len(quotes) != len(passages):
        _fail(f"expected one quote of each of the {len(passages)} runs, got {len(quotes)}")
    for name, quote, texts in zip(names, quotes, passages, strict=False):
        if not isinstance(quote, str) or not texts.has(quote):
            _fail(f"the quote of run {name} is not in that run as shown")


def _steps(document: object, allowed: set[int], n_steps: int) -> dict[int, object]:
    if not isinstance(document, Mapping):
        _fail(f"'steps': expected an object of step numbers and values, got {shown(document)}")
    judged: dict[int, object] = {}
    for key, values in document.items():
        step = _step_number(key)
        if step not in allowed:
            about = "was not shown" if 0 <= step < n_steps else f"does not exist: the run has {n_steps}, counted from 0"
            _fail(f"'steps' has step {step}, which {about}")
        if step in judged:
            _fail(f"'steps' has step {step} twice")
        judged[step] = values
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
    _fail(f"'steps': expected the number of a step as key, such as \"0\", got {shown(key)}")


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
        _fail(f"'rationale': expected text, got {shown(rationale)}")
    text = " ".join(rationale.encode("utf-8", "replace").decode().split())
    return text if len(text) <= _MAX_RATIONALE else f"{text[: _MAX_RATIONALE - 3]}..."


def _fail(reason: str) -> NoReturn:
    raise Unreadable(reason)
