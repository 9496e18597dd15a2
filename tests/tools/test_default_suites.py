"""Evaluate without an environment: what the agent was trained for is measured, never another environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from quintain.records.agent import Agent, ModelRef
from quintain.tools.evaluation.default_suites import default_suite
from quintain.tools.services import Services
from tools.dict_calls import Caller
from tools.stored_records import write_rows


@pytest.mark.usefixtures("jobs_in_process")
def test_an_agent_trained_on_questions_is_measured_on_questions(
    tool: Caller, services: Services, home: Path, tmp_path: Path
) -> None:
    rows = [{"question": f"What is {i} + 1?", "answer": f"{i} + 1 = {i + 1}.\n#### {i + 1}"} for i in range(6)]
    path = write_rows(home / "inbox" / "gsm8k.jsonl", *rows)
    imported = tool(action="import", path=str(path), tags=["gsm8k"])
    assert imported["imported"] == 6, imported
    kept = {"outcomes": ["unknown"]}
    one = tool(action="export", kind="sft", name="held", filter={"tags": ["gsm8k"]}, validation_share=0.3, **kept)
    other = tool(action="export", kind="sft", name="whole", filter={"tags": ["gsm8k"]}, validation_share=0.0, **kept)
    brief = {"max_steps": 1, "batch_size": 1}
    out = tmp_path / "out"
    assert one["status"] == other["status"] == "success", (one, other)
    trained = tool(dataset=one["dataset_id"], name="solver", use_lora=False, output_dir=str(out), hyperparameters=brief)
    assert trained["status"] == "success", trained
    suite = {"dataset_id": one["dataset_id"]}
    assert default_suite(services, "solver") == default_suite(services, str(out)) == suite
    measured = tool(action="evaluate", model_path="solver", max_samples=2, sampling={"max_new_tokens": 4})
    assert (measured["status"], measured["environment"]) == ("success", f"dataset:{one['dataset_id']}"), measured
    assert measured["num_samples"] == 2
    crammer = Agent(name="crammer", model=ModelRef(source="folder", path="/m"), dataset_id=other["dataset_id"])
    services.store.agents.add(crammer, services.clock())
    refused = tool(action="evaluate", agent="crammer")
    assert (refused["status"], refused["code"]) == ("error", "no_suite")


@pytest.mark.usefixtures("jobs_in_process")
def test_an_agent_is_measured_where_its_runs_were_recorded(tool: Caller, services: Services) -> None:
    assert default_suite(services, "starter") == {"environment": "quintain/inventory"}
    collected = tool(action="collect", agent="expert", environment="quintain/math", n_tasks=2)
    tool(action="wait", job_id=collected["job_id"])
    exported = tool(
        action="export", kind="sft", name="demos", filter={"job_id": collected["job_id"]}, validation_share=0.0
    )
    assert exported["status"] == "success", exported
    agent = Agent(name="calc", model=ModelRef(source="folder", path="/m"), dataset_id=exported["dataset_id"])
    services.store.agents.add(agent, services.clock())
    assert default_suite(services, "calc") == {"environment": "quintain/math"}
