"""Counts of the turns of running episodes, with an estimate of how many are left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple


class EpisodeTurns(NamedTuple):
    """The turns of one episode of the current batch."""

    turns: int
    limit: int
    """Maximum number of turns."""
    is_finished: bool


class TurnCount(NamedTuple):
    """Progress of the planned episodes after a turn."""

    finished: int
    planned: int
    turns: int
    """Turns taken in all episodes."""
    expected_turns: float
    """Turns of all planned episodes.

    An episode is expected to take as many turns as the mean of the finished ones, and a running one at least one more
    than it has taken. Before one has finished, the limit of turns is expected of each.
    """


class TurnCounter:
    """Counts the turns of the planned episodes, batch by batch."""

    def __init__(self, planned: int, report: Callable[[TurnCount], None]) -> None:
        """Start at zero.

        Args:
            planned: Number of planned episodes.
            report: Receives the count after each turn of a batch.
        """
        self._planned, self._report = planned, report
        self._finished = self._finished_turns = 0

    def update(self, batch: Sequence[EpisodeTurns]) -> None:
        """Report the count with the turns of the current batch."""
        finished = self._finished + sum(one.is_finished for one in batch)
        finished_turns = self._finished_turns + sum(one.turns for one in batch if one.is_finished)
        running = [one for one in batch if not one.is_finished]
        mean = finished_turns / finished if finished else max((one.limit for one in running), default=0)
        expected = sum(min(max(mean, one.turns + 1), one.limit) for one in running)
        waiting = self._planned - finished - len(running)
        turns = finished_turns + sum(one.turns for one in running)
        self._report(TurnCount(finished, self._planned, turns, finished_turns + expected + waiting * mean))

    def finish(self, batch: Sequence[EpisodeTurns]) -> None:
        """Add the turns of a batch whose episodes have all finished."""
        self._finished += len(batch)
        self._finished_turns += sum(one.turns for one in batch)
