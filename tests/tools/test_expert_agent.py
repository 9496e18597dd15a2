"""The agent `expert`: the scripted policy of an environment, wherever an agent acts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.dict_calls import Caller
from tools.stored_records import write_rows

GENERATED = (
    "quintain/inventory",
    "quintain/math",
    "quintain/conversation",
    "quintain/engineering",
    "quintain/advisory",
    "quintain/discussion",
    "quintain/sandbox",
    "quintain/tools-1k",
    "quintain/tools-1k?mode=direct",
)
NIM = "quintain/nim"
"""A game, which needs an opponent: `test_opponents`."""


@pytest.fixture
def questions(home: Path) -> Path:
    """Three questions with answers, in the inbox."""
    rows = [{"id": f"q{i}", "prompt": f"What is {i} + 1?", "answer": i + 1, "split": "train"} for i in range(3)]
    return write_rows(home / "inbox" / "questions.jsonl", *rows)


@pytest.mark.usefixtures("jobs_in_process")
def test_the_expert_gives_demonstrations_for_every_built_in_environment(tool: Caller, questions: Path) -> None:
    items = tool(action="library", kind="environments")["items"]
    listed = {item["id"] for item in items if item["id"].startswith("quintain/")}
    environments = (*GENERATED, f"quintain/tasks?file={questions}", f"quintain/math?file={questions}")
    assert listed <= {reference.partition("?")[0] for reference in environments} | {"quintain/benchmark", NIM}
    for environment in environments:
        collected = tool(action="collect", agent="expert", environment=environment, n_tasks=2)
        job = tool(action="wait", job_id=collected["job_id"])
        assert (job["status"], job["result"]["success_rate"]) == ("succeeded", 1.0), (environment, job)
        exported = tool(action="export", kind="sft", name="demonstrations", filter={"job_id": job["job_id"]})
        assert (exported["status"], exported["rows"]) == ("success", 2), (environment, exported)


def test_the_expert_cannot_be_trained_and_a_program_says_what_can(tool: Caller) -> None:
    refused = tool(action="train", algorithm="grpo", model_name="expert", environment="quintain/inventory")
    assert (refused["status"], refused["code"]) == ("error", "no_weights")
    named = tool(action="register", name="expert", model="starter")
    assert named["status"] == "error"
