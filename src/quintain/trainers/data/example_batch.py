"""Examples that are being made, and counts of what gives none."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from quintain.trainers.data.streams import Example


@dataclass
class ExampleBatch:
    """Examples, and counts of what was left out."""

    examples: list[Example] = field(default_factory=list)
    rewards: list[float | None] = field(default_factory=list)
    """Reward of each example's run; None if unknown, or without a single run."""
    dropped: Counter[str] = field(default_factory=Counter)
    truncated_turns: int = 0
    left_out_members: Counter[str] = field(default_factory=Counter)
    """Runs of groups that could not be rendered, by reason; their groups stay."""
    left_out_calls: Counter[str] = field(default_factory=Counter)
    """Calls from which a retriever cannot learn, by reason."""
    unweighted: Counter[str] = field(default_factory=Counter)
    """Runs whose steps all weigh alike although step weights are on, by reason."""

    def add(self, example: Example | str, reward: float | None = None) -> None:
        """Add an example, or count the reason why there is none."""
        if isinstance(example, str):
            self.dropped[example] += 1
        else:
            self.examples.append(example)
            self.rewards.append(reward)
