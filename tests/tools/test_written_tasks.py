"""Tasks that the caller writes for an MCP server: executed by a job, kept only where the calls that solve them do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tools.dict_calls import Caller

SERVER = Path(__file__).parents[1] / "environments" / "notes_mcp_server.py"
ADD = {"tool": "add", "args": {"a": 2, "b": 3}}
KEEP = {"tool": "write_note", "args": {"name": "milk", "text": "Buy milk"}}
KEPT = {"type": "state", "tool": "read_note", "args": {"name": "milk"}, "contains": "milk"}
EGG = {"tool": "write_note", "args": {"name": "eggs", "text": "Six eggs"}}
EGGS = {"type": "state", "tool": "read_note", "args": {"name": "eggs"}, "contains": "eggs"}
TASKS: list[dict[str, Any]] = [
    {"id": "sum", "prompt": "What is 2 + 3?", "answer": 5, "script": [ADD]},
    {"id": "note", "prompt": "Keep a note about milk.", "checker": KEPT, "script": [KEEP]},
    {"id": "wrong", "prompt": "Keep a note about bread.", "checker": {**KEPT, "contains": "bread"}, "script": [KEEP]},
    {"id": "given", "prompt": "Are there eggs?", "checker": EGGS, "setup": [EGG], "script": [ADD]},
]


@pytest.fixture
def notes(home: Path) -> None:
    """`mcp:notes` in the operator's file, one process for a job."""
    line = f'[mcp.notes]\ncommand = "{sys.executable}"\nargs = ["{SERVER}"]\nfresh = "session"\n'
    (home / "environments.toml").write_text(line, encoding="utf-8")


@pytest.mark.usefixtures("jobs_in_process", "notes")
def test_written_tasks_are_executed_and_those_that_hold_become_a_benchmark(tool: Caller) -> None:
    collected = tool(action="collect", agent="expert", environment="mcp:notes", tasks=TASKS)
    job = tool(action="wait", job_id=collected["job_id"])
    assert job["status"] == "succeeded", job
    assert job["result"]["report"]["solved_without_a_call"] == ["given"]
    assert (job["result"]["n"], job["result"]["success_rate"]) == (3, pytest.approx(2 / 3))
    (failed,) = tool.found(job_id=job["job_id"], outcome="failure")
    assert tool(action="get", trajectory_id=failed)["trajectory"]["task"]["id"] == "wrong"
    solved = {"job_id": job["job_id"], "outcome": "success"}
    demonstrations = tool(action="export", kind="sft", name="notes", filter=solved)
    assert demonstrations["rows"] == 2, demonstrations
    benchmark = tool(action="export", kind="benchmark", name="notes-tasks", filter=solved)
    measured = tool(action="evaluate", agent="expert", dataset_id=benchmark["dataset_id"], n_tasks=2)
    assert (measured["num_samples"], measured["accuracy"]) == (2, 1.0), measured


UNPLAYABLE: list[tuple[dict[str, Any], str]] = [
    ({"script": []}, "expected the calls that solve it as `script`, got none for 'What is 2"),
    ({"script": []}, "a task is {'prompt': ..., 'checker': ..., 'script': [{'tool': ..., 'args': {...}}]}"),
    ({"answer": None}, "expected a `checker` or an `answer`"),
    ({"prompt": TASKS[1]["prompt"]}, "expected a prompt of its own"),
    ({"split": "test"}, "expected split 'train', as in the call, got 'held_out'"),
    ({"checker": {"type": "state", "tool": "read_note"}}, "exactly one of `expect`"),
    ({"script": [{"args": {}}]}, "metadata.script"),
    ({"id": 3.5}, "id"),
]


@pytest.mark.usefixtures("notes")
def test_tasks_that_cannot_be_played_are_refused_with_their_place(tool: Caller) -> None:
    for row, message in UNPLAYABLE:
        tasks = [TASKS[1], {**TASKS[0], **row}]
        refused = tool(action="collect", agent="expert", environment="mcp:notes", tasks=tasks)
        assert refused["code"] == "bad_task_rows"
        assert refused["message"].startswith("1 of 2 tasks cannot be played: tasks[1]: ")
        assert message in refused["message"]
    several = {"mcp:notes": 1, "quintain/math": 1}
    assert "got several" in tool(action="collect", agent="expert", environment=several, tasks=tasks)["message"]


@pytest.mark.usefixtures("jobs_in_process")
def test_written_questions_are_played_without_a_server(tool: Caller) -> None:
    rows = [{"prompt": f"What is {n} + {n}?", "answer": 2 * n} for n in range(3)]
    collected = tool(action="collect", agent="expert", environment="quintain/tasks", tasks=rows, split="held_out")
    job = tool(action="wait", job_id=collected["job_id"])
    assert (job["result"]["n"], job["result"]["success_rate"], [*job["result"]["report"]]) == (3, 1.0, ["rate"]), job
