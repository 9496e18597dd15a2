"""When an evolution goes on to the next level, and when it has seen enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quintain.records.evolve import LevelsConfig


@dataclass
class Ladder:
    """The environments to explore in, easy to hard. It ends: no level is held longer than its bound."""

    levels: Sequence[str]
    config: LevelsConfig | None
    """None: a single level."""
    level: int = 0
    rounds: int = 0
    """On this level."""

    @property
    def environment(self) -> str:
        """Where the next round explores."""
        return self.levels[self.level]

    @property
    def is_last(self) -> bool:
        """Is there no harder level?"""
        return self.level == len(self.levels) - 1

    def climb(self, success: float | None) -> str | None:
        """Note a round, and go on to the next level where it was solved or held long enough.

        Args:
            success: Of the round's exploring; None: not known.

        Returns:
            What to tell where a level ends unsolved.
        """
        self.rounds += 1
        if self.config is None or self.is_last:
            return None
        solved = success is not None and success >= self.config.advance_at
        if not solved and self.rounds < self.config.max_iterations:
            return None
        left = self.environment
        self.level, self.rounds = self.level + 1, 0
        if solved:
            return None
        found = "unknown" if success is None else f"{success:.0%}"
        return (
            f"success in {left} is {found} after {self.config.max_iterations} rounds, below {self.config.advance_at:.0%}; it goes on "
            f"to {self.environment}"
        )


@dataclass
class Patience:
    """Counts rounds in a row without a sure gain."""

    most: int | None
    """So many end it; None: none do."""
    idle: int = 0

    def spend(self, decision: str) -> bool:
        """Note a round's decision; true where patience is used up."""
        self.idle = 0 if decision == "better" else self.idle + 1
        return self.most is not None and self.idle >= self.most
