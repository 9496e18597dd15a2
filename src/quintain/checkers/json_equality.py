"""Compare the JSON of an answer with the expected JSON.

Objects compare without order, lists with order, integers exactly, and other numbers within a tolerance. Booleans are not
numbers. The JSON comes from the last fenced JSON block of the last message, else from the message itself.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from quintain.checkers.declared import checker_fields
from quintain.records.documents import distinct
from quintain.records.score import CheckResult
from quintain.records.trajectory import Task

_FENCED = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*[\w+.-]*[ \t]*\n(.*?)^[ \t]*\1[ \t]*$", re.MULTILINE | re.DOTALL)
_FIELDS = ("expected", "answer", "value", "target", "json")
_MOST_STARTS = 200
_TOLERANCE = 1e-9


def check_json(task: Task, messages: Iterable[str]) -> CheckResult:
    """Compare the JSON of the last message with the expected JSON; without a score if the task expects none.

    The messages come newest first; numbers are equal within `checker.tolerance`, see `difference`.
    """
    try:
        expected = _expected(task)
        tolerance = _tolerance(task)
    except ValueError as error:
        return CheckResult(None, str(error))
    message = next(iter(messages), None)
    if message is None:
        return CheckResult(None, "expected a message of the agent, got none: the run contains no text of it")
    try:
        place = difference(expected, stated_json(message), tolerance=tolerance)
    except TooDeepError:
        return CheckResult(
            None, "the JSON of the last message is nested too deeply to parse; compare it by a judge or a test"
        )
    except ValueError as error:
        return CheckResult(0.0, str(error))
    if place is None:
        return CheckResult(1.0, "The answer is the expected JSON.")
    return CheckResult(0.0, f"The JSON differs at {place}.")


def difference(expected: Any, stated: Any, *, tolerance: float | None = None) -> str | None:
    """Return the first difference of two JSON values, such as `$.items[2]: 3 in place of 4`; None if they are equal.

    The tolerance of two numbers is relative to the larger one, and absolute below 1; without one, integers have to be the same, and
    other numbers within 1e-9.
    """
    stack = [("$", expected, stated)]
    while stack:
        path, left, right = stack.pop()
        if isinstance(left, dict) and isinstance(right, dict):
            if missing := sorted(left.keys() - right.keys()):
                return f"{path[:100]}: no {missing[0][:60]!r}"
            if extra := sorted(right.keys() - left.keys()):
                return f"{path[:100]}: {extra[0][:60]!r} is not expected"
            stack.extend((f"{path}.{key}"[:200], left[key], right[key]) for key in left)
        elif isinstance(left, list) and isinstance(right, list):
            if len(left) != len(right):
                return f"{path[:100]}: {len(right)} items in place of {len(left)}"
            stack.extend((f"{path}[{i}]"[:200], a, b) for i, (a, b) in enumerate(zip(left, right, strict=True)))
        elif not _alike(left, right, tolerance):
            return f"{path[:100]}: {_shown(right)} in place of {_shown(left)}"
    return None


def _alike(left: Any, right: Any, tolerance: float | None) -> bool:
    numbers = [isinstance(value, int | float) and not isinstance(value, bool) for value in (left, right)]
    if not all(numbers):
        return type(left) is type(right) and bool(left == right)
    if left == right or not all(isinstance(value, int) or math.isfinite(value) for value in (left, right)):
        return bool(left == right)
    if tolerance is None and all(isinstance(value, int) or value.is_integer() for value in (left, right)):
        return False
    allowed = _TOLERANCE if tolerance is None else tolerance
    try:
        return bool(abs(left - right) <= allowed * max(1.0, abs(left), abs(right)))
    except OverflowError:  # integers beyond floats
        return False


def _shown(value: Any) -> str:
    try:
        return json.dumps(value)[:60]
    except (ValueError, RecursionError):
        return type(value).__name__


def _expected(task: Task) -> Any:
    fields: Mapping[str, Any] = checker_fields(task)
    name = next((name for name in _FIELDS if name in fields), None)
    value = fields[name] if name else task.metadata.get("answer")
    if value is None and name is None:
        raise ValueError(
            "the task states no expected JSON; record it as task.metadata.checker = {'type': 'json', 'expected': ...}"
        )
    if isinstance(value, str):
        try:
            return _read(value)
        except TooDeepError:
            raise ValueError("the expected JSON is nested too deeply to parse") from None
        except ValueError:
            return value  # a text is JSON too
    return value


def _tolerance(task: Task) -> float | None:
    value = checker_fields(task).get("tolerance")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(
            f"expected checker.tolerance as a number of at least 0, got {value!r:.60}; correct it in the task"
        )
    return float(value)


def stated_json(message: str) -> Any:
    """Return one JSON value: of the last fenced block, the whole message, or its last object or list.

    Raises:
        ValueError: The message has no readable JSON; as `TooDeepError` what may be some, but is nested too deeply.
    """
    for text in (*(block[1] for block in reversed(_FENCED.findall(message))), message):
        try:
            return _read(text)
        except TooDeepError:
            raise
        except ValueError:
            continue
    return _embedded(message)


def _embedded(message: str) -> Any:
    """The last outermost object or list in a text."""
    found: list[Any] = []
    place = 0
    for _ in range(_MOST_STARTS):
        start = re.compile(r"[{\[]").search(message, place)
        if start is None:
            break
        try:
            value, place = _DECODER.raw_decode(message, start.start())
            found = [value]
        except ValueError:
            place = start.end()
        except RecursionError:
            if all(message.count(opening) == message.count(closing) for opening, closing in ("[]", "{}")):
                raise TooDeepError("nested too deep") from None
            place = start.end()
    if not found:
        raise ValueError("The last message contains no readable JSON.")
    return found[0]


class TooDeepError(ValueError):
    """Possible JSON that is nested too deeply for the parser."""


def _read(text: str) -> Any:
    """Parse JSON strictly."""
    try:
        return _DECODER.decode(text)
    except RecursionError:
        if all(text.count(opening) == text.count(closing) for opening, closing in ("[]", "{}")):
            raise TooDeepError("nested too deep") from None
        raise ValueError("nested too deep, and not closed") from None


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=distinct, parse_constant=_refuse, parse_float=_finite)
