"""Curriculum of an evolution: when it advances to the next level, and when it stops early."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quintain.records.evolve import LevelsConfig


@dataclass
class Curriculum:
    """Environments ordered by difficulty. The number of rounds per level is bounded."""

    levels: Sequence[str]
    config: LevelsConfig | None
    """None for a single level."""
    level: int = 0
    rounds: int = 0
    """Number of rounds on this level."""

    @property
    def environment(self) -> str:
        """Environment of the next round."""
        return self.levels[self.level]

    @property
    def is_last(self) -> bool:
        """Whether this is the hardest level."""
        return self.level == len(self.levels) - 1

    def advance(self, success: float | None) -> str | None:
        """Record a round, and advance to the next level if it was solved or its bound was reached.

        Args:
            success: Success rate of the round's exploration, or None if unknown.

        Returns:
            A warning if an unsolved level ends.
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
            f"success in {left} is {found} after {self.config.max_iterations} rounds, below {self.config.advance_at:.0%}; "
            f"continuing with {self.environment}"
        )


@dataclass
class Patience:
    """Counts consecutive rounds without a significant gain."""

    limit: int | None
    """Number of such rounds that ends the evolution, or None."""
    idle: int = 0

    def spend(self, decision: str) -> bool:
        """Record a round's decision. Return whether patience is exhausted."""
        self.idle = 0 if decision == "better" else self.idle + 1
        return self.limit is not None and self.idle >= self.limit
