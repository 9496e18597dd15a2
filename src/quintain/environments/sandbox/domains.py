"""What generated projects are about: each split has domains of its own, and no word names two things."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from string import Template
from typing import Any


@dataclass(frozen=True)
class Domain:
    """A package and its words."""

    package: str
    thing: str
    things: str
    count: str
    """A whole number that each thing has."""
    label: str
    """What things are grouped by."""

    def fill(self, text: str) -> str:
        """A template with the words of this domain."""
        return Template(text).substitute(vars(self))


DOMAINS: dict[str, tuple[Domain, ...]] = {
    "train": (
        Domain("harbor", "crate", "crates", "weight", "dock"),
        Domain("library", "book", "books", "pages", "shelf"),
        Domain("cinema", "film", "films", "minutes", "genre"),
        Domain("garden", "plant", "plants", "height", "plot"),
        Domain("bakery", "cake", "cakes", "grams", "tray"),
        Domain("railway", "wagon", "wagons", "tonnes", "track"),
        Domain("zoo", "animal", "animals", "age", "enclosure"),
        Domain("museum", "painting", "paintings", "width", "room"),
    ),
    "held_out": (
        Domain("orchard", "basket", "baskets", "apples", "row"),
        Domain("clinic", "visit", "visits", "duration", "ward"),
        Domain("studio", "song", "songs", "seconds", "album"),
        Domain("hotel", "booking", "bookings", "nights", "floor"),
    ),
}

_NAMES = [
    f"{first} {second}"
    for first in ("red", "blue", "old", "new", "big", "dry", "north", "second")
    for second in ("star", "river", "stone", "leaf", "cloud", "hill", "lamp", "fox")
]
LABELS = ("A", "B", "C")


def draw_things(rng: Random, domain: Domain, least: int = 2, most: int = 6) -> list[dict[str, Any]]:
    """Some things with names of their own; values are small, so that some are equal."""
    names = rng.sample(_NAMES, rng.randint(least, most))
    return [
        {"name": name, domain.label: rng.choice(LABELS), domain.count: rng.choice((3, 5, 8, 12, 20, 31))}
        for name in names
    ]
