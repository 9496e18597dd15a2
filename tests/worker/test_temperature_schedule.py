"""Temperatures of attempts, and how much attempts differ: by hand."""

from __future__ import annotations

from typing import Any

import pytest

from quintain.records.trajectory import Action, Actor, Outcome, OutcomeStatus, Step, Trajectory
from quintain.worker.rollouts.exploration import Attempts, action_sequence, scheduled_temperature


def did(
    *calls: tuple[str, dict[str, Any]], status: OutcomeStatus = OutcomeStatus.FAILURE, said: str = ""
) -> Trajectory:
    steps = tuple(Step(actor=Actor.AGENT, thought="Hm.", actions=(Action(tool=t, args=a),)) for t, a in calls)
    return Trajectory(steps=steps or (Step(actor=Actor.AGENT, message=said),), outcome=Outcome(status=status))


def test_attempts_rise_from_the_low_to_the_high_temperature_and_single_ones_do_over_the_tasks() -> None:
    assert [scheduled_temperature((0.5, 1.1), attempt, 4, 9, 20) for attempt in range(4)] == pytest.approx(
        [0.5, 0.7, 0.9, 1.1]
    )
    assert [scheduled_temperature((0.0, 1.0), 0, 1, place, 3) for place in range(3)] == [0.0, 0.5, 1.0]
    assert scheduled_temperature((0.3, 0.9), 0, 1, 0, 1) == 0.3
    assert {scheduled_temperature((0.7, 0.7), attempt, 5, 0, 1) for attempt in range(5)} == {0.7}


def test_sequences_differ_by_tools_arguments_and_order_and_not_by_thoughts() -> None:
    look, get = ("look", {"at": 1, "by": 2}), ("get", {"x": 1})
    same = did(look, get)
    thoughtful = same.model_copy(
        update={"steps": tuple(step.model_copy(update={"thought": "Otherwise."}) for step in same.steps)}
    )
    assert (
        action_sequence(same) == action_sequence(thoughtful) == action_sequence(did(("look", {"by": 2, "at": 1}), get))
    )
    others = [did(get, look), did(look), did(("look", {"at": 2, "by": 2}), get), did(said="a"), did(said="b")]
    assert len({action_sequence(run) for run in (same, *others)}) == 6


def test_attempts_after_repetition_are_hotter_within_bounds_whatever_is_known_of_later_ones() -> None:
    attempts = Attempts()
    for attempt, tool in enumerate(["a", "a", "b"]):
        attempts.add("t", attempt, did((tool, {})))
    heat = [attempts.temperature_for(0.8, 1.0, "t", attempt) for attempt in range(4)]
    assert heat == pytest.approx([0.8, 0.8, 1.6, 1.2])  # none, one, both alike, half of what could repeat
    assert attempts.temperature_for(2.0, 4.0, "t", 2) == 5.0
    assert attempts.temperature_for(0.0, 4.0, "t", 2) == 0.0
    assert attempts.temperature_for(0.8, 0.0, "t", 2) == attempts.temperature_for(0.8, 1.0, "other", 2) == 0.8


def test_the_share_of_distinct_sequences_is_a_mean_over_tasks_without_what_the_environment_broke() -> None:
    """Of three attempts two differ, of two both: (2/3 + 1) / 2; a task with a single attempt says nothing."""
    attempts = Attempts()
    assert attempts.distinct_share() is None
    for task, tools in {"t": "aab", "u": "ab", "v": "a"}.items():
        for attempt, tool in enumerate(tools):
            attempts.add(task, attempt, did((tool, {})))
    attempts.add("u", 2, did(("a", {}), status=OutcomeStatus.ERROR))
    assert attempts.distinct_share() == pytest.approx(5 / 6)
