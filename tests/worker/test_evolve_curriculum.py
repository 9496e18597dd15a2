"""Levels of an evolution end, solved or not; patience is used up by rounds without a sure gain."""

from __future__ import annotations

from quintain.records.evolve import LevelsConfig
from quintain.worker.evolution.loop import Curriculum, Patience


def climb(ladder: Curriculum, *successes: float | None) -> list[str]:
    """The environments of these rounds."""
    seen = []
    for success in successes:
        seen.append(ladder.environment)
        ladder.advance(success)
    return seen


def test_a_level_ends_when_it_is_solved_or_has_had_its_rounds() -> None:
    """The seed's curriculum loops for ever where the threshold is not met."""
    config = LevelsConfig(levels=("a", "b", "c"), advance_at=0.8, max_iterations=2)
    assert climb(Curriculum(config.levels, config), 0.8, 0.79, 0.5, 0.9, 0.9) == ["a", "b", "b", "c", "c"]
    assert climb(Curriculum(config.levels, config), None, None, 0.0, 0.0, 0.0) == ["a", "a", "b", "b", "c"]


def test_a_level_that_ends_unsolved_gives_a_warning() -> None:
    config = LevelsConfig(levels=("a", "b"), max_iterations=1)
    message = Curriculum(config.levels, config).advance(0.25)
    assert [word for word in ("success in a is 25%", "below 80%", "continuing with b") if word not in message] == []
    assert Curriculum(config.levels, config).advance(0.8) is None


def test_a_single_environment_has_no_levels() -> None:
    ladder = Curriculum(("a",), None)
    assert ladder.is_last
    assert climb(ladder, 0.0, 1.0, 1.0) == ["a", "a", "a"]


def test_patience_counts_rounds_in_a_row_and_a_sure_gain_begins_it_anew() -> None:
    patience = Patience(2)
    decisions = ("kept", "better", "ahead", "nothing_selected")
    assert [patience.spend(decision) for decision in decisions] == [False, False, False, True]
    assert not any(map(Patience(None).spend, ["kept"] * 10))
