"""Step-level preferences from the tools to a trained agent: forks mined, frozen, and learnt from by DPO in a real job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from mcp_client import call, finished, server
from quintain.datasets.rows import read_rows
from quintain.records.agent import ModelRef
from quintain.records.hyperparameters import DPOConfig
from quintain.records.trajectory import Actor
from quintain.settings import Settings
from quintain.tools.training.model_folders import starter_folder
from quintain.trainers.data.examples import ExampleMaker
from quintain.trainers.models import load_model


def _forked(task: int, item: str, *, good: bool) -> dict[str, Any]:
    """Every run looks first and sees the same; the good one then takes the box, the bad one the key."""
    calls = [("look", {"place": "shelf"}, "a box and a key"), ("take", {"item": item}, "taken")]
    steps: list[dict[str, Any]] = [{"actor": "user", "message": f"Fetch the box, please. Task {task}."}]
    for n, (tool, args, seen) in enumerate(calls):
        action = {"tool": tool, "args": args, "call_id": f"{item}{n}"}
        steps.append(
            {"actor": "agent", "actions": [action], "observations": [{"call_id": f"{item}{n}", "content": seen}]}
        )
    steps.append({"actor": "agent", "message": f"I have the {item}."})
    return {
        "task": {"id": f"fetch-{task}", "prompt": f"Fetch the box, please. Task {task}."},
        "steps": steps,
        "outcome": {"status": "success" if good else "failure"},
        "tags": ["fetch"],
    }


async def _learn(client: Client) -> dict[str, Any]:
    for task in range(4):
        for item in ("box", "key"):
            await call(client, "record_trajectory", trajectory=_forked(task, item, good=item == "box"))
    which = {"tags": ["fetch"]}
    mined = await call(client, "record_preferences", source="mined", filter=which, mode="forks")
    data = await call(client, "export_dataset", kind="dpo", name="forks", filter=which, pairs="recorded:mined")
    settings = {"max_steps": 12, "batch_size": 4, "learning_rate": 1e-3}
    request = {"method": "dpo", "model": "starter", "name": "fetcher", "dataset_id": data["dataset_id"]}
    view = await finished(client, "start_training", hyperparameters=settings, **request)
    return {
        "mined": mined,
        "data": data,
        "view": view,
        "agent": await call(client, "get_lineage", id="agent:fetcher@1"),
    }


@pytest.mark.soak
def test_an_agent_learns_from_the_step_at_which_runs_part_and_from_nothing_else(settings: Settings) -> None:
    """Before the first step policy and reference are one: -log sigmoid(0) = 0.693147; 12 steps on 4 pairs bring it down."""

    async def talk() -> dict[str, Any]:
        async with Client(server(settings)) as client:
            return await _learn(client)

    result = anyio.run(talk)
    assert result["mined"]["created"] == 4
    assert {example["step"] for example in result["mined"]["examples"]} == {1}
    assert result["data"]["rows"] == 4
    assert result["view"]["status"] == "succeeded", result["view"]
    report = result["view"]["result"]["report"]
    assert abs(report["first_loss"] - 0.693147) < 1e-4
    assert report["final_loss"] < 0.6
    assert result["agent"]["learned_from"]["count"] == 8

    tokenizer = load_model(ModelRef(source="starter", path=str(starter_folder()))).tokenizer
    for config in (DPOConfig(), DPOConfig(step_level=True)):
        maker = ExampleMaker.of(tokenizer, "auto", config, 4096)
        for row in read_rows(Path(result["data"]["path"]), "train", kind="dpo"):
            assert row.chosen.steps[2].actor is Actor.AGENT
            (example,) = maker.make([row]).examples
            for tokens in example.rows:
                assert set(tokens.step_index[tokens.supervised]) == {2}, (
                    "the question is step 0, the shared look step 1"
                )
