"""Compare the last stated answer of an agent with the expected answers.

The score is 1 for an equal answer, and 0 for another answer, a list of answers, or none. There is no score without an expected
answer, for prose, for a sentence that contains the expected answer among others, and for a formula whose equality is undecided.
Doubt, negation and corrections in words are not read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from quintain.checkers.statements import last_numbers, last_statement
from quintain.checkers.texts import boxes, plain, without_open_box
from quintain.checkers.values import compare, expected_number, words
from quintain.next_step import Hint, call
from quintain.records.score import CheckResult
from quintain.records.trajectory import Task
from quintain.records.wording import clip

_CHECKER_FIELDS = ("answer", "answers", "expected", "value", "target")
_TASK_FIELDS = (
    "answer",
    "answers",
    "ground_truth",
    "expected",
    "expected_answer",
    "target",
    "final_answer",
    "solution",
)
_PROSE_WORDS, _PROSE_CHARS = 6, 80
_MESSAGES, _MESSAGE_CHARS = 20, 20_000
_MOST = 1000
_NO_ANSWER = "the task states no expected answer; record it as task.metadata.answer (or `answers`, or in `checker`)"
_JUDGE = Hint("use a judge (", call("get_judging_batch"), ")")
_PROSE = Hint("the expected answer is prose, which comparing words cannot judge; ", _JUDGE)
_SPACES = re.compile(r"[ \t]{20,}")


def check_answer(task: Task, messages: Iterable[str], prompt: str = "") -> CheckResult:
    """Compare the stated answer with the expected ones by `values.compare`, numbers within `checker.tolerance`.

    The messages that submit an answer come newest first; an answer that only repeats the prompt does not count.
    """
    expected, tolerance = expected_answers(task), _tolerance(task)
    if not expected or isinstance(tolerance, str):
        return CheckResult(None, tolerance if expected and isinstance(tolerance, str) else _NO_ANSWER)
    recent = [without_open_box(_SPACES.sub(" ", text)[-_MESSAGE_CHARS:]) for text in islice(messages, _MESSAGES)]
    if not recent:
        return CheckResult(
            None,
            "expected a message of the agent, got none: the run contains no text of it and no call that submits an answer",
        )
    numeric = any(_is_number(answer) for answer in expected)
    stated = None
    verdicts: list[bool | None] = []
    for text in _stated(recent, prompt, numeric=numeric):
        stated = text if stated is None else stated
        verdicts += [compare(answer, text, tolerance=tolerance) for answer in expected]
        if True in verdicts:
            return CheckResult(1.0, f"The stated answer {clip(text)!r} is the expected one.")
    if all(_is_prose(answer) for answer in expected):
        return CheckResult(None, _PROSE)
    if stated is None:
        return CheckResult(0.0, "No answer is stated.")
    if None in verdicts:
        reason = f"the stated answer {clip(stated)!r} may equal the expected {clip(expected[0])!r}, which only a reader can decide"
        return CheckResult(None, Hint(f"{reason}; ", _JUDGE))
    return CheckResult(0.0, f"The stated answer is {clip(stated)!r}; expected {clip(' or '.join(expected[:3]))!r}.")


def states_number(text: str, prompt: str = "") -> bool:
    """Return whether a message states something to compare with a number: an explicit answer, or any number at its end."""
    shown = without_open_box(_SPACES.sub(" ", text)[-_MESSAGE_CHARS:])
    return last_statement(shown, prompt) is not None or last_numbers(plain(shown), plain(prompt)) is not None


def uncheckable_answer(task: Task) -> str | None:
    """Return why no answer can be compared with the expected ones; None if answers can be compared."""
    expected, tolerance = expected_answers(task), _tolerance(task)
    if not expected:
        return _NO_ANSWER
    if isinstance(tolerance, str):
        return tolerance
    return _PROSE if all(_is_prose(answer) for answer in expected) else None


def expected_answer(task: Task) -> str | None:
    """Return the first expected answer of a task as text; None without one."""
    return next(iter(expected_answers(task)), None)


def expected_answers(task: Task) -> tuple[str, ...]:
    """Return all accepted answers of a task, from the fields that importers and task files use."""
    metadata = task.metadata
    checker = metadata.get("checker")
    places: list[tuple[Mapping[str, Any], tuple[str, ...]]] = [(metadata, _TASK_FIELDS)]
    if isinstance(checker, Mapping):
        places.insert(0, (checker, _CHECKER_FIELDS))
    if isinstance(info := metadata.get("info"), Mapping):
        places.append((info, _TASK_FIELDS))
    for place, names in places:
        for name in names:
            if found := tuple(dict.fromkeys(_answers(place.get(name), solution=name == "solution"))):
                return found
    return ()


def _answers(value: Any, *, solution: bool = False) -> Iterator[str]:
    if isinstance(value, list | tuple):
        for item in value[:_MOST]:
            if not isinstance(item, list | tuple):
                yield from _answers(item)
    elif isinstance(value, bool):
        yield str(value)
    elif isinstance(value, int):
        if value.bit_length() <= 1200:
            yield str(value)
    elif isinstance(value, float):
        if math.isfinite(value):
            yield str(value)
    elif isinstance(value, str) and value.strip():
        final = _final(value)
        if final and not (solution and final == value.strip() and len(value.split()) > _PROSE_WORDS):
            yield final


def _final(text: str) -> str:
    """Return the final answer of a worked solution, after `####` or in the last box; else the whole text."""
    _, marked, last = text.rpartition("####")
    if marked and last.strip():
        return last.strip()
    boxed = [inside for _, _, inside in boxes(text)]
    return (boxed[-1] if boxed else text).strip()


def _stated(messages: list[str], prompt: str, *, numeric: bool) -> Iterator[str]:
    """Yield the candidates for the stated answer: the last explicit statement, else the end of the last message.

    There is more than one candidate only if one statement can be delimited in several ways.
    """
    last = messages[0]
    if statement := last_statement(last, prompt):
        yield statement.clause
        if not numeric and statement.line != statement.clause:
            yield statement.line
        return
    if numeric:
        if (piece := last_numbers(plain(last), plain(prompt))) is not None:
            yield piece
            return
    else:
        lines = [line.strip() for line in last.splitlines() if line.strip()]
        yield from dict.fromkeys((lines[-1], last, *_marked(lines[-1])))
    for message in messages[1:]:
        if statement := last_statement(message, prompt):
            yield statement.clause
            return


def _marked(line: str) -> list[str]:
    """Return the only part of a line in bold or code; nothing if there are several."""
    marked = re.findall(r"\*\*([^*]{1,200})\*\*|`([^`]{1,200})`", line)
    return ["".join(marked[0])] if len(marked) == 1 else []


def _is_number(answer: str) -> bool:
    return expected_number(plain(answer).strip()) is not None


def _is_prose(answer: str) -> bool:
    if _is_number(answer) or re.match(r"^[\[({]", answer):
        return False
    n = len(words(answer).split())
    return n > _PROSE_WORDS or (n > 1 and len(answer) > _PROSE_CHARS)


def _tolerance(task: Task) -> float | str:
    """Return the allowed absolute difference, or the error of an invalid one."""
    checker = task.metadata.get("checker")
    value = checker.get("tolerance", 0.0) if isinstance(checker, Mapping) else 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return f"expected checker.tolerance as a number of at least 0, got {value!r:.60}; correct it in the task"
    return float(value)
