"""Was the task done? By the answer that was handed in, by a question to the server, or by the calls that were made.

{"type": "answer", "answer": 42}                                             also `json` and `regex`, as everywhere
{"type": "state", "tool": "read_note", "args": {"id": 1}, "contains": "milk"}      or `expect`, `regex`, `json`
{"type": "calls", "expect": [{"tool": "add", "args": {"a": 1}}], "order": true}    other arguments may be anything
{"type": "all", "checkers": [...]}                                                 every one of them must hold
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from quintain.checkers.check import check as check_text
from quintain.checkers.check_result import CheckResult
from quintain.checkers.declared import checker_type
from quintain.checkers.json_equality import difference
from quintain.checkers.patterns import check_pattern
from quintain.checkers.values import same
from quintain.environments.mcp_server.answer import Answer
from quintain.environments.servers import Call
from quintain.errors import InvalidInput
from quintain.records.record import Record, clip, explain
from quintain.records.trajectory import Task


class AnswerCheck(Record):
    """The answer that the agent hands in, checked as `quintain.checkers` does it."""

    type: Literal["answer", "json", "regex"]
    answer: Any = None
    answers: tuple[str | int | float, ...] | None = None
    expected: Any = None
    tolerance: float | None = Field(default=None, ge=0)
    pattern: str | None = None
    flags: str = ""
    full: bool = False

    @model_validator(mode="after")
    def _expects_something(self) -> Self:
        if self.type == "regex" and not self.pattern:
            raise ValueError("a regex checker needs a `pattern`")
        if self.type != "regex" and self.answer is None and self.expected is None and not self.answers:
            raise ValueError(f"a checker of the type {self.type!r} needs an `answer`")
        return self


class StateCheck(Record):
    """What the server answers to a question after the episode's end; exactly one expectation."""

    type: Literal["state"]
    tool: str = Field(min_length=1)
    args: dict[str, Any] = Field(default_factory=dict)
    expect: str | int | float | None = Field(default=None, description="All of the text, numbers by value.")
    contains: str | None = None
    regex: str | None = None
    json_value: Any = Field(default=None, alias="json", description="The structured content, or the text as JSON.")

    @model_validator(mode="after")
    def _expects_one_thing(self) -> Self:
        if len(self.model_fields_set & {"expect", "contains", "regex", "json_value"}) != 1:
            raise ValueError("a state checker needs one of `expect`, `contains`, `regex`, `json`")
        return self


class CallsCheck(Record):
    """Calls that the agent must have made with success; their arguments hold at least those named here."""

    type: Literal["calls"]
    expect: tuple[Call, ...] = Field(min_length=1, max_length=100)
    order: bool = False


Check = Annotated[AnswerCheck | StateCheck | CallsCheck, Field(discriminator="type")]
_TEXTS = ("answer", "json", "regex")
_BARE = ("answer", "answers", "expected", "pattern")
_CHECKS: TypeAdapter[tuple[Check, ...]] = TypeAdapter(tuple[Check, ...])


class Verdict(NamedTuple):
    """What the checks of a task found together."""

    value: float | None
    """1: all hold; 0: one does not; None: there are none, or one of them cannot say."""
    reasons: tuple[str, ...]


def read_checks(metadata: Mapping[str, Any], where: str = "checker") -> tuple[Check, ...]:
    """The checks of a task: `checker`, else its `answer`; empty where it has none.

    Raises:
        InvalidInput: names the checker and what is wrong with it.
    """
    given = metadata.get("checker")
    if isinstance(given, Mapping) and given.get("type") == "all":
        given = given.get("checkers")
    if not isinstance(given, list | tuple):
        given = [] if given is None and metadata.get("answer") is None else [_of_text(metadata) or given]
    try:
        return _CHECKS.validate_python(tuple(given))
    except ValidationError as error:
        raise InvalidInput(explain(error, where), code="bad_checker") from None


