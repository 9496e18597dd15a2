"""Dispatch a task's check of an answer by its kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from quintain.checkers.answers import check_answer, expected_answers, uncheckable_answer
from quintain.checkers.declared import TYPES, checker_type
from quintain.checkers.json_equality import check_json
from quintain.checkers.patterns import check_pattern
from quintain.records.score import CheckResult
from quintain.records.trajectory import Task

CHECKS: Mapping[str, Callable[[Task, Iterable[str], str], CheckResult]] = {
    "answer": check_answer,
    "json": lambda task, messages, prompt: check_json(task, messages),
    "regex": lambda task, messages, prompt: check_pattern(task, messages),
}
"""Kind of checker -> check of a text, by task, messages (newest first) and prompt."""


def kind_of_check(task: Task) -> str | None:
    """Return the type of a task's checker, `answer` for a task that only states one; None for neither."""
    return checker_type(task) or ("answer" if expected_answers(task) else None)


def check(task: Task, messages: Iterable[str], prompt: str = "") -> CheckResult:
    """Check an answer by its task's checker (`answer`, `json` or `regex`), or against the task's stated answer.

    The messages that submit an answer come newest first; text that repeats the prompt is not an answer.
    """
    kind = kind_of_check(task)
    if kind is None:
        return CheckResult(None, "the task names no checker and states no answer; record one in task.metadata")
    if kind in CHECKS:
        return CHECKS[kind](task, messages, prompt)
    known = f"known: {', '.join(TYPES)}"
    return CheckResult(
        None, f"a text alone cannot be checked by {kind[:60]!r}; {known}, of which {', '.join(CHECKS)} look at texts"
    )


def uncheckable(task: Task) -> str | None:
    """Return why no text answer to a task can be checked, such as an invalid pattern; None if answers can be checked."""
    if kind_of_check(task) == "answer":
        return uncheckable_answer(task)
    checked = check(task, ["0"])
    return checked.reason if checked.value is None else None
