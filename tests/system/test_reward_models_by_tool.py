"""A reward model over stdio, with real jobs: from own runs to scores, and into GRPO."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.types import TextContent

from mcp_client import call, ended, server, until
from quintain.settings import Settings

ENVIRONMENT = "quintain/inventory"
FEW = {"max_steps": 3, "batch_size": 2}


async def done(client: Client, job_id: str) -> dict[str, Any]:
    view = await until(client, job_id, ended)
    assert view["status"] == "succeeded", view
    return view


async def learn(client: Client) -> dict[str, Any]:
    acting = {"agent": "starter", "environment": ENVIRONMENT, "n_tasks": 6, "attempts": 4, "seed": 2}
    rollouts = await done(client, (await call(client, "collect_rollouts", **acting))["job_id"])
    chosen = rollouts["result"]["trajectories"]["filter"]
    result: dict[str, Any] = {}
    result["data"] = await call(
        client, "export_dataset", kind="reward", name="pairs", filter=chosen, validation_share=0.4
    )
    request = {"method": "reward", "model": "starter", "name": "judge", "hyperparameters": FEW}
    started = await call(client, "start_training", dataset_id=result["data"]["dataset_id"], **request)
    result["trained"] = await done(client, started["job_id"])
    started = await call(client, "score_trajectories", scorer="agent:judge", filter=chosen)
    result["scored"] = await done(client, started["job_id"])
    result["stored"] = await call(client, "score_trajectories", scorer={"agent:judge": 1.0}, filter=chosen)
    started = await call(
        client,
        "start_training",
        method="grpo",
        model="starter",
        name="mixed",
        environment=ENVIRONMENT,
        hyperparameters={"rollouts": 1, "tasks_per_step": 3, "group_size": 4, "reward_model": "judge"},
    )
    result["mixed"] = await done(client, started["job_id"])
    result["curves"] = await call(client, "get_job", job_id=started["job_id"], detail="metrics")
    result["agents"] = (await call(client, "list_library", kind="agents"))["items"]
    one = [(await call(client, "search_trajectories", filter=chosen))["items"][0]["id"]]
    started = await call(client, "score_trajectories", scorer="montecarlo", judge="starter", trajectory_ids=one)
    await done(client, started["job_id"])
    result["valued"] = await call(client, "score_trajectories", scorer="montecarlo", trajectory_ids=one)
    result["refused"] = await client.call_tool("evaluate_agent", {"agent": "judge", "environment": ENVIRONMENT})
    return result


@pytest.mark.soak
def test_own_runs_train_a_reward_model_that_scores_and_rewards(settings: Settings) -> None:
    async def talk() -> dict[str, Any]:
        async with Client(server(settings)) as client:
            return await learn(client)

    result = anyio.run(talk)
    roles = {agent["name"]: agent["role"] for agent in result["agents"]}
    assert roles == {"starter": "policy", "judge": "reward_model", "mixed": "policy"}
    report = result["trained"]["result"]["report"]
    agreement = report["held_out_agreement"]
    assert agreement["n"] == result["data"]["splits"]["validation"] >= agreement["right"] >= 0
    assert 0 <= agreement["ci_low"] <= agreement["rate"] <= agreement["ci_high"] <= 1
    described = next(agent["description"] for agent in result["agents"] if agent["name"] == "judge")
    assert f"; {agreement['right']} of {agreement['n']} held-out pairs ordered as labelled" in described
    assert abs(report["first_loss"] - 0.693147) < 1e-4  # a head of zeros values all runs alike
    assert result["scored"]["result"]["n"] == 24
    assert result["stored"]["scored"] == 24
    assert {"reward_task", "reward_model"} <= result["curves"]["curves"].keys()
    assert result["refused"].is_error
    (text,) = (block.text for block in result["refused"].content if isinstance(block, TextContent))
    assert "not_a_policy" in text
    assert (result["valued"]["scored"], result["valued"]["unscored_count"]) == (1, 0)
