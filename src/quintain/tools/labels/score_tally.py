"""Totals of a scoring call, in constant memory."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from quintain.records.score import Score
from quintain.records.wording import clip
from quintain.tools.results import ScoreSummary, Unscored

SHOWN = 20
"""Reasons that an answer lists."""

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


FEWEST_ALIKE = 10
"""Runs from which on a part with one value in all of them is reported."""


@dataclass
class Tally:
    """Counts of scored and unscored runs with reasons, in constant memory."""

    name: str = ""
    values: Summary = field(default_factory=Summary)
    components: dict[str, Summary] = field(default_factory=dict)
    feedback: dict[str, str] = field(default_factory=dict)
    """Component -> feedback of its latest value."""
    unscored_count: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    """Reason -> the first run that is unscored for it."""

    def add(self, score: Score) -> None:
        """Add the score of a run."""
        self.name = score.scorer
        if score.value is not None:
            self.values.add(score.value)
        else:
            reason = score.reason or "no reason given"
            reason = reason if reason in self.reasons or len(self.reasons) < _KINDS else "other reasons"
            self.unscored_count += 1
            self.reasons[reason] += 1
            self.examples.setdefault(reason, score.trajectory_id)
        for part in score.components:
            if part.value is not None and (part.name in self.components or len(self.components) < _KINDS):
                self.components.setdefault(part.name, Summary()).add(part.value)
                self.feedback[part.name] = part.feedback

    def counts(self) -> dict[str, Any]:
        """Return the counts as fields of a result, with the most frequent reasons, each with its first run."""
        reasons = self.reasons.most_common(SHOWN)
        return {
            "scored": self.values.n,
            "unscored_count": self.unscored_count,
            "unscored": tuple(Unscored(id=self.examples[why], reason=why, count=n) for why, n in reasons),
            "reasons": dict(reasons),
            "summary": self.values.summarize(),
            "components": {name: part.summarize() for name, part in sorted(self.components.items())},
        }

    def constant_parts(self) -> list[str]:
        """Return a warning for each part of several that has one value in all runs, and so ranks none of them."""
        if len(self.components) < 2:
            return []
        return [
            f"part {name!r} is {part.low:g} in all {part.n:,} runs and ranks none of them; the last one: "
            f"{clip(self.feedback[name], 200) or 'no feedback'}"
            for name, part in sorted(self.components.items())
            if part.n >= FEWEST_ALIKE and part.low == part.high
        ]
