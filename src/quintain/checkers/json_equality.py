"""Compare the JSON of an answer with the expected JSON.

Objects compare without order, lists with order, integers exactly, and other numbers within a tolerance. Booleans are not
numbers. The JSON comes from the last fenced JSON block of the last message, else from the message itself.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from quintain.checkers.declared import checker_fields
from quintain.records.score import CheckResult
from quintain.records.trajectory import Task

_FENCED = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*[\w+.-]*[ \t]*\n(.*?)^[ \t]*\1[ \t]*$", re.MULTILINE | re.DOTALL)
_FIELDS = ("expected", "answer", "value", "target", "json")
_MOST_STARTS = 200
_TOLERANCE = 1e-9


def check_json(task: Task, messages: Iterable[str]) -> CheckResult:
    """Compare the JSON of the last message with the expected JSON; without a score if the task expects none.

    Args:
        task: With `checker.expected`, and optionally `checker.tolerance` for numbers.
        messages: The agent's messages that submit an answer, newest first.
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
        found = list(stated_json(message))
    except TooDeepError:
        return CheckResult(
            None, "the JSON of the last message is nested too deeply to parse; compare it by a judge or a test"
        )
    for stated in found:
        place = difference(expected, stated, tolerance=tolerance)
        return (
            CheckResult(1.0, "The answer is the expected JSON.")
            if place is None
            else CheckResult(0.0, f"The JSON differs at {place}.")
        )
    return CheckResult(0.0, "The last message contains no readable JSON.")


def difference(expected: Any, stated: Any, *, tolerance: float | None = None) -> str | None:
    """Return the first difference of two JSON values, such as `$.items[2]: 3 in place of 4`; None if they are equal.

    Args:
        expected: Of the task.
        stated: Of the agent.
        tolerance: Difference of two numbers, relative to the larger one, and absolute below 1; None: integers have to be the same,
            and other numbers within 1e-9.
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


def stated_json(message: str) -> Iterator[Any]:
    """Yield at most one JSON value: of the last fenced block, the whole message, or its last object or list."""
    for block in reversed(_FENCED.findall(message)):
        try:
            yield _read(block[1])
            return
        except TooDeepError:
            raise
        except ValueError:
            continue
    try:
        yield _read(message)
        return
    except TooDeepError:
        raise
    except ValueError:
        pass
    yield from _embedded(message)


def _embedded(message: str) -> Iterator[Any]:
    """The last outermost object or list in a text."""
    found: list[Any] = []
    decoder = json.JSONDecoder(object_pairs_hook=_distinct, parse_constant=_refuse, parse_float=_finite)
    place = 0
    for _ in range(_MOST_STARTS):
        start = re.compile(r"[{\[]").search(message, place)
        if start is None:
            break
        try:
            value, place = decoder.raw_decode(message, start.start())
            found = [value]
        except ValueError:
            place = start.end()
        except RecursionError:
            if all(message.count(opening) == message.count(closing) for opening, closing in ("[]", "{}")):
                raise TooDeepError("nested too deep") from None
            place = start.end()
    yield from found


class TooDeepError(ValueError):
    """Possible JSON that is nested too deeply for the parser."""


def _read(text: str) -> Any:
    """Parse JSON strictly."""
    try:
        return json.loads(text, object_pairs_hook=_distinct, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        if all(text.count(opening) == text.count(closing) for opening, closing in ("[]", "{}")):
            raise TooDeepError("nested too deep") from None
        raise ValueError("nested too deep, and not closed") from None


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("duplicate key")
    return fields


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
