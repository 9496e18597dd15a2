"""Jobs that train over two processes: by tool, in an environment and on data, and through the death of their worker."""

from __future__ import annotations

import os
import signal
from typing import Any

import anyio
import psutil
import pytest
from mcp import Client

from expert_runs import store_expert_runs
from mcp_client import call, ended, server, until
from quintain.jobs.directory import JobDirectory
from quintain.settings import Settings

STEPS = 20
ON_DATA = {"max_steps": STEPS, "epochs": 100, "batch_size": 4, "checkpoint_every_steps": 4, "processes": 2}
ACTING = {"rollouts": 1, "tasks_per_step": 2, "group_size": 4, "processes": 2}


async def killed_and_resumed(client: Client, settings: Settings) -> dict[str, Any]:
    """Kill the worker, and nothing else, after six steps of a training; returns how the job ended."""
    exported = await call(client, "export_dataset", kind="sft", name="expert", filter={"tags": ["expert"]})
    request = {"method": "sft", "model": "starter", "name": "pupil", "hyperparameters": ON_DATA}
    job_id = (await call(client, "start_training", dataset_id=exported["dataset_id"], **request))["job_id"]
    await until(client, job_id, lambda view: view["step"] >= 6)
    shim = JobDirectory(settings.jobs_dir / job_id).shim()
    ranks = [child for child in psutil.Process(shim.worker).children() if str(settings.home) in child.cmdline()[-1]]
    assert len(ranks) == 1, "one process beside the worker"
    os.kill(shim.worker, signal.SIGKILL)
    _, alive = psutil.wait_procs(ranks, timeout=10)
    assert alive == [], "the other process ends with the worker"
    return await until(client, job_id, ended)


async def acted(client: Client) -> dict[str, Any]:
    request = {"method": "grpo", "model": "starter", "name": "actor", "hyperparameters": ACTING}
    job_id = (await call(client, "start_training", environment="quintain/inventory", **request))["job_id"]
    return await until(client, job_id, ended)


@pytest.mark.soak
def test_jobs_of_two_processes_act_learn_and_survive_their_worker(settings: Settings) -> None:
    store_expert_runs(settings, 12)

    async def scenario() -> tuple[dict[str, Any], dict[str, Any]]:
        async with Client(server(settings)) as client:
            return await acted(client), await killed_and_resumed(client, settings)

    online, resumed = anyio.run(scenario)
    assert online["status"] == "succeeded", online
    assert online["result"]["report"]["steps"] == 1
    assert (resumed["status"], resumed["step"], resumed["attempt"]) == ("succeeded", STEPS, 2), resumed
    assert resumed["result"]["report"]["resumed_from_step"] >= 4
    left = [p.info["cmdline"] for p in psutil.process_iter(["cmdline"]) if str(settings.home) in str(p.info["cmdline"])]
    assert [line for line in left if "serve(" in str(line)] == [], "no process of a run stays behind"
