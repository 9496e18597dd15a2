"""An evolution through an MCP client: the embedded model gets better by what it plays itself."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.types import ImageContent

from jobs_in_process import jobs_in_process  # noqa: F401
from mcp_client import call, ended, finished
from quintain.jobs.directory import JobDirectory
from quintain.server.app import build_server
from quintain.settings import Settings
from quintain.tools.catalog import CATALOG
from quintain.tools.services import open_services

INVENTORY = "quintain/inventory"
SMALL: dict[str, Any] = {
    "iterations": 1,
    "tasks_per_iteration": 5,
    "attempts": 2,
    "evaluation_tasks": 3,
    "final_tasks": 2,
    "training": {"max_steps": 3, "batch_size": 4},
}


@pytest.mark.usefixtures("jobs_in_process")
def test_an_evolution_ends_in_an_agent_whose_lineage_and_gain_can_be_looked_at(settings: Settings) -> None:
    async def scenario() -> None:
        async with Client(build_server(CATALOG, lambda: open_services(settings))) as client:
            asked = {"method": "evolve", "model": "starter", "environment": INVENTORY, "name": "keeper"}
            view = await finished(client, "start_training", **asked, hyperparameters=SMALL)
            result, report = view["result"], view["result"]["report"]
            (one,) = report["rounds"]
            assert (result["agent"], report["result_round"]) == ("agent:keeper@1", 1)
            assert one["decision"] in {"better", "ahead"}
            assert (view["kind"], view["step"]) == ("evolve", view["total_steps"])
            assert report["final"]["after"] == result["success_rate"] >= report["final"]["before"]

            compared = await call(client, "compare_agents", agents=report["final"]["evaluations"])
            (pair,) = compared["comparisons"]
            assert pair["difference"] == pytest.approx(report["final"]["gain"])
            assert str(report["final"]["evaluations"]) in view["next_step"]

            learned = (await call(client, "get_lineage", id=result["agent"]))["learned_from"]
            assert learned == {"count": one["rows"], "filters": [{"dataset_id": one["dataset_id"], "split": "train"}]}
            runs = await call(client, "search_trajectories", filter=learned["filters"][0], limit=50)
            assert {run["outcome"] for run in runs["items"]} == {"success"}
            played = await call(
                client, "search_trajectories", filter={"job_id": view["job_id"], "tags": ["rollout"]}, limit=50
            )
            assert len(played["items"]) == one["explored"] == 10
            chosen = {run["id"] for run in runs["items"]}
            left_out = next(run for run in played["items"] if run["id"] not in chosen)
            shaped = [(await call(client, "get_lineage", id=run))["shaped"] for run in (min(chosen), left_out["id"])]
            assert set(shaped[0]) == {"agent:keeper@1", "agent:keeper-round-1@1"}
            assert shaped[1] == [], "a run that was not selected shaped nobody"

            text, image = (await client.call_tool("plot_job", {"job_id": view["job_id"]})).content
            assert "Success by round" in text.text
            assert isinstance(image, ImageContent)
            (listed,) = (await call(client, "list_jobs", kind="evolve"))["items"]
            assert listed["job_id"] == view["job_id"]
            (page,) = (await client.read_resource("guide://methods/evolve")).contents
            assert "`patience`" in page.text

    anyio.run(scenario)


@pytest.mark.usefixtures("jobs_in_process")
def test_an_evolution_by_ppo_learns_from_all_that_it_plays_and_its_agents_name_it(settings: Settings) -> None:
    async def scenario() -> None:
        async with Client(build_server(CATALOG, lambda: open_services(settings))) as client:
            asked = {"method": "evolve", "model": "starter", "environment": INVENTORY, "name": "keeper"}
            training = {"tasks_per_step": 2, "updates_per_rollout": 1, "max_new_tokens": 64}
            few = {"tasks_per_iteration": 4, "evaluation_tasks": 2, "final_tasks": 2}
            changes = {"train": "ppo", "training": training, "max_turns": 3, **few}
            view = await finished(client, "start_training", **asked, hyperparameters={**SMALL, **changes})
            (one,) = view["result"]["report"]["rounds"]
            assert (one["explored"], one["selected"]) == (8, 8), "two rollouts of two tasks, each played twice"
            assert one["decision"] in {"better", "ahead", "kept"}
            learned = (await call(client, "get_lineage", id="agent:keeper-round-1@1"))["learned_from"]
            assert learned == {"count": 8, "filters": [{"job_id": view["job_id"], "tags": ["rollout"]}]}
            runs = await call(client, "search_trajectories", filter=learned["filters"][0], limit=50)
            shaped = (await call(client, "get_lineage", id=runs["items"][0]["id"]))["shaped"]
            assert "agent:keeper-round-1@1" in shaped

    anyio.run(scenario)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_an_evolution_whose_processes_are_killed_makes_the_starter_surely_better(settings: Settings) -> None:
    """Two rounds of 80 episodes; its worker and shim die while it explores for the second time."""
    settings_of_it = {
        "iterations": 2,
        "tasks_per_iteration": 40,
        "attempts": 2,
        "evaluation_tasks": 30,
        "final_tasks": 40,
    }

    async def scenario() -> dict[str, Any]:
        async with Client(build_server(CATALOG, lambda: open_services(settings))) as client:
            asked = {
                "method": "evolve",
                "model": "starter",
                "environment": INVENTORY,
                "hyperparameters": settings_of_it,
            }
            job_id = (await call(client, "start_training", **asked))["job_id"]
            with anyio.fail_after(500):
                while "02-" not in ((view := await call(client, "get_job", job_id=job_id, wait_s=5))["phase"] or ""):
                    assert not ended(view), view
                shim = JobDirectory(settings.jobs_dir / job_id).shim()
                for pid in (shim.worker, shim.shim):
                    if pid is not None:
                        os.kill(pid, signal.SIGKILL)
                while not ended(view := await call(client, "get_job", job_id=job_id, wait_s=5)):
                    pass
            return view

    view = anyio.run(scenario)
    assert (view["status"], view["attempt"]) == ("succeeded", 2), view
    final = view["result"]["report"]["final"]
    assert final["ci_low"] > 0.2, json.dumps(view["result"]["report"])
    assert final["significant"]
