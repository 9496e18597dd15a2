from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tools.dict_calls import Caller

ASKED = {"role": "user", "content": "Count the apples."}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def test_appends_at_the_same_time_lose_nothing(tool: Caller, home: Path) -> None:
    name = tool.record(live="open", messages=[ASKED], task="apples")["trajectory_id"]

    def append(n: int) -> str:
        other = Caller(home)
        try:
            return str(other.record(live="append", trajectory_id=name, messages=[said(f"turn {n}")])["status"])
        finally:
            other.close()

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(append, range(24))) == {"success"}
    assert tool.record(live="close", trajectory_id=name, outcome="success")["steps"] == 24


def test_a_run_can_be_opened_before_the_agent_acts(tool: Caller) -> None:
    opened = tool.record(live="open", messages=[ASKED], task="apples")
    assert (opened["steps"], opened["live"]) == (0, True)
    name = opened["trajectory_id"]
    assert (
        tool.record(live="append", trajectory_id=name, messages=[{"role": "user", "content": "Please."}])["steps"] == 0
    )
    closed = tool.record(live="close", trajectory_id=name, messages=[said("3")], tags=["done"])
    assert (closed["steps"], closed["outcome"]) == (1, "unknown")
    found = tool(action="search", filter={"tags": ["done"]})["items"]
    assert [item["id"] for item in found] == [name]


def test_closing_without_an_outcome_keeps_the_one_that_was_stated(tool: Caller) -> None:
    name = tool.record(live="open", messages=[ASKED, said("2")], task="apples", outcome="failure")["trajectory_id"]
    assert tool.record(live="close", trajectory_id=name)["outcome"] == "failure"


NOT_TAKEN: list[tuple[dict[str, Any], str]] = [
    ({"messages": [said("3")], "tags": ["live"]}, "reserved for open recordings"),
    (
        {"trajectory": {"tags": ["live"], "steps": [{"actor": "agent", "message": "3"}]}},
        "reserved for open recordings",
    ),
    ({"messages": [said("3")], "trajectory_id": "traj-1"}, "open recording"),
    ({"live": "append", "messages": [said("3")]}, "needs the `trajectory_id`"),
    (
        {"live": "append", "trajectory_id": "traj-1", "messages": [said("3")], "outcome": "success"},
        "does not take outcome",
    ),
    ({"live": "close", "trajectory_id": "traj-1", "agent": "me"}, "does not take agent"),
    ({"live": "append", "trajectory_id": "traj-1"}, "new `messages`"),
    ({"messages": []}, "messages is empty"),
    ({"trajectory": {"id": "../../etc", "steps": [{"actor": "agent", "message": "3"}]}}, "trajectory.id"),
]


def test_what_a_recording_does_not_take_is_refused(tool: Caller) -> None:
    for arguments, words in NOT_TAKEN:
        answer = tool.record(**arguments)
        assert answer["status"] == "error"
        assert words in answer["message"]


def test_an_atif_document_is_recorded_as_what_it_is(tool: Caller) -> None:
    document = {
        "schema_version": "ATIF-v1.7",
        "session_id": "s1",
        "agent": {"name": "mine", "version": "1", "model_name": "tiny"},
        "steps": [
            {"step_id": 1, "source": "user", "message": "Count the apples."},
            {
                "step_id": 2,
                "source": "agent",
                "message": "I look.",
                "tool_calls": [{"tool_call_id": "c1", "function_name": "look", "arguments": {"at": "tree"}}],
                "observation": {"results": [{"source_call_id": "c1", "content": "3 apples"}]},
            },
        ],
    }
    recorded = tool.record(trajectory=document)
    assert (recorded["steps"], recorded["outcome"]) == (1, "unknown")
    shown = tool(action="get", trajectory_id=recorded["trajectory_id"])["trajectory"]
    assert shown["steps"][1]["observations"][0]["content"] == "3 apples"


def test_an_open_recording_is_in_no_dataset_before_it_is_closed(tool: Caller) -> None:
    tool.record(messages=[ASKED, said("2")], task="apples", outcome="success", tags=["k"])
    name = tool.record(live="open", messages=[ASKED, said("3")], task="apples", outcome="success", tags=["k"])
    asked = {"action": "export", "kind": "sft", "name": "apples", "filter": {"tags": ["k"]}}
    result = json.loads(tool.run(asked))
    assert (result["trajectories"], result["dropped"]) == (1, {"still_open": 1})
    alone = {"action": "export", "kind": "sft", "name": "open", "trajectory_ids": [name["trajectory_id"]]}
    assert "close each with" in tool.run(alone)
    tool.record(live="close", trajectory_id=name["trajectory_id"])
    assert tool(**{**asked, "name": "both"})["trajectories"] == 2
