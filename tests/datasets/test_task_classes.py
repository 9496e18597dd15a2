"""The class of a task by its words, its tools and its length, and by what somebody says."""

from __future__ import annotations

import pytest

from quintain.datasets.task_classes import task_class
from quintain.records.trajectory import Step, Task, Trajectory
from trajectory_runs import answer, call, run, user


def _asked(prompt: str, *steps: Step, **fields: object) -> Trajectory:
    return run(None, user(prompt), *(steps or (call(), answer())), task=Task(prompt=prompt, **fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("Book the cheapest flight to Oslo.", "tool_selection"),
        ("Find the invoice of March.", "tool_retrieval"),
        ("Searching is allowed, when you like.", "tool_retrieval"),
        ("Retrieve all orders", "tool_retrieval"),
        ("Tell me if it rains.", "timing_decision"),
        ("WAIT until the build is done.", "timing_decision"),
        ("Research the findings of Gifford.", "tool_selection"),
        ("", "tool_selection"),
    ],
)
def test_words_of_the_prompt_decide_whole_and_in_this_order(prompt: str, expected: str) -> None:
    """`research`, `findings` and `Gifford` hold search, find and if, and are other words."""
    assert task_class(_asked(prompt)) == expected


def test_three_tools_or_eight_turns_are_planning_whatever_the_words() -> None:
    """Two tools and seven turns are not: user, four calls of two tools, two answers."""
    calls = [call("look"), call("take"), call("look"), call("take")]
    assert task_class(_asked("Find it", *calls, answer(), answer())) == "tool_retrieval"
    assert task_class(_asked("Find it", *calls, answer(), answer(), answer())) == "multi_step_planning"
    assert task_class(_asked("Find it", call("a"), call("b"), call("c"))) == "multi_step_planning"


def test_what_a_task_says_of_itself_goes_before_the_rules_and_a_mapping_before_that() -> None:
    assert task_class(_asked("Find it", type="timing_decision")) == "timing_decision"
    assert task_class(_asked("Find it", type="code", metadata={"task_type": "tool_selection"})) == "tool_selection"
    assert task_class(_asked("Find it", metadata={"task_type": ["tool_selection"]})) == "tool_retrieval"
    known = {"code": "multi_step_planning", "t1": "timing_decision"}
    assert task_class(_asked("Find it", type="code"), known) == "multi_step_planning"  # type: ignore[arg-type]
    assert task_class(_asked("Find it", id="t1", type="code"), known) == "timing_decision"  # type: ignore[arg-type]
    assert task_class(_asked("Find it", type="other"), known) == "tool_retrieval"  # type: ignore[arg-type]
