"""Dispatch a task's check of an answer by its kind."""

from __future__ import annotations

from collections.abc import Iterable

from quintain.checkers.answers import check_answer, expected_answers, uncheckable_answer
from quintain.checkers.declared import TYPES, checker_type
from quintain.checkers.json_equality import check_json
from quintain.checkers.patterns import check_pattern
from quintain.records.score import CheckResult
from quintain.records.trajectory import Task


def check(task: Task, messages: Iterable[str], prompt: str = "") -> CheckResult:
    """Check an answer by its task's checker (`answer`, `json` or `regex`), or against the task's stated answer.

    Args:
        task: With `metadata.checker`, or an expected answer in its metadata.
        messages: The agent's messages that submit an answer, newest first.
        prompt: The task's prompt; text that repeats it is not an answer.
    """
    kind = checker_type(task)
    if kind == "answer" or (kind is None and expected_answers(task)):
        return check_answer(task, messages, prompt)
    if kind == "json":
        return check_json(task, messages)
    if kind == "regex":
        return check_pattern(task, messages)
    if kind is None:
        return CheckResult(None, "the task names no checker and states no answer; record one in task.metadata")
    known = f"known: {', '.join(TYPES)}"
    return CheckResult(
        None, f"a text alone cannot be checked by {kind[:60]!r}; {known}, of which answer, json and regex look at texts"
    )


def uncheckable(task: Task) -> str | None:
    """Return why no text answer to a task can be checked, such as an invalid pattern; None if answers can be checked."""
    kind = checker_type(task)
    if kind == "answer" or (kind is None and expected_answers(task)):
        return uncheckable_answer(task)
    checked = check(task, ["0"])
    return checked.reason if checked.value is None else None
