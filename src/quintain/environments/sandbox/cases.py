"""Calls of functions and what they must give: made from the functions as they should be, checked against what a project gives.

The project's own process runs the calls and writes down what comes back; the right values never enter it. Code that would
have its own tests believe anything (an object that equals everything, another test runner) can only fail here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from quintain.sandbox.limits import Limits
from quintain.sandbox.sandbox import Workspace

_RUNNER = """
import json, os, sys
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
def answer(module, function, arguments, options):
    try:
        __import__(module)
        return json.dumps({"value": getattr(sys.modules[module], function)(*arguments, **options)})
    except BaseException as error:
        return json.dumps({"error": type(error).__name__})
answers.write("[" + ",".join([answer(*call) for call in json.loads(sys.argv[1])]) + "]")
answers.flush()
"""
_SPARE = 1e-9


class Call(NamedTuple):
    """A call of a function."""

    module: str
    function: str
    arguments: list[Any]
    options: dict[str, Any]

    @property
    def text(self) -> str:
        """As it stands in Python."""
        given = [*map(repr, self.arguments), *(f"{name}={value!r}" for name, value in self.options.items())]
        return f"{self.function}({', '.join(given)})"


class Case(NamedTuple):
    """A call, and what it must give: `{"value": ...}`, or `{"error": name}` of the exception that it must raise."""

    call: Call
    expected: dict[str, Any]

    @property
    def told(self) -> str:
        """As a sentence of a task."""
        return f"`{self.call.text}` {gives(self.expected)}"


def gives(outcome: dict[str, Any]) -> str:
    """What came of a call, in words."""
    return f"raises {outcome['error']}" if "error" in outcome else f"gives `{outcome['value']!r}`"


def outcome_of(source: str, call: Call) -> dict[str, Any]:
    """What one of our own functions gives, carried out here."""
    try:
        value = _function(source, call.function)(*json.loads(json.dumps(call.arguments)), **call.options)
    except Exception as error:  # some must raise, and one with a bug may
        return {"error": type(error).__name__}
    return {"value": json.loads(json.dumps(value))}


@lru_cache(maxsize=512)
def _function(source: str, name: str) -> Callable[..., Any]:
    space: dict[str, Any] = {}
    exec(source, space)  # a text of this package, never of a run
    found: Callable[..., Any] = space[name]
    return found


def count_right(workspace: Workspace, cases: Sequence[Case], limits: Limits) -> int | None:
    """How many of the calls give what they must in a project; None: its process did not answer them.

    Raises:
        Unavailable: the sandbox cannot be started any more.
    """
    calls = json.dumps([case.call for case in cases], separators=(",", ":"))
    ran = workspace.run(["python3", "-c", _RUNNER, calls], limits)
    try:
        answers = json.loads(ran.stdout)
    except (ValueError, RecursionError):
        return None
    if ran.stopped or not isinstance(answers, list) or len(answers) != len(cases):
        return None
    return sum(same(answer, case.expected) for answer, case in zip(answers, cases, strict=True))


def same(given: Any, expected: Any) -> bool:
    """Are two JSON values equal? Numbers by value, truth values only among themselves."""
    if isinstance(expected, bool) or isinstance(given, bool):
        return given is expected
    if isinstance(expected, int | float) and isinstance(given, int | float):
        return math.isclose(given, expected, rel_tol=_SPARE, abs_tol=_SPARE)
    if isinstance(expected, list) and isinstance(given, list):
        return len(given) == len(expected) and all(map(same, given, expected))
    if isinstance(expected, dict) and isinstance(given, dict):
        return given.keys() == expected.keys() and all(same(given[key], expected[key]) for key in expected)
    return type(given) is type(expected) and bool(given == expected)
