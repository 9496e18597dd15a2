"""Scorers that a caller declares as data: lengths and counts with bounds, words, patterns, JSON schemas, and shaped accuracies.

Two are HelloAgents' other rewards, with their parameters:

    length_penalty  max(0, a - w max(0, n - m) / m)      a: `answer`, n: characters of the agent's messages, w: weight, m: free
    step_bonus      (a + min(b s, 0.5)) / 1.5 where a > 0, else 0      s: distinct step marks (`Step 2`, `第2步`, `2.`), b: bonus

Theirs paid the bonus for wrong answers too, counted line breaks as steps, and left 0..1; here the most is 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from quintain.checkers.json_schemas import check_schema, require_schema
from quintain.checkers.patterns import compile_pattern, search
from quintain.errors import InvalidInput
from quintain.records.labels.reward import (
    DECLARED,
    CallsReward,
    ContainsReward,
    Declared,
    JsonSchemaReward,
    LengthPenaltyReward,
    LengthReward,
    RegexReward,
    StepBonusReward,
    StepsReward,
    WordsReward,
)
from quintain.records.score import CheckResult, Component, Score
from quintain.records.trajectory import Trajectory
from quintain.records.wording import explain, nearest, shown
from quintain.scoring.outcomes.answer_scorers import TextScorer
from quintain.scoring.outcomes.final_message import MAX_CHARS, agent_text, final_messages
from quintain.scoring.outcomes.whole_run_scores import score_of_check, scored, unscored
from quintain.scoring.published import STEP_MARKS

DEFAULTS: Mapping[str, Declared] = {"length": LengthReward(), "calls": CallsReward(), "steps": StepsReward()}
"""Names that need no settings."""

_DECLARED: TypeAdapter[Declared] = TypeAdapter(Declared)
_WORD = re.compile(r"\w+(?:['’]\w+)*")


def read_declared(document: Mapping[str, Any], where: str) -> Declared:
    """Return the scorer that a caller declares by its `type` and the settings of the type.

    Raises:
        InvalidInput: An unknown type or field, a value out of bounds, or a pattern or schema that cannot be used.
    """
    kind = document.get("type")
    if not isinstance(kind, str) or kind not in DECLARED:
        raise InvalidInput(
            f"expected {where}.type of {', '.join(DECLARED)}, got {shown(kind)}{nearest(kind, DECLARED)}; correct it"
        )
    try:
        declared = _DECLARED.validate_python(dict(document))
        if isinstance(declared, RegexReward):
            compile_pattern(declared.pattern, declared.flags)
        elif isinstance(declared, JsonSchemaReward):
            require_schema(declared.json_schema)
    except ValidationError as error:
        fields = [name for name in DECLARED[str(kind)].model_fields if name != "type"]
        known = ["schema" if name == "json_schema" else name for name in fields]
        raise InvalidInput(f"{explain(error, where, known)}; fields of {kind}: {', '.join(known)}") from None
    except ValueError as error:
        raise InvalidInput(f"{where}: {error}") from None
    return declared


class DeclaredScorer:
    """Score a run by a declared scorer; a run without the text or count that it needs is unscored."""

    def __init__(self, declared: Declared) -> None:
        """Configure the declared scorer; its label is the name."""
        self.name = declared.label
        self.declared = declared

    def score(self, trajectory: Trajectory) -> Score:
        """Return the value in 0..1, higher is better."""
        if isinstance(self.declared, LengthPenaltyReward | StepBonusReward):
            return _shaped_accuracy(trajectory, self.name, self.declared)
        return score_of_check(trajectory, self.name, _checked(self.declared, trajectory))


_Check = LengthReward | CallsReward | StepsReward | WordsReward | ContainsReward | RegexReward | JsonSchemaReward


def _checked(declared: _Check, run: Trajectory) -> CheckResult:
    match declared:
        case StepsReward():
            n = len(run.own_steps)
            return CheckResult(declared.value_of(n), f"{n} turns.")
        case CallsReward():
            tools = [action.tool for step in run.own_steps for action in step.actions]
            n = len(tools) if declared.tool is None else tools.count(declared.tool)
            return CheckResult(declared.value_of(n), f"{n} calls.")
        case LengthReward(unit="tokens"):
            return _tokens(declared, run)
        case JsonSchemaReward():
            text = _text(run, "last")
            return _NO_TEXT if text is None else check_schema(declared.json_schema, text)
    text = _text(run, declared.of)
    if text is None:
        return _NO_TEXT
    if isinstance(declared, LengthReward):
        n = len(text.split()) if declared.unit == "words" else len(text)
        return CheckResult(declared.value_of(n), f"{n:,} {declared.unit}.")
    if isinstance(declared, RegexReward):
        return _turned(search(declared.pattern, text, flags=declared.flags, full=declared.full), declared.absent)
    if isinstance(declared, ContainsReward):
        found = _folded(declared.text, declared.ignore_case) in _folded(text, declared.ignore_case)
        return _turned(CheckResult(float(found), f"The text is {'' if found else 'not '}contained."), declared.absent)
    return _words(declared, text)


_NO_TEXT = CheckResult(None, "expected a message of the agent, got none: the run contains no text of it")


def _text(run: Trajectory, of: str) -> str | None:
    """Return the agent's last message or all messages, without thinking and at most `MAX_CHARS` characters."""
    messages = final_messages(run)
    text = next(messages, "") if of == "last" else "\n".join([*messages][::-1])
    return text[-MAX_CHARS:] or None


