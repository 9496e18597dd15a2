"""The class of a task: stated by the task or the caller, else by the tools and the length of the run."""

from __future__ import annotations

from quintain.datasets.task_classes import task_class
from quintain.records.trajectory import Step, Task, Trajectory
from trajectory_runs import answer, call, run, user


def _asked(prompt: str, *steps: Step, **fields: object) -> Trajectory:
    return run(None, user(prompt), *(steps or (call(), answer())), task=Task(prompt=prompt, **fields))  # type: ignore[arg-type]


def test_three_tools_or_eight_turns_are_planning_and_words_decide_nothing() -> None:
    """Two tools and seven turns are not: user, four calls of two tools, two answers."""
    calls = [call("look"), call("take"), call("look"), call("take")]
    assert task_class(_asked("Find it if you can", *calls, answer(), answer())) == "tool_selection"
    assert task_class(_asked("Find it", *calls, answer(), answer(), answer())) == "multi_step_planning"
    assert task_class(_asked("Find it", call("a"), call("b"), call("c"))) == "multi_step_planning"
    assert task_class(_asked("")) == "tool_selection"


def test_a_stated_class_goes_before_the_rules_and_a_mapping_before_that() -> None:
    assert task_class(_asked("Find it", type="timing_decision")) == "timing_decision"
    assert task_class(_asked("Find it", type="code", metadata={"task_type": "tool_retrieval"})) == "tool_retrieval"
    assert task_class(_asked("Find it", metadata={"task_type": ["tool_retrieval"]})) == "tool_selection"
    known = {"code": "multi_step_planning", "t1": "timing_decision"}
    assert task_class(_asked("Find it", type="code"), known) == "multi_step_planning"  # type: ignore[arg-type]
    assert task_class(_asked("Find it", id="t1", type="code"), known) == "timing_decision"  # type: ignore[arg-type]
    assert task_class(_asked("Find it", type="other"), known) == "tool_selection"  # type: ignore[arg-type]
