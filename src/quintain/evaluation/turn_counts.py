"""Counts of the turns of running episodes, with an estimate of how many are left."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from quintain.records.protocols import Policy, ReportsShare

_EVERY_S = 0.5
"""Minimum seconds between two counts within a turn."""


class EpisodeTurns(NamedTuple):
    """The turns of one episode of the current batch."""

    turns: int
    limit: int
    is_finished: bool
    tokens: int = 0
    """Tokens that the agent wrote, as far as known."""


class TurnCount(NamedTuple):
    """Progress of the planned episodes after a turn, or within one."""

    finished: int
    planned: int
    turns: int
    """Turns taken in all episodes."""
    expected_turns: float
    """Turns of all planned episodes.

    An episode is expected to take as many turns as the mean of the finished ones, and a running one at least one more
    than it has taken. Before one has finished, the limit of turns is expected of each.
    """
    running: int = 0
    """Episodes of the current batch that are not finished."""
    share: float = 0.0
    """Share of their current turns that is answered, at least."""
    tokens: int = 0
    """Tokens written in all episodes, as far as known."""


class TurnCounter:
    """Counts the turns of the planned episodes, batch by batch."""

    def __init__(
        self,
        planned: int,
        report: Callable[[TurnCount], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start at zero.

        Args:
            planned: Number of planned episodes.
            report: Receives the count after each turn of a batch, and within a turn.
            clock: Returns seconds.
        """
        self._planned, self._report, self._clock = planned, report, clock
        self._finished = self._finished_turns = self._finished_tokens = 0
        self._batch: Callable[[], Sequence[EpisodeTurns]] = lambda: ()
        self._counted = clock()

    def begin(self, policy: Policy, batch: Callable[[], Sequence[EpisodeTurns]]) -> None:
        """Begin a batch; `batch` returns its episodes. A policy that reports shares of a turn is followed within turns."""
        self._batch = batch
        if isinstance(policy, ReportsShare):
            policy.on_share = self._within_turn

    def update(self, share: float = 0.0, tokens: int = 0) -> None:
        """Report the count with the turns of the current batch, and with the share and tokens of turns that are not finished."""
        batch = self._batch()
        finished = self._finished + sum(one.is_finished for one in batch)
        finished_turns = self._finished_turns + sum(one.turns for one in batch if one.is_finished)
        running = [one for one in batch if not one.is_finished]
        mean = finished_turns / finished if finished else max((one.limit for one in running), default=0)
        expected = sum(min(max(mean, one.turns + 1), one.limit) for one in running)
        waiting = self._planned - finished - len(running)
        turns = finished_turns + sum(one.turns for one in running)
        whole = finished_turns + expected + waiting * mean
        self._counted = self._clock()
        tokens += self._finished_tokens + sum(one.tokens for one in batch)
        self._report(TurnCount(finished, self._planned, turns, whole, len(running), share, tokens))

    def finish(self, policy: Policy) -> None:
        """Add the turns of the current batch, whose episodes have all finished."""
        batch = self._batch()
        self._finished += len(batch)
        self._finished_turns += sum(one.turns for one in batch)
        self._finished_tokens += sum(one.tokens for one in batch)
        self._batch = lambda: ()
        if isinstance(policy, ReportsShare):
            policy.on_share = None

    def _within_turn(self, share: float, tokens: int) -> None:
        if self._clock() - self._counted >= _EVERY_S:
            self.update(share, tokens)
