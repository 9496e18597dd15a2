"""The main job in both protocol eras, small: an agent acts, is scored, trained, evaluated and compared, over stdio."""

from __future__ import annotations

import json
from typing import Any, Literal

import anyio
import pytest
from mcp import Client
from mcp.types import ImageContent, TextContent, TextResourceContents

from mcp_client import call, ended, server, until
from quintain.settings import Settings

ENVIRONMENT = "quintain/inventory"
N = 4


async def job(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    started = await call(client, tool, **arguments)
    again = await call(client, tool, **arguments)
    assert (again["job_id"], again["deduplicated"]) == (started["job_id"], True), "a repeated start is the same job"
    view = await until(client, started["job_id"], ended)
    assert view["status"] == "succeeded", view
    return view


async def improve(client: Client) -> dict[str, Any]:
    rollouts = await job(client, "collect_rollouts", agent="starter", environment=ENVIRONMENT, n_tasks=N, seed=1)
    made = rollouts["result"]["trajectories"]
    assert made["count"] == N
    score = await call(client, "score_trajectories", scorer={"outcome": 0.5, "rules": 0.5}, filter=made["filter"])
    assert (score["scored"], set(score["components"])) == (N, {"outcome", "rules"})
    every = ["success", "failure", "truncated"]
    data = await call(
        client, "export_dataset", kind="sft", name="tries", filter=made["filter"], outcomes=every, validation_share=0.3
    )
    assert data["rows"] + sum(data["dropped"].values()) == N
    training = {"method": "sft", "model": "starter", "dataset_id": data["dataset_id"], "name": "pupil"}
    few = {"max_steps": 3, "batch_size": 4}
    plan = await call(client, "plan_training", dataset_id=data["dataset_id"], hyperparameters=few)
    trained = await job(client, "start_training", **training, hyperparameters=few)
    evaluations = [
        await job(client, "evaluate_agent", agent=agent, environment=ENVIRONMENT, n_tasks=N, seed=2)
        for agent in ("starter", "pupil")
    ]
    compared = await call(client, "compare_agents", agents=["starter", "pupil"])
    held_out = await call(client, "search_trajectories", filter={"job_id": evaluations[0]["job_id"]}, limit=50)
    leak = await client.call_tool("export_dataset", {"kind": "sft", "name": "leak", "filter": {"tags": ["evaluation"]}})
    picture = await client.call_tool("plot_job", {"job_id": trained["job_id"]})
    metrics = await client.read_resource(f"job://{trained['job_id']}/metrics")
    return {
        "plan": plan,
        "trained": trained,
        "evaluations": evaluations,
        "compared": compared,
        "held_out": held_out,
        "leak": leak,
        "picture": picture,
        "metrics": metrics,
        "agents": await call(client, "list_library", kind="agents"),
    }


@pytest.mark.parametrize("mode", ["auto", pytest.param("legacy", marks=pytest.mark.soak)])
def test_an_agent_acts_learns_and_is_compared(settings: Settings, mode: Literal["auto", "legacy"]) -> None:
    async def scenario() -> dict[str, Any]:
        async with Client(server(settings), mode=mode) as client:
            assert (client.protocol_version >= "2026") == (mode == "auto")
            return await improve(client)

    seen = anyio.run(scenario)
    assert (seen["trained"]["step"], seen["trained"]["result"]["agent"]) == (3, "agent:pupil@1")
    assert seen["trained"]["result"]["final_loss"] > 0
    assert 0.5 <= seen["plan"]["estimate"]["memory_mb"] / seen["trained"]["metrics"]["peak_memory_mb"] <= 2
    (pair,) = seen["compared"]["comparisons"]
    rates = [view["result"]["success_rate"] for view in seen["evaluations"]]
    assert pair["difference"] == pytest.approx(rates[1] - rates[0])
    assert pair["ci_low"] <= pair["difference"] <= pair["ci_high"]
    assert (pair["a"], pair["b"], pair["n_tasks"]) == ("starter", "pupil", N)
    assert {row["agent"] for row in seen["compared"]["leaderboard"]} == {"starter", "pupil"}
    assert len(seen["held_out"]["items"]) == N
    assert seen["leak"].is_error
    assert f"held_out_task {2 * N}" in seen["leak"].content[0].text
    text, image = seen["picture"].content
    assert isinstance(text, TextContent)
    assert "loss" in text.text
    assert isinstance(image, ImageContent)
    assert seen["picture"].structured_content is None
    (content,) = seen["metrics"].contents
    assert isinstance(content, TextResourceContents)
    assert json.loads(content.text)["curves"]["loss"]["steps"] == [1, 2, 3]
    assert [agent["name"] for agent in seen["agents"]["items"]] == ["pupil", "starter"]
    assert seen["agents"]["items"][0]["parent"] == "agent:starter@1"
