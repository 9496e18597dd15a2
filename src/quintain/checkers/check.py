"""A task's own check of an answer, whichever kind it names."""

from __future__ import annotations

from collections.abc import Iterable

from quintain.checkers.answers import check_answer, expected_answers, uncheckable_answer
from quintain.checkers.checked import Checked
from quintain.checkers.declared import TYPES, checker_type
from quintain.checkers.json_equality import check_json
from quintain.checkers.patterns import check_pattern
from quintain.records.trajectory import Task


def check(task: Task, messages: Iterable[str], told: str = "") -> Checked:
    """Check an answer as its task says: `answer`, `json` or `regex`; a task that states an answer is checked by it.

    Args:
        task: With `metadata.checker`, or an expected answer in its metadata.
        messages: What the agent said to hand its answer in, the last first.
        told: What it was asked.
    """
    kind = checker_type(task)
    if kind == "answer" or (kind is None and expected_answers(task)):
        return check_answer(task, messages, told)
    if kind == "json":
        return check_json(task, messages)
    if kind == "regex":
        return check_pattern(task, messages)
    if kind is None:
        return Checked(None, "the task names no checker and states no answer; record one in task.metadata")
    known = f"known: {', '.join(TYPES)}"
    return Checked(
        None, f"a text alone cannot be checked by {kind[:60]!r}; {known}, of which answer, json and regex look at texts"
    )


def uncheckable(task: Task) -> str | None:
    """The reason why no answer to a task can be checked by its text, such as a pattern that is not valid; None: one can."""
    kind = checker_type(task)
    if kind == "answer" or (kind is None and expected_answers(task)):
        return uncheckable_answer(task)
    checked = check(task, ["0"])
    return checked.why if checked.value is None else None
