"""Methods beside SFT over stdio, with real jobs: pairs and groups from own runs, and learning in an environment."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.types import TextContent

from mcp_client import call, ended, server, until
from quintain.settings import Settings

ENVIRONMENT = "quintain/inventory"


async def train(client: Client, method: str, settings: dict[str, Any], **source: Any) -> dict[str, Any]:
    request = {"method": method, "model": "starter", "name": method, "hyperparameters": settings, **source}
    started = await call(client, "start_training", **request)
    view = await until(client, started["job_id"], ended)
    assert view["status"] == "succeeded", view
    return view


async def learn(client: Client) -> dict[str, Any]:
    tried = {"agent": "starter", "environment": ENVIRONMENT, "n_tasks": 8, "attempts": 4, "seed": 1}
    rollouts = await call(client, "collect_rollouts", **tried)
    result = (await until(client, rollouts["job_id"], ended))["result"]["trajectories"]
    assert result["count"] == 32
    data = {
        kind: await call(client, "export_dataset", kind=kind, name=f"own-{kind}", filter=result["filter"])
        for kind in ("dpo", "kto", "grpo")
    }
    few = {"max_steps": 2, "batch_size": 2}
    acting = {"rollouts": 2, "tasks_per_step": 4, "group_size": 4}
    views = {
        "dpo": await train(client, "dpo", {**few, "lora": {"rank": 4}}, dataset_id=data["dpo"]["dataset_id"]),
        "kto": await train(client, "kto", few, dataset_id=data["kto"]["dataset_id"]),
        "ranking": await train(client, "ranking", few, dataset_id=data["grpo"]["dataset_id"]),
        "grpo": await train(client, "grpo", acting, environment=ENVIRONMENT),
        "sample-and-pair": await train(client, "dpo", acting, environment=ENVIRONMENT, name="sample-and-pair"),
    }
    wrong = await client.call_tool(
        "start_training", {"method": "sft", "model": "starter", "dataset_id": data["dpo"]["dataset_id"]}
    )
    offline = await client.call_tool(
        "start_training", {"method": "orpo", "model": "starter", "environment": ENVIRONMENT}
    )
    evaluation = await call(client, "evaluate_agent", agent="dpo", environment=ENVIRONMENT, n_tasks=4)
    return {
        "data": data,
        "views": views,
        "wrong": wrong,
        "offline": offline,
        "evaluation": await until(client, evaluation["job_id"], ended),
        "played": await call(client, "search_trajectories", filter={"job_id": views["grpo"]["job_id"]}, limit=100),
        "agents": await call(client, "list_library", kind="agents"),
    }


@pytest.mark.soak
def test_pairs_labels_groups_and_an_environment_train_agents_that_act(settings: Settings) -> None:
    async def talk() -> dict[str, Any]:
        async with Client(server(settings)) as client:
            return await learn(client)

    result = anyio.run(talk)
    assert all(built["rows"] > 0 for built in result["data"].values())
    reports = {method: view["result"]["report"] for method, view in result["views"].items()}
    assert {method: report["steps"] for method, report in reports.items()} == dict.fromkeys(reports, 2)
    assert abs(reports["dpo"]["first_loss"] - 0.693147) < 1e-4  # model and reference are one before the first step
    assert len(result["played"]["items"]) == 2 * 4 * 4
    assert all("rollout" in item["tags"] for item in result["played"]["items"])
    assert {agent["name"] for agent in result["agents"]["items"]} >= result["views"].keys()
    assert result["evaluation"]["result"]["n"] == 4
    for refused, needed in ((result["wrong"], "sft"), (result["offline"], "dataset")):
        assert refused.is_error
        (text,) = (block.text for block in refused.content if isinstance(block, TextContent))
        assert needed in text
