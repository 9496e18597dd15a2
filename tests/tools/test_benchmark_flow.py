"""A benchmark from export to comparison: its tasks are played where they were recorded, and its references give metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.dict_calls import Caller
from tools.stored_records import write_rows


def benchmark(tool: Caller, environment: object, n_tasks: int = 3, agent: str = "expert") -> str:
    collected = tool(action="collect", agent=agent, environment=environment, n_tasks=n_tasks, max_turns=4)
    tool(action="wait", job_id=collected["job_id"])
    exported = tool(action="export", kind="benchmark", name="bench", filter={"job_id": collected["job_id"]})
    assert (exported["status"], exported["splits"]) == ("success", {"test": n_tasks}), exported
    return str(exported["dataset_id"])


@pytest.mark.usefixtures("jobs_in_process")
def test_a_benchmark_is_exported_played_and_compared(tool: Caller) -> None:
    dataset = benchmark(tool, {"quintain/inventory?difficulty=easy": 1, "quintain/math?difficulty=easy": 1}, n_tasks=2)
    asked = {"dataset_id": dataset, "split": "test", "max_turns": 4, "sampling": {"max_new_tokens": 4}}
    answers = [tool(action="evaluate", agent=agent, **asked) for agent in ("starter", "expert")]
    assert [answer["num_samples"] for answer in answers] == [2, 2], answers
    assert answers[1]["accuracy"] == 1.0
    compared = tool(action="compare", agents=["starter", "expert"])
    assert compared["comparisons"][0]["n_tasks"] == 2
    leaked = tool(action="export", kind="sft", name="leak", filter={"job_id": answers[1]["job_id"]})
    assert (leaked["code"], "held_out" in leaked["message"]) == ("empty_dataset", True), leaked
    metrics = tool(action="library", kind="evaluations")["items"][0]["metrics"]
    # The expert plays its own plan again: the same tools in the same order, in the same number of steps, and solves it.
    for name in ("tool_selection_f1", "plan_success", "step_efficiency", "end_to_end", "timing"):
        assert metrics[name]["value"] == 1.0, name
        assert metrics[name]["n"] == 2, name


@pytest.mark.usefixtures("jobs_in_process")
def test_questions_with_answers_of_a_table_are_asked(tool: Caller, home: Path) -> None:
    """The expert gives the answers of the rows, the starter says four tokens."""
    (home / "inbox").mkdir(parents=True, exist_ok=True)
    (home / "inbox" / "desk.csv").write_text("text,desk\nMy card is gone,cards\nWhere is my parcel,post\n")
    columns = {"question": "text", "answer": "desk"}
    made = tool(action="export", kind="benchmark", name="desks", path="desk.csv", columns=columns)
    asked = {"dataset_id": made["dataset_id"], "n_tasks": 2, "sampling": {"max_new_tokens": 4}}
    answers = [tool(action="evaluate", agent=agent, **asked) for agent in ("starter", "expert")]
    assert [(answer["num_samples"], answer["accuracy"]) for answer in answers] == [(2, 0.0), (2, 1.0)], answers
    compared = tool(action="compare", agents=["starter", "expert"], environment="desks")
    assert (compared["comparisons"][0]["only_b"], compared["comparisons"][0]["n_tasks"]) == (2, 2)
    for name in ("desks", made["dataset_id"]):
        asked = {"agents": ["starter", "expert"], "environment": name, "sequential": True}
        started = tool(action="compare", **asked)
        if started.get("job_id"):
            tool(action="wait", job_id=started["job_id"])
        decided = tool(action="compare", **asked)
        assert decided["sequential"]["n_tasks"] == 2, "a benchmark of two tasks is played to its end"
    links = tool(action="lineage", id=made["dataset_id"])["descendants"]
    assert decided["comparison_id"] in {node["id"] for node in links}
    (played, *_) = tool(action="search", filter={"job_id": answers[0]["job_id"]})["items"]
    shown = tool(action="get", trajectory_id=played["id"])["trajectory"]
    assert [step["actor"] for step in shown["steps"]] == ["user", "agent"], "as the rows: no system prompt and no tool"
    assert "tools" not in shown


@pytest.mark.usefixtures("jobs_in_process")
def test_a_benchmark_whose_environment_is_not_here_is_compared_by_its_first_calls(tool: Caller) -> None:
    steps = [
        {"role": "user", "content": "Find the lamp."},
        {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "search", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "lamp"},
    ]
    tools = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}}]
    recorded = tool.record(messages=steps, tools=tools, outcome={"status": "success", "reward": 1.0})
    assert recorded["status"] == "success", recorded
    exported = tool(action="export", kind="benchmark", name="b", trajectory_ids=[recorded["trajectory_id"]])
    started = tool(action="evaluate", agent="starter", dataset_id=exported["dataset_id"], wait=False)
    assert "only the first call is compared" in started["warnings"][0]
    assert started["warnings"][0].endswith("line 1: its task names no environment")
    refused = tool(action="evaluate", agent="expert", dataset_id=exported["dataset_id"])
    assert refused["code"] == "no_weights"


@pytest.mark.usefixtures("jobs_in_process")
def test_tasks_of_a_benchmark_open_no_files_of_its_own_naming(tool: Caller, home: Path) -> None:
    secret = home / "jobs" / "secret.jsonl"
    played_in = f"quintain/math?file={secret}"
    task = {"id": "q", "prompt": "What is 1 + 1?", "environment": played_in, "metadata": {"answer": 2}}
    path = write_rows(home / "inbox" / "bench.jsonl", {"task": task, "references": []})
    played = tool(action="evaluate", agent="expert", environment=f"quintain/benchmark?file={path}", n_tasks=1)
    assert (played["status"], played["accuracy"]) == ("success", 1.0), played