def _tokens(declared: LengthReward, run: Trajectory) -> CheckResult:
    """Value the tokens that were sampled, or that an endpoint reported."""
    steps = run.own_steps
    counts = [
        len(step.sampled.token_ids) if step.sampled else step.usage.output_tokens if step.usage else None
        for step in (steps[-1:] if declared.of == "last" else steps)
    ]
    known = [n for n in counts if n is not None]
    if not known or len(known) < len(counts):
        return CheckResult(None, "the run's tokens were not recorded; take unit 'words' or 'characters'")
    return CheckResult(declared.value_of(sum(known)), f"{sum(known):,} tokens.")


def _words(declared: WordsReward, text: str) -> CheckResult:
    """Value the share of words or phrases that occur as whole words, without regard to case."""
    written = f" {' '.join(_WORD.findall(text.casefold()))} "
    found = [word for word in declared.words if f" {' '.join(_WORD.findall(word.casefold()))} " in written]
    share = len(found) / len(declared.words)
    feedback = f"{len(found)} of {len(declared.words)} words occur."
    return CheckResult(1.0 - share if declared.absent else share, feedback)


def _turned(checked: CheckResult, absent: bool) -> CheckResult:
    if not absent or checked.value is None:
        return checked
    return CheckResult(1.0 - checked.value, checked.reason)


def _folded(text: str, ignore_case: bool) -> str:
    return text.casefold() if ignore_case else text


_MOST_BONUS = 0.5


def _shaped_accuracy(run: Trajectory, name: str, declared: LengthPenaltyReward | StepBonusReward) -> Score:
    """Return the accuracy less a penalty, or with a bonus where it is right; unscored where `answer` is."""
    verdict = TextScorer("answer").score(run)
    if verdict.value is None:
        return unscored(run, name, verdict.reason or "")
    accuracy, text = verdict.value, agent_text(run)
    if isinstance(declared, LengthPenaltyReward):
        n = len(text)
        penalty = declared.penalty_weight * max(0, n - declared.max_length) / declared.max_length
        value, weight, about = max(0.0, accuracy - penalty), 1.0, f"{n:,} characters cost {penalty:.3g}."
        shape = Component(name="length", weight=0.0, value=max(0.0, 1.0 - penalty), feedback=f"{n:,} characters.")
    else:
        n = len(set(STEP_MARKS.findall(text)))
        about = f"{n} steps."
        bonus = min(declared.step_bonus * n, _MOST_BONUS) if accuracy > 0 else 0.0
        value, weight = (accuracy + bonus) / (1.0 + _MOST_BONUS), 1 / 1.5
        shape = Component(name="steps", weight=0.5 / 1.5, value=bonus / _MOST_BONUS, feedback=about)
    part = Component(name="accuracy", weight=weight, value=accuracy, feedback=verdict.feedback)
    return scored(run, name, value, f"{verdict.feedback} {about}", (part, shape))
