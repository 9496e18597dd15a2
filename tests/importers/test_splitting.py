"""Runs that are too long for one row: where they are cut, what each part holds, and how they grow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quintain.errors import InvalidInput
from quintain.importers.protocol import Report, Run
from quintain.importers.run_splitting import PART_CHARS, characters, require_one_part, split_run, split_trajectory
from quintain.records.trajectory import (
    MAX_TRAJECTORY_CHARS,
    Actor,
    Outcome,
    OutcomeStatus,
    Step,
    Task,
    Trajectory,
)
from quintain.store.store import open_store
from trajectory_runs import NOW, later

BOUND = 100


def said(actor: Actor, *texts: str) -> list[Step]:
    return [Step(actor=actor, message=text) for text in texts]


def session(*steps: Step, **fields: Any) -> Trajectory:
    """A run whose frame (its session id) holds one character."""
    return Trajectory(session_id="s", task=Task(), steps=steps, **fields)


ASKED = (*said(Actor.SYSTEM, "S" * 5), *said(Actor.USER, "U" * 4))


def messages(part: Trajectory) -> list[str]:
    return [str(step.message)[:1] + str(len(str(step.message))) for step in part.steps]


def test_a_run_within_the_bound_stays_the_same_object() -> None:
    run = session(*ASKED, *said(Actor.AGENT, "a" * 90))
    assert characters(run) == BOUND
    assert split_trajectory(run, BOUND) == [run]
    assert split_trajectory(run, BOUND)[0] is run


def test_a_part_ends_before_the_turn_that_would_pass_the_bound() -> None:
    """Frame 1, opening 9: the first part has 99 - 9 = 90 for turns, a later one 99 - 9 = 90 besides its copied opening."""
    run = session(*ASKED, *said(Actor.AGENT, *("a" * 30,) * 7))
    parts = split_trajectory(run, BOUND)
    assert [messages(part) for part in parts] == [["S5", "U4", *["a30"] * n] for n in (3, 3, 1)]
    assert [characters(part) for part in parts] == [100, 100, 40]
    assert [[step.copied_context for step in part.steps[:3]] for part in parts] == [
        [False] * 3,
        *[[True, True, False]] * 2,
    ]
    whole = [step for part in parts for step in part.steps if not step.copied_context]
    assert tuple(whole) == run.steps


SPLITS: dict[str, tuple[list[Step], list[list[str]]]] = {
    "a question goes with its answer": (
        [*ASKED, *said(Actor.AGENT, "a" * 60), *said(Actor.USER, "q" * 20), *said(Actor.AGENT, "b" * 20)],
        [["S5", "U4", "a60"], ["S5", "U4", "q20", "b20"]],
    ),
    "what is said after the last turn makes no part of its own": (
        [*ASKED, *said(Actor.AGENT, "a" * 60, "b" * 20), *said(Actor.USER, "q" * 20)],
        [["S5", "U4", "a60"], ["S5", "U4", "b20", "q20"]],
    ),
    "an opening of half the bound is not repeated": (
        [*said(Actor.USER, "U" * 60), *said(Actor.AGENT, "a" * 30, "b" * 30)],
        [["U60", "a30"], ["b30"]],
    ),
    "a turn that is longer than a part but fits a row is a part of its own": (
        [*ASKED, *said(Actor.AGENT, "a" * 60, "b" * 150, "c")],
        [["S5", "U4", "a60"], ["S5", "U4", "b150"], ["S5", "U4", "c1"]],
    ),
}


@pytest.mark.parametrize("rule", SPLITS)
def test_a_run_is_cut_where(rule: str) -> None:
    steps, parts = SPLITS[rule]
    assert [messages(part) for part in split_trajectory(session(*steps), BOUND, most=170)] == parts


def test_the_outcome_stands_with_the_last_part_alone() -> None:
    outcome = Outcome(status=OutcomeStatus.SUCCESS, reward=1.0)
    run = session(
        *ASKED, *said(Actor.AGENT, "a" * 60, "b" * 60), outcome=outcome, group_id="g", continues="traj-x", tags=("t",)
    )
    first, last = split_trajectory(run, BOUND + 2)
    assert (first.outcome.status, first.group_id, first.continues) == (OutcomeStatus.UNKNOWN, None, "traj-x")
    assert (last.outcome, last.group_id, last.continues) == (outcome, "g", None)
    assert (first.extra, last.extra, first.tags, last.tags) == ({"part": 1}, {"part": 2}, ("t",), ("t",))


def test_a_turn_that_is_too_long_alone_is_refused_with_its_length_and_what_to_do() -> None:
    run = session(*ASKED, *said(Actor.AGENT, "a" * 60, "b" * 95, "c"))
    with pytest.raises(InvalidInput, match=r"at most 99 characters .* got one of 95; cut that text in a copy"):
        split_trajectory(run, BOUND, most=BOUND)
    report = Report()
    long = session(*said(Actor.AGENT, "a" * (MAX_TRAJECTORY_CHARS + 1)))
    assert list(split_run(Run(long, 7), report)) == []
    assert report.rejected[0][0] == 7
    with pytest.raises(InvalidInput, match="8,000,00"):
        require_one_part(long)


def test_parts_are_linked_in_their_order_and_with_what_the_run_was_linked_with() -> None:
    third = "a" * (PART_CHARS // 3)
    run = session(*ASKED, *said(Actor.AGENT, *(third + str(n) for n in range(5))))
    report = Report()
    parts = list(split_run(Run(run, 3, key="me", parent="boss", continues="before"), report))
    assert [part.line for part in parts] == [3, 3, 3]
    assert [part.parent for part in parts] == ["boss", None, None]
    assert [part.continues for part in parts] == ["before", parts[0].key, parts[1].key]
    assert parts[-1].key == "me"
    assert len({part.key for part in parts}) == 3
    assert len(report.notes) == 1


def test_a_session_that_grows_past_the_bound_keeps_what_is_stored_as_its_first_part(tmp_path: Path) -> None:
    """Nothing the agent did is stored twice, wherever the session stood when it was imported before."""
    steps = (*ASKED, *said(Actor.AGENT, *(letter * 20 for letter in "abcd")), *said(Actor.USER, "q" * 6))
    steps += tuple(said(Actor.AGENT, *(letter * 20 for letter in "efghijk")))
    for before in range(3, len(steps), 3):
        store = open_store(f"sqlite:///{tmp_path / f'{before}.db'}")
        added = store.trajectories.add_many(split_trajectory(session(*steps[:before]), BOUND), NOW)
        now = store.trajectories.add_many(split_trajectory(session(*steps), BOUND), later(1))
        assert [one.id for one in now[: len(added)]] == [one.id for one in added]
        runs = [store.trajectories.get(one.id) for one in now]
        own = [step for run in runs for step in run.agent_steps if not step.copied_context]
        assert [str(step.message)[0] for step in own] == list("abcdefghijk")
        store.close()
