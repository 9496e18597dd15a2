"""A scripted policy for `quintain/inventory`: it reads the prompt and the observations, and solves every task.

Its runs pre-train the embedded model, and give tests of the environment an upper bound.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from functools import partial

from quintain.environments.scripted_policy import Move, Script, ScriptedPolicy
from quintain.errors import InvalidInput

_LOOKUP = re.compile(r"What is the (\w+) of the (\w+ \w+)\?")
_COMPARE = re.compile(r"Which has the (low|high)er (\w+): the (\w+ \w+) or the (\w+ \w+)\?")
_EXTREME = re.compile(r"Which of the (\w+) has the (low|high)est (\w+)\?")
_TOTAL = re.compile(r"What is the (\w+) of the (\w+ \w+) and the (\w+ \w+) together\?")


def script_of(prompt: str) -> Script:
    """Return the moves that solve a question.

    Raises:
        InvalidInput: it is none of this environment.
    """
    if match := _LOOKUP.fullmatch(prompt):
        return _lookup(*match.groups())
    if match := _COMPARE.fullmatch(prompt):
        return _compare(*match.groups())
    if match := _EXTREME.fullmatch(prompt):
        return _extreme(*match.groups())
    if match := _TOTAL.fullmatch(prompt):
        return _total(*match.groups())
    raise InvalidInput(
        f"expected a question of quintain/inventory, got {prompt[:80]!r}; take tasks from the environment's own splits"
    )


def _lookup(field: str, name: str) -> Script:
    found = yield Move(f"Find the {name}.", "search", {"query": name})
    item_id = _id_of(found, name)
    result = yield Move(f"The {name} {item_id}.", "open", {"item_id": item_id})
    value = int(re.findall(rf"\b{field} (\d+)", result)[0])
    yield Move(f"Its {field} {value}.", "submit", {"answer": value})


def _both(a: str, b: str) -> Generator[Move, str, list[str]]:
    """Find two items and return their ids."""
    found = yield Move(f"Find the {a}.", "search", {"query": a})
    first = _id_of(found, a)
    found = yield Move(f"The {a} {first}. Find the {b}.", "search", {"query": b})
    return [first, _id_of(found, b)]


def _compare(direction: str, field: str, a: str, b: str) -> Script:
    ids = yield from _both(a, b)
    result = yield Move(f"The {b} {ids[1]}. Compare.", "compare", {"item_ids": ids, "field": field})
    yield _answer(result, direction)


def _extreme(category: str, direction: str, field: str) -> Script:
    found = yield Move(f"Find the {category}.", "search", {"query": category})
    ids = [line.split()[-1] for line in found.splitlines()]
    result = yield Move("Compare them.", "compare", {"item_ids": ids, "field": field})
    yield _answer(result, direction)


def _answer(result: str, direction: str) -> Move:
    """Return the move that submits the first or the last name of a comparison, which lists the lowest first."""
    place = "first" if direction == "low" else "last"
    line = result.splitlines()[0 if direction == "low" else -1]
    name = line.rsplit(" ", 1)[0]
    return Move(f"The {direction}est is {place}: {name}.", "submit", {"answer": name})


def _total(field: str, a: str, b: str) -> Script:
    ids = yield from _both(a, b)
    result = yield Move(f"The {b} {ids[1]}. Compare.", "compare", {"item_ids": ids, "field": field})
    x, y = (int(line.split()[-1]) for line in result.splitlines())
    yield Move(f"{x} + {y} = {x + y}.", "submit", {"answer": x + y})


def _id_of(found: str, name: str) -> str:
    return next(line.split()[-1] for line in found.splitlines() if line.startswith(f"{name} "))


Expert = partial(ScriptedPolicy, script_of)
"""A `Policy` for `quintain/inventory` that solves every task."""
