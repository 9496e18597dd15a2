"""The main job in both protocol eras, small: an agent acts, is scored, trained, evaluated and compared."""

from __future__ import annotations

import base64
import json
from typing import Any, Literal
from urllib.parse import quote

import anyio
import pytest
from mcp import Client
from mcp.types import ImageContent

from jobs_in_process import jobs_in_process  # noqa: F401
from mcp_client import call, finished, server
from quintain.server.app import create_server
from quintain.settings import Settings

ENVIRONMENT = "quintain/inventory"
N = 3


async def content(client: Client, uri: str) -> Any:
    return (await client.read_resource(uri)).contents[0]


async def improve(client: Client) -> dict[str, Any]:
    rollouts = await finished(client, "collect_rollouts", agent="starter", environment=ENVIRONMENT, n_tasks=N, seed=1)
    collected = rollouts["result"]["trajectories"]
    assert collected["count"] == N
    score = await call(client, "score_trajectories", scorer={"outcome": 0.5, "rules": 0.5}, filter=collected["filter"])
    assert (score["scored"], set(score["components"])) == (N, {"outcome", "rules"})
    every = ["success", "failure", "truncated"]
    data = await call(
        client,
        "export_dataset",
        kind="sft",
        name="tries",
        filter=collected["filter"],
        outcomes=every,
        validation_share=0.3,
    )
    assert data["rows"] + sum(data["dropped"].values()) == N
    training = {"method": "sft", "model": "starter", "dataset_id": data["dataset_id"], "name": "pupil"}
    few = {"max_steps": 3, "batch_size": 4}
    plan = await call(client, "plan_training", dataset_id=data["dataset_id"], hyperparameters=few)
    trained = await finished(client, "start_training", **training, hyperparameters=few)
    evaluations = [
        await finished(client, "evaluate_agent", agent=agent, environment=ENVIRONMENT, n_tasks=N, seed=2)
        for agent in ("starter", "pupil")
    ]
    compared = await call(client, "compare_agents", agents=["starter", "pupil"])
    on_rows = await finished(client, "evaluate_agent", agent="pupil", dataset_id=data["dataset_id"])
    board = await content(client, f"leaderboard://{quote(ENVIRONMENT, safe='')}")
    refused = await client.call_tool("evaluate_agent", {"agent": "starter", "dataset_id": "tries", "repeats": 3})
    held_out = await call(client, "search_trajectories", filter={"job_id": evaluations[0]["job_id"]}, limit=50)
    leak = await client.call_tool("export_dataset", {"kind": "sft", "name": "leak", "filter": {"tags": ["evaluation"]}})
    picture = await client.call_tool("plot_job", {"job_id": trained["job_id"]})
    return {
        "plan": plan,
        "trained": trained,
        "evaluations": evaluations,
        "compared": compared,
        "data": data,
        "on_rows": on_rows,
        "comparison": json.loads((await content(client, compared["resource_uri"])).text),
        "chart": base64.b64decode((await content(client, f"{compared['resource_uri']}/picture")).blob),
        "board": json.loads(board.text),
        "templates": [t.uri_template for t in (await client.list_resource_templates()).resource_templates],
        "lineage": await call(client, "get_lineage", id=on_rows["result"]["evaluation_id"]),
        "refused": refused.content[0].text,  # type: ignore[union-attr]
        "held_out": held_out,
        "leak": leak,
        "picture": picture,
        "metrics": await content(client, f"job://{trained['job_id']}/metrics"),
        "agents": await call(client, "list_library", kind="agents"),
    }


@pytest.mark.usefixtures("jobs_in_process")
def test_an_agent_acts_learns_and_is_compared(settings: Settings) -> None:
    check(anyio.run(improved, create_server(settings), "auto"))


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_it_does_so_over_stdio_with_workers_of_their_own(settings: Settings, mode: Literal["auto", "legacy"]) -> None:
    seen = anyio.run(improved, server(settings), mode)
    check(seen)
    assert seen["plan"]["estimate"]["memory_mb"] / seen["trained"]["metrics"]["peak_memory_mb"] >= 0.5


async def improved(connect: Any, mode: Literal["auto", "legacy"]) -> dict[str, Any]:
    async with Client(connect, mode=mode) as client:
        assert (client.protocol_version >= "2026") == (mode == "auto")
        return await improve(client)


def check(seen: dict[str, Any]) -> None:
    """The results of all tools of the main job agree with each other."""
    assert (seen["trained"]["step"], seen["trained"]["result"]["agent"]) == (3, "agent:pupil@1")
    assert seen["trained"]["result"]["final_loss"] > 0
    # At least: a worker within this process has the memory of other tests, too.
    assert seen["plan"]["estimate"]["memory_mb"] / seen["trained"]["metrics"]["peak_memory_mb"] <= 2
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
    assert "Loss" in text.text
    assert isinstance(image, ImageContent)
    assert seen["picture"].structured_content is None
    assert json.loads(seen["metrics"].text)["curves"]["loss"]["steps"] == [1, 2, 3]
    assert [agent["name"] for agent in seen["agents"]["items"]] == ["pupil", "starter"]
    assert seen["agents"]["items"][0]["parent"] == "agent:starter@1"
    check_resources(seen)
    check_measured_on_rows(seen)


def check_resources(seen: dict[str, Any]) -> None:
    """A comparison has a page with lineage and a chart, and an environment has a leaderboard."""
    assert seen["comparison"]["id"] == seen["compared"]["comparison_id"]
    assert [origin["agent_id"] for origin in seen["comparison"]["lineage"]] == ["agent:starter@1", "agent:pupil@1"]
    assert seen["chart"].startswith(b"\x89PNG")
    assert {row["agent"] for row in seen["board"]["rows"]} == {"agent:starter@1", "agent:pupil@1"}
    assert seen["board"]["environment"] == ENVIRONMENT
    assert {"leaderboard://{environment}", "comparison://{comparison_id}"} <= set(seen["templates"])


def check_measured_on_rows(seen: dict[str, Any]) -> None:
    """On a dataset an agent has a loss and matches of actions."""
    dataset_id, measured = seen["data"]["dataset_id"], seen["on_rows"]
    assert (measured["kind"], measured["result"]["dataset_id"]) == ("evaluate_dataset", dataset_id)
    report = measured["result"]["report"]
    assert 0 < report["loss"] < 1 < report["perplexity"]
    assert 0 <= report["action_match"] <= report["tool_match"] <= 1
    assert {"agent:pupil@1", dataset_id} <= {node["id"] for node in seen["lineage"]["ancestors"]}
    assert "on a dataset nothing is played" in seen["refused"]
