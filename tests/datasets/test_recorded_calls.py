"""Recorded calls as data of a retriever: which pairs of need and tool a run gives, and what is left out."""

from __future__ import annotations

from typing import Any

import pytest

from quintain.datasets.recorded_calls import calls_of_run, require_calls, tool_document
from quintain.errors import InvalidInput
from quintain.records.trajectory import Task
from trajectory_runs import answer, call, run, user


def tool(name: str, description: str = "", **parameters: Any) -> dict[str, Any]:
    function = {"name": name, "description": description, "parameters": {"type": "object", "properties": parameters}}
    return {"type": "function", "function": function}


TOOLS = (tool("send_mail", "Send a letter.", to={}, priority_level={}), tool("look"), tool("take"), tool("wait"))


def test_a_tool_is_described_by_name_description_and_parameters_in_any_style_of_definition() -> None:
    assert tool_document(TOOLS[0]) == "send mail: Send a letter. to, priority level"
    assert tool_document(TOOLS[0]["function"]) == tool_document(TOOLS[0])
    assert tool_document({"name": "look", "description": None, "parameters": None}) == "look:"


def test_each_call_is_paired_with_the_latest_message_of_the_user_and_the_tools_that_the_run_never_called() -> None:
    found = calls_of_run(
        run("t", user("Find it."), call("look"), call("look"), user("Now mail it."), call("send_mail"), tools=TOOLS)
    )
    assert [(one.need, one.tool, one.document) for one in found.calls] == [
        ("Find it.", "look", "look:"),
        ("Now mail it.", "send_mail", tool_document(TOOLS[0])),
    ]
    assert {one.uncalled for one in found.calls} == {("take:", "wait:")}
    asked = run("t", call("look"), tools=TOOLS, task=Task(id="t", prompt="Look."))
    assert [one.need for one in calls_of_run(asked).calls] == ["Look."], "without a message the task's prompt counts"


def test_calls_that_failed_are_masked_or_name_an_undefined_tool_are_counted() -> None:
    masked = call("look").model_copy(update={"train": False})
    found = calls_of_run(run("t", user(), call("take", is_error=True), masked, call("fly"), call("wait"), tools=TOOLS))
    assert [one.tool for one in found.calls] == ["wait"]
    assert found.left_out == {"failed_call": 1, "masked_call": 1, "undefined_tool": 1}
    assert found.undefined == ("fly",)
    assert calls_of_run(run("t", call("wait"), tools=TOOLS, task=Task(id="t"))).left_out == {"no_need": 1}


def test_runs_that_call_fewer_than_two_tools_are_refused_with_the_reasons() -> None:
    one = run("t", user(), call("look"), answer(), tools=TOOLS)
    unknown = run("u", user(), call("fly"), call("swim"), answer(), tools=TOOLS)
    with pytest.raises(InvalidInput, match="at least 2 different tools, got 1 in 2 runs") as raised:
        require_calls([one, unknown])
    assert raised.value.code == "too_few_tools"
    assert "undefined_tool 2; not defined by their runs: fly, swim" in raised.value.message
    require_calls([one, run("v", user("Grab it."), call("take"), tools=TOOLS)])


def test_runs_in_which_every_need_calls_all_tools_are_refused_because_nothing_tells_them_apart() -> None:
    """As in an agent that always searches for a tool and then calls what it found by one other tool."""
    runs = [run(need, user(need), call("look"), call("take"), answer(), tools=TOOLS) for need in ("a", "b", "c")]
    with pytest.raises(InvalidInput, match=r"got 3 needs in 3 runs that called all 2 tools \(look, take\)") as raised:
        require_calls(runs)
    assert raised.value.code == "no_negatives"
    require_calls([*runs, run("d", user("d"), call("take"), tools=TOOLS)])
    require_calls([*runs, run("e", user("e"), call("look"), call("take"), call("wait"), tools=TOOLS)])
