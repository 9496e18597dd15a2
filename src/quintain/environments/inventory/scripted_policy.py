"""A scripted policy for `quintain/inventory`: it reads the prompt and the observations, and solves every task.

Its runs pre-train the embedded model, and give tests of the environment an upper bound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from functools import partial

from quintain.environments.inventory.tasks import vocabulary
from quintain.environments.scripted_policy import Move, Script, ScriptedPolicy, pattern_of
from quintain.errors import InvalidInput

_NAME = r"\w+ \w+"


def script_of(prompt: str) -> Script:
    """Return the moves that solve a question.

    Raises:
        InvalidInput: it is not of this environment.
    """
    for kind, question in vocabulary().prompts.items():
        if match := re.fullmatch(pattern_of(question, a=_NAME, b=_NAME), prompt):
            return _SCRIPTS[kind](**match.groupdict())
    raise InvalidInput(
        f"expected a question of quintain/inventory, got {prompt[:80]!r}; take tasks from the environment's own splits"
    )


def _lookup(field: str, a: str) -> Script:
    found = yield Move(f"Find the {a}.", "search", {"query": a})
    item_id = _id_of(found, a)
    result = yield Move(f"The {a} {item_id}.", "open", {"item_id": item_id})
    value = int(re.findall(rf"\b{field} (\d+)", result)[0])
    yield Move(f"Its {field} {value}.", "submit", {"answer": value})


def _compared(field: str, a: str, b: str) -> Generator[Move, str, str]:
    """Find two items, and return their comparison by a field."""
    found = yield Move(f"Find the {a}.", "search", {"query": a})
    first = _id_of(found, a)
    found = yield Move(f"The {a} {first}. Find the {b}.", "search", {"query": b})
    second = _id_of(found, b)
    return (yield Move(f"The {b} {second}. Compare.", "compare", {"item_ids": [first, second], "field": field}))


def _compare(direction: str, field: str, a: str, b: str) -> Script:
    result = yield from _compared(field, a, b)
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
    result = yield from _compared(field, a, b)
    x, y = (int(line.split()[-1]) for line in result.splitlines())
    yield Move(f"{x} + {y} = {x + y}.", "submit", {"answer": x + y})


def _id_of(found: str, name: str) -> str:
    return next(line.split()[-1] for line in found.splitlines() if line.startswith(f"{name} "))


_SCRIPTS: Mapping[str, Callable[..., Script]] = {
    "lookup": _lookup,
    "compare": _compare,
    "extreme": _extreme,
    "total": _total,
}

Expert = partial(ScriptedPolicy, script_of)
"""A `Policy` for `quintain/inventory` that solves every task."""