def _of_text(metadata: Mapping[str, Any]) -> dict[str, Any] | None:
    """A checker of the answer in its full form: task files may name it by a synonym, by a bare word, or give the answer alone."""
    kind = checker_type(Task(metadata=dict(metadata))) or "answer"
    if kind not in _TEXTS:
        return None
    given = metadata.get("checker")
    fields = given if isinstance(given, Mapping) else {name: metadata[name] for name in _BARE if name in metadata}
    return {**fields, "type": kind}


def needs_answer(checks: Sequence[Check]) -> bool:
    """Must the agent hand in an answer?"""
    return any(isinstance(check, AnswerCheck) for check in checks)


def judge(checks: Sequence[Check], answer: str | None, calls: Sequence[Call], ask: Callable[[Call], Answer]) -> Verdict:
    """Look at what an agent did.

    Args:
        checks: Of the task.
        answer: What was handed in; None: nothing.
        calls: Those that the server carried out without an error, in order.
        ask: Asks the server a question.
    """
    found = [_look(check, answer, calls, ask) for check in checks]
    values = [checked.value for checked in found]
    value = None if not values else 0.0 if any(v is not None and v < 1 for v in values) else 1.0
    if value == 1.0 and None in values:
        value = None
    return Verdict(value, tuple(checked.reason for checked in found))


def _look(check: Check, answer: str | None, calls: Sequence[Call], ask: Callable[[Call], Answer]) -> CheckResult:
    if isinstance(check, AnswerCheck):
        if answer is None:
            return CheckResult(0.0, "No answer was handed in.")
        return check_text(Task(metadata={"checker": check.model_dump(exclude_none=True)}), [answer])
    if isinstance(check, StateCheck):
        seen = ask(Call(tool=check.tool, args=check.args))
        if seen.is_error:
            return CheckResult(0.0, f"{check.tool} says: {clip(seen.text)}")
        return _compared(check, seen)
    missing = _missing(check, calls)
    if missing is None:
        return CheckResult(1.0, "The expected calls were made.")
    return CheckResult(
        0.0, f"The call {missing.tool}({clip(json.dumps(missing.args))}) was not made{' in order' * check.order}."
    )


def _compared(check: StateCheck, seen: Answer) -> CheckResult:
    if check.expect is not None:
        held = same(str(check.expect), seen.text) or str(check.expect).strip() == seen.text.strip()
    elif check.contains is not None:
        held = check.contains in seen.text
    elif check.regex is not None:
        return check_pattern(Task(metadata={"checker": {"type": "regex", "pattern": check.regex}}), [seen.text])
    else:
        place = difference(check.json_value, seen.value)
        return (
            CheckResult(1.0, "The state is the expected one.")
            if place is None
            else CheckResult(0.0, f"The state differs at {place}.")
        )
    return CheckResult(float(held), f"{check.tool} says: {clip(seen.text)}")


def _missing(check: CallsCheck, calls: Sequence[Call]) -> Call | None:
    """The first expected call that no call of the agent can stand for, each of which stands for one; None: there is none."""
    fits = [[place for place, made in enumerate(calls) if _meets(made, wanted)] for wanted in check.expect]
    if check.order:
        last = -1
        for wanted, places in zip(check.expect, fits, strict=True):
            following = [place for place in places if place > last]
            if not following:
                return wanted
            last = following[0]
        return None
    taken: dict[int, int] = {}  # place -> which expected call it stands for: a matching, grown by augmenting paths
    for i, wanted in enumerate(check.expect):
        if not _placed(i, fits, taken, set()):
            return wanted
    return None


def _placed(i: int, fits: Sequence[Sequence[int]], taken: dict[int, int], tried: set[int]) -> bool:
    for place in fits[i]:
        if place not in tried:
            tried.add(place)
            if place not in taken or _placed(taken[place], fits, taken, tried):
                taken[place] = i
                return True
    return False


def _meets(made: Call, wanted: Call) -> bool:
    """Is it a call of the same tool that has all the wanted arguments, deep inside too?"""
    return made.tool == wanted.tool and _within(wanted.args, made.args)


def _within(wanted: Any, given: Any) -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(given, Mapping) and all(key in given and _within(wanted[key], given[key]) for key in wanted)
    return difference(wanted, given) is None
