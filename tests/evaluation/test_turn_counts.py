"""Counts of turns, by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from quintain.evaluation.turn_counts import EpisodeTurns, TurnCount, TurnCounter
from quintain.records.protocols import Reply, Turn


class Writing:
    """A policy that reports shares of its turns."""

    on_share: Callable[[float, int], None] | None = None

    def act(self, turns: Sequence[Turn]) -> list[Reply]:
        raise AssertionError

    def close(self, episode_id: str) -> None:
        pass


def test_expected_turns_follow_the_finished_episodes_and_before_them_the_limit() -> None:
    counts: list[TurnCount] = []
    counter, policy = TurnCounter(5, counts.append), Writing()

    def count(*batch: tuple[int, bool]) -> tuple[int, int, int, float]:
        counter.begin(policy, lambda: [EpisodeTurns(turns, 8, is_finished) for turns, is_finished in batch])
        counter.update()
        return counts[-1][:4]

    assert count((1, False), (1, False)) == (0, 5, 2, 5 * 8)
    assert count((2, True), (2, False)) == (1, 5, 4, 2 + 3 + 3 * 2), (
        "one took 2; the other at least 3; three wait, 2 each"
    )
    assert count((2, True), (8, True)) == (2, 5, 10, 10 + 3 * 5)
    counter.finish(policy)
    assert policy.on_share is None
    assert count((1, False), (1, False)) == (2, 5, 12, 10 + 2 * 5 + 5)


def test_a_policy_that_writes_a_long_turn_is_followed_within_it() -> None:
    counts: list[TurnCount] = []
    times = iter([0.0, 0.1, 0.7, 0.7])
    counter, policy = TurnCounter(2, counts.append, clock=lambda: next(times)), Writing()
    counter.begin(policy, lambda: [EpisodeTurns(1, 8, False, 40), EpisodeTurns(0, 8, False)])
    assert policy.on_share is not None
    policy.on_share(0.1, 6)
    policy.on_share(0.25, 15)
    assert counts == [(0, 2, 1, 16.0, 2, 0.25, 40 + 15)], "at 0.1 s it is too early"
