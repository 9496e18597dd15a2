"""Counts of turns, by hand."""

from __future__ import annotations

from quintain.evaluation.turn_counts import EpisodeTurns, TurnCount, TurnCounter


def test_expected_turns_follow_the_finished_episodes_and_before_them_the_limit() -> None:
    counts: list[TurnCount] = []
    counter = TurnCounter(5, counts.append)
    counter.update([EpisodeTurns(1, 8, False), EpisodeTurns(1, 8, False)])
    assert counts[-1] == (0, 5, 2, 5 * 8)
    counter.update([EpisodeTurns(2, 8, True), EpisodeTurns(2, 8, False)])
    assert counts[-1] == (1, 5, 4, 2 + 3 + 3 * 2), "one took 2; the other at least 3; three wait, 2 each"
    counter.update([EpisodeTurns(2, 8, True), EpisodeTurns(8, 8, True)])
    counter.finish([EpisodeTurns(2, 8, True), EpisodeTurns(8, 8, True)])
    assert counts[-1] == (2, 5, 10, 10 + 3 * 5)
    counter.update([EpisodeTurns(1, 8, False), EpisodeTurns(1, 8, False)])
    assert counts[-1] == (2, 5, 12, 10 + 2 * 5 + 5)
