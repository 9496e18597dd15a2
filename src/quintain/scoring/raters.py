"""Runs on which raters disagree, of which their mean says nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quintain.records.score import Score
from quintain.records.wording import counted
from quintain.scoring.recorded import RecordedScorer, raw_value


class RatersApart:
    """Counts the runs that one rater calls good and another one bad."""

    def __init__(self, found: Mapping[str, Mapping[str, Sequence[Score]]], bound: float | None = None) -> None:
        """Take scorer -> run -> stored scores, newest first; a run is good from `bound` on, by default half of the scale."""
        self._scorers = [RecordedScorer(name, by_run) for name, by_run in found.items()]
        self._bound = 0.5 if bound is None else bound
        self._shared = self._apart = 0
        self._by_one = set[str]()

    def add(self, run_id: str) -> None:
        """Look at the verdicts on a run."""
        for scorer in self._scorers:
            verdicts = scorer.newest(run_id)
            if len(verdicts) > 1:
                self._shared += 1
                self._apart += len({raw_value(verdict) >= self._bound for verdict in verdicts}) > 1
                self._by_one.update(f"{scorer.name}@{verdict.rater}" for verdict in verdicts if verdict.rater)

    def notes(self) -> list[str]:
        """Return a sentence for people; none where the raters agree."""
        if not self._apart:
            return []
        named = " or ".join(f"`scorer={name!r}`" for name in sorted(self._by_one)[:3])
        return [
            f"raters disagree on {self._apart} of {counted(self._shared, 'run')} with several raters (good from {self._bound:g} on), "
            f"and their mean counts: ask one more rater, or take the word of one by {named}"
        ]
