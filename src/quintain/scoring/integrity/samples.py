"""Fixed-size samples and counts of runs; the audit keeps no text but short quotes."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from quintain.records.seeds import stable_seed

T = TypeVar("T")


@dataclass
class Reservoir(Generic[T]):
    """A uniform sample of a stream (Vitter 1985, algorithm R), deterministic for the stream."""

    size: int
    items: list[T] = field(default_factory=list)
    n: int = 0
    _chance: random.Random = field(default_factory=lambda: random.Random(stable_seed("audit")))

    def add(self, item: T) -> None:
        """Add an item, perhaps in place of another."""
        self.n += 1
        if len(self.items) < self.size:
            self.items.append(item)
        elif (place := self._chance.randrange(self.n)) < self.size:
            self.items[place] = item


class Sign(NamedTuple):
    """Evidence in a run."""

    evidence: str
    sure: bool = True
    """False for what may as well be honest work."""


class FlaggedRun(NamedTuple):
    """A run with evidence of its own."""

    id: str
    rewards: dict[str, float]
    """Source of the reward -> reward."""
    evidence: str


class Point(NamedTuple):
    """A rewarded run as a point."""

    id: str
    task: bytes
    reward: float
    length: int
    padding: float
    correct: float | None
    """The best part of the reward that is named after correctness; else the known outcome."""
    outcome: float | None
    parts: dict[str, float]
    """Other named parts that were recorded with the run, the first few."""
