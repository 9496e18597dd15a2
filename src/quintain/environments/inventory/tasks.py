"""Inventory questions: the warehouse, prompt and answer of a task follow from its id.

A task does not contain its answer, so that no export and no policy can read it there.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from quintain.environments.families import Family, TaskKey
from quintain.environments.inventory.world import (
    FIELDS,
    Item,
    Name,
    fill_shelves,
    names,
    pick_lookalikes,
    pick_names,
    vocabulary,
)

ENVIRONMENT_ID = "quintain/inventory"
VERSION = "1"
"""Part of every task's seed and every suite's hash; raise it when a change alters a task."""


_LOOKALIKES = {"easy": 0, "medium": 1, "hard": 3}
_CATEGORY_SIZE = {"easy": 3, "medium": 4, "hard": 5}
FAMILY = Family("inventory", ENVIRONMENT_ID, VERSION, ("lookup", "compare", "extreme", "total"))


@dataclass(frozen=True)
class Case:
    """Contents of a task."""

    prompt: str
    items: tuple[Item, ...]
    answer: int | str


def build_case(key: TaskKey) -> Case:
    """Return warehouse, prompt and answer of a task; the same key gives the same case."""
    rng = FAMILY.rng(key)
    hard = key.difficulty == "hard"
    if key.type == "extreme":
        return _extreme(rng, key, hard)
    asked = pick_names(rng, key.split, 1 if key.type == "lookup" else 2)
    near = [name for target in asked for name in pick_lookalikes(rng, key.split, target, _LOOKALIKES[key.difficulty])]
    items = fill_shelves(rng, key.split, asked, near)
    # Sums of prices need carrying over two digits: only hard totals use them.
    field = rng.choice([f for f in FIELDS if f != "price" or key.type != "total" or hard])
    direction = rng.choice(["low", "high"]) if hard else "low"
    words = {"field": field, "direction": direction, "a": str(asked[0]), "b": str(asked[-1])}
    chosen = [item for item in items if item.name in asked]
    answer: int | str
    if key.type == "compare":
        answer = _first(chosen, field, direction)
    else:
        answer = sum(item.values[field] for item in chosen)
    return Case(vocabulary().prompts[key.type].format(**words), items, answer)


def _extreme(rng: Random, key: TaskKey, hard: bool) -> Case:
    category = rng.choice(list(vocabulary().categories))
    members: list[Name] = rng.sample(
        [name for name in names(key.split) if name.category == category], _CATEGORY_SIZE[key.difficulty]
    )
    items = fill_shelves(rng, key.split, members)
    field, direction = rng.choice(list(FIELDS)), rng.choice(["low", "high"]) if hard else "low"
    prompt = vocabulary().prompts["extreme"].format(category=category, direction=direction, field=field)
    return Case(prompt, items, _first([item for item in items if item.name in members], field, direction))


def _first(items: list[Item], field: str, direction: str) -> str:
    ordered = sorted(items, key=lambda item: item.values[field])
    return str(ordered[0 if direction == "low" else -1].name)
