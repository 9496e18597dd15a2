"""Totals of a scoring call, in constant memory."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from quintain.records.score import Score
from quintain.tools.results import ScoreSummary, Unscored

SHOWN = 20
"""Unscored runs and reasons that an answer lists."""

_KINDS = 50
"""Most components and reasons with a count of their own."""


@dataclass
class Summary:
    """Mean and bounds of values, in constant memory."""

    n: int = 0
    total: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    def add(self, value: float) -> None:
        """Add a value."""
        self.n += 1
        self.total += value
        self.low, self.high = min(self.low, value), max(self.high, value)

    def summarize(self) -> ScoreSummary:
        """Return the summary."""
        if not self.n:
            return ScoreSummary(n=0, mean=None, minimum=None, maximum=None)
        return ScoreSummary(
            n=self.n, mean=round(self.total / self.n, 6), minimum=round(self.low, 6), maximum=round(self.high, 6)
        )


@dataclass
class Tally:
    """Counts of scored and unscored runs with reasons, in constant memory."""

    name: str = ""
    values: Summary = field(default_factory=Summary)
    components: dict[str, Summary] = field(default_factory=dict)
    unscored: list[Unscored] = field(default_factory=list)
    unscored_count: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, score: Score) -> None:
        """Add the score of a run."""
        self.name = score.scorer
        if score.value is not None:
            self.values.add(score.value)
        else:
            reason = score.reason or "no reason given"
            self.unscored_count += 1
            self.reasons[reason if reason in self.reasons or len(self.reasons) < _KINDS else "other reasons"] += 1
            if len(self.unscored) < SHOWN:
                self.unscored.append(Unscored(id=score.trajectory_id, reason=reason))
        for part in score.components:
            if part.value is not None and (part.name in self.components or len(self.components) < _KINDS):
                self.components.setdefault(part.name, Summary()).add(part.value)
