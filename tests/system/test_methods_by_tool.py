"""Methods beside SFT over stdio, with real jobs: pairs, groups and labels from own runs, a reward model, learning by acting."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.types import TextContent

from mcp_client import call, finished, server
from quintain.settings import Settings

ENVIRONMENT = "quintain/inventory"
FEW = {"max_steps": 2, "batch_size": 2}
VALUING = {
    "rollouts": 1,
    "updates_per_rollout": 2,
    "tasks_per_step": 16,
    "critic_warmup_steps": 1,
    "constraint": {"limit": 0.0},
}
ACTING = {"rollouts": 2, "tasks_per_step": 4, "group_size": 4}


async def train(client: Client, method: str, settings: dict[str, Any], **more: Any) -> dict[str, Any]:
    request = {"method": method, "model": "starter", "name": method, "hyperparameters": settings, **more}
    return await finished(client, "start_training", **request)


async def learn(client: Client) -> dict[str, Any]:
    tried = {"agent": "starter", "environment": ENVIRONMENT, "n_tasks": 8, "attempts": 4, "seed": 2}
    chosen = (await finished(client, "collect_rollouts", **tried))["result"]["trajectories"]["filter"]
    data = {
        kind: await call(client, "export_dataset", kind=kind, name=f"own-{kind}", filter=chosen)
        for kind in ("dpo", "kto", "grpo")
    }
    pairs = await call(client, "export_dataset", kind="reward", name="pairs", filter=chosen, validation_share=0.4)
    views = {
        "dpo": await train(client, "dpo", {**FEW, "lora": {"rank": 4}}, dataset_id=data["dpo"]["dataset_id"]),
        "kto": await train(client, "kto", FEW, dataset_id=data["kto"]["dataset_id"]),
        "ranking": await train(client, "ranking", FEW, dataset_id=data["grpo"]["dataset_id"]),
        "reward": await train(client, "reward", FEW, dataset_id=pairs["dataset_id"]),
        "grpo": await train(client, "grpo", {**ACTING, "reward_model": "reward"}, environment=ENVIRONMENT),
        "ppo": await train(client, "ppo", VALUING, environment=f"{ENVIRONMENT}?forbidden=open"),
        "sample-and-pair": await train(client, "dpo", ACTING, environment=ENVIRONMENT, name="sample-and-pair"),
    }
    requests: list[tuple[str, dict[str, Any]]] = [
        ("start_training", {"method": "sft", "model": "starter", "dataset_id": data["dpo"]["dataset_id"]}),
        ("start_training", {"method": "orpo", "model": "starter", "environment": ENVIRONMENT}),
        ("evaluate_agent", {"agent": "reward", "environment": ENVIRONMENT}),
    ]
    one = [(await call(client, "search_trajectories", filter=chosen))["items"][0]["id"]]
    await finished(client, "score_trajectories", scorer="montecarlo", judge="starter", trajectory_ids=one)
    return {
        "data": data,
        "pairs": pairs,
        "views": views,
        "refused": [await client.call_tool(tool, arguments) for tool, arguments in requests],
        "evaluation": await finished(client, "evaluate_agent", agent="dpo", environment=ENVIRONMENT, n_tasks=4),
        "played": await call(client, "search_trajectories", filter={"job_id": views["grpo"]["job_id"]}, limit=100),
        "curves": await call(client, "get_job", job_id=views["grpo"]["job_id"], detail="metrics"),
        "values": await call(client, "get_job", job_id=views["ppo"]["job_id"], detail="metrics"),
        "scored": await finished(client, "score_trajectories", scorer="agent:reward", filter=chosen),
        "stored": await call(client, "score_trajectories", scorer={"agent:reward": 1.0}, filter=chosen),
        "valued": await call(client, "score_trajectories", scorer="montecarlo", trajectory_ids=one),
        "agents": (await call(client, "list_library", kind="agents"))["items"],
    }


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_pairs_labels_groups_a_reward_model_and_an_environment_train_agents_that_act(settings: Settings) -> None:
    async def talk() -> dict[str, Any]:
        async with Client(server(settings)) as client:
            return await learn(client)

    result = anyio.run(talk)
    assert all(data["rows"] > 0 for data in result["data"].values())
    reports = {method: view["result"]["report"] for method, view in result["views"].items()}
    assert {method: report["steps"] for method, report in reports.items()} == dict.fromkeys(reports, 2)
    for method in (
        "dpo",
        "reward",
    ):  # model and reference are one before the first step; a head of zeros values all alike
        assert abs(reports[method]["first_loss"] - 0.693147) < 1e-4
    assert len(result["played"]["items"]) == 2 * 4 * 4
    assert all("rollout" in item["tags"] for item in result["played"]["items"])
    assert {"reward_task", "reward_model"} <= result["curves"]["curves"].keys()
    assert {"mean_cost", "cost_multiplier", "explained_variance", "value_loss"} <= result["values"]["curves"].keys()
    assert reports["ppo"]["constraint"]["mean_cost"] > 0
    assert result["evaluation"]["result"]["n"] == 4
    for refused, needed in zip(result["refused"], ("sft", "dataset", "not_a_policy"), strict=True):
        assert refused.is_error
        (text,) = (block.text for block in refused.content if isinstance(block, TextContent))
        assert needed in text
    check_reward_model(result, reports["reward"]["held_out_agreement"])
    assert (result["valued"]["scored"], result["valued"]["unscored_count"]) == (1, 0)


def check_reward_model(result: dict[str, Any], agreement: dict[str, Any]) -> None:
    """It is described by its held-out agreement, and its scores of all 32 runs are stored."""
    agents = {agent["name"]: agent for agent in result["agents"]}
    assert agents.keys() >= result["views"].keys()
    assert {name for name, agent in agents.items() if agent["role"] == "reward_model"} == {"reward"}
    assert agreement["n"] == result["pairs"]["splits"]["validation"] >= agreement["right"] >= 0
    assert 0 <= agreement["ci_low"] <= agreement["rate"] <= agreement["ci_high"] <= 1
    described = agents["reward"]["description"]
    assert f"; {agreement['right']} of {agreement['n']} held-out pairs ordered as labelled" in described
    assert (result["scored"]["result"]["n"], result["stored"]["scored"]) == (32, 32)
