"""The questions: which there are, and how a task's id alone gives back its warehouse, prompt and answer.

The answer is computed here and never stored in a task, so that no export and no policy can read it there.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from quintain.environments.families import Family, TaskKey
from quintain.environments.inventory.world import (
    CATEGORIES,
    FIELDS,
    NAMES,
    Item,
    Name,
    fill_shelves,
    pick_lookalikes,
    pick_names,
)

ENVIRONMENT_ID = "quintain/inventory"
VERSION = "1"
"""Goes into every task's seed and every suite's hash; raise it when a change alters any task."""

TYPES = ("lookup", "compare", "extreme", "total")
DIFFICULTIES = ("easy", "medium", "hard")
PROMPTS = {
    "lookup": "What is the {field} of the {a}?",
    "compare": "Which has the {direction}er {field}: the {a} or the {b}?",
    "extreme": "Which of the {category} has the {direction}est {field}?",
    "total": "What is the {field} of the {a} and the {b} together?",
}
NUMBERS = 100_000
"""Tasks of each type and difficulty in a split."""

_LOOKALIKES = {"easy": 0, "medium": 1, "hard": 3}
_CATEGORY_SIZE = {"easy": 3, "medium": 4, "hard": 5}
FAMILY = Family("inventory", ENVIRONMENT_ID, VERSION, TYPES, DIFFICULTIES, NUMBERS)


@dataclass(frozen=True)
class Case:
    """What a task's id stands for."""

    prompt: str
    items: tuple[Item, ...]
    answer: int | str


parse_key = FAMILY.parse


def build_case(key: TaskKey) -> Case:
    """The warehouse, prompt and answer of a task; same key, same case."""
    rng = FAMILY.rng(key)
    hard = key.difficulty == "hard"
    if key.type == "extreme":
        return _extreme(rng, key, hard)
    asked = pick_names(rng, key.split, 1 if key.type == "lookup" else 2)
    near = [name for target in asked for name in pick_lookalikes(rng, key.split, target, _LOOKALIKES[key.difficulty])]
    items = fill_shelves(rng, key.split, asked, near)
    # Sums of prices need carrying over two digits: only the hard totals ask for them.
    field = rng.choice([f for f in FIELDS if f != "price" or key.type != "total" or hard])
    direction = rng.choice(["low", "high"]) if hard else "low"
    words = {"field": field, "direction": direction, "a": str(asked[0]), "b": str(asked[-1])}
    chosen = [item for item in items if item.name in asked]
    answer: int | str
    if key.type == "compare":
        answer = _first(chosen, field, direction)
    else:
        answer = sum(item.values[field] for item in chosen)
    return Case(PROMPTS[key.type].format(**words), items, answer)


def _extreme(rng: Random, key: TaskKey, hard: bool) -> Case:
    category = rng.choice(list(CATEGORIES))
    members: list[Name] = rng.sample(
        [name for name in NAMES[key.split] if name.category == category], _CATEGORY_SIZE[key.difficulty]
    )
    items = fill_shelves(rng, key.split, members)
    field, direction = rng.choice(list(FIELDS)), rng.choice(["low", "high"]) if hard else "low"
    prompt = PROMPTS["extreme"].format(category=category, direction=direction, field=field)
    return Case(prompt, items, _first([item for item in items if item.name in members], field, direction))


def _first(items: list[Item], field: str, direction: str) -> str:
    ordered = sorted(items, key=lambda item: item.values[field])
    return str(ordered[0 if direction == "low" else -1].name)
