"""Inventory questions: the warehouse, prompt and answer of a task follow from its id.

A task does not contain its answer, so that no export and no policy can read it there. A name is an adjective and a noun. The pairs are
assigned to the splits in a Latin pattern, so that every word occurs in both splits and no pair does: the items of a held-out question
occur in no training task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import NamedTuple

from quintain.environments.data_files import read_data
from quintain.environments.tasks.families import Family, TaskKey

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


FIELDS: dict[str, range] = {"price": range(10, 100), "stock": range(1, 13), "weight": range(1, 13)}
"""Field -> its possible values, at least as many as a warehouse has items."""

OTHERS = 4
"""Items of a warehouse that have nothing to do with the question."""


class Vocabulary(NamedTuple):
    """Words of the warehouse, and its questions."""

    prompts: dict[str, str]
    categories: dict[str, tuple[str, ...]]
    adjectives: tuple[str, ...]
    shelf_codes: tuple[str, ...]
    """Item ids, assigned anew in every warehouse."""


@cache
def vocabulary() -> Vocabulary:
    """Return the words of the warehouse."""
    return read_data("inventory/data/warehouse.yaml", Vocabulary)


@dataclass(frozen=True)
class Name:
    """Name of an item, and the category of its noun."""

    adjective: str
    noun: str
    category: str

    def __str__(self) -> str:
        return f"{self.adjective} {self.noun}"

    @property
    def words(self) -> frozenset[str]:
        """Words by which a search finds it."""
        return frozenset((self.adjective, self.noun, self.category))


@dataclass(frozen=True)
class Item:
    """One item on the shelves."""

    id: str
    name: Name
    values: dict[str, int]

    @property
    def line(self) -> str:
        """Its line in the results of a search."""
        return f"{self.name} {self.id}"


@cache
def names(split: str) -> tuple[Name, ...]:
    """Return the names of a split."""
    nouns = [(noun, category) for category, nouns in vocabulary().categories.items() for noun in nouns]
    return tuple(
        Name(adjective, noun, category)
        for i, adjective in enumerate(vocabulary().adjectives)
        for j, (noun, category) in enumerate(nouns)
        if ((i + j) % 5 == 0) == (split == "held_out")
    )


def pick_names(rng: Random, split: str, n: int) -> list[Name]:
    """Draw `n` names without a common word, so that no search for one of them finds another."""
    chosen: list[Name] = []
    while len(chosen) < n:
        name = rng.choice(names(split))
        if all(name.words.isdisjoint(other.words) for other in chosen):
            chosen.append(name)
    return chosen


def pick_lookalikes(rng: Random, split: str, name: Name, n: int) -> list[Name]:
    """Draw `n` names with the same adjective or noun, so that a search for `name` finds them too."""
    near = [
        other
        for other in names(split)
        if other != name and (other.noun == name.noun or other.adjective == name.adjective)
    ]
    return rng.sample(near, n)


def fill_shelves(rng: Random, split: str, asked: Sequence[Name], near: Sequence[Name] = ()) -> tuple[Item, ...]:
    """Draw a warehouse: the items asked for, their lookalikes, and `OTHERS` that no search for the former finds.

    No two items have the same value in a field, so that every comparison has one answer.
    """
    # Two items may have the same lookalike, and one may be the lookalike of the other.
    chosen = list(dict.fromkeys([*asked, *near]))
    search_words = frozenset().union(*(name.words for name in asked))
    others = [name for name in names(split) if name.words.isdisjoint(search_words) and name not in chosen]
    chosen += rng.sample(others, OTHERS)
    rng.shuffle(chosen)
    ids = rng.sample(vocabulary().shelf_codes, len(chosen))
    columns = {field: rng.sample(values, len(chosen)) for field, values in FIELDS.items()}
    return tuple(
        Item(ids[i], name, {field: column[i] for field, column in columns.items()}) for i, name in enumerate(chosen)
    )
