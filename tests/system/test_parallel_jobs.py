"""Jobs that train in two processes: by tool, in an environment and on data, and through the death of a process and of the worker."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
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


def ranks_of(worker: int) -> list[psutil.Process]:
    """Return the processes of a training, the first one first."""
    return sorted(psutil.Process(worker).children(), key=lambda child: int(child.environ()["RANK"]))


async def trained(client: Client, settings: Settings, name: str, kill: Callable[[int], int]) -> dict[str, Any]:
    """Kill a process after six steps of a training; return how the job's attempt ended."""
    datasets = await call(client, "export_dataset", kind="sft", name="expert", filter={"tags": ["expert"]})
    request = {"method": "sft", "model": "starter", "name": name, "hyperparameters": ON_DATA}
    job_id = (await call(client, "start_training", dataset_id=datasets["dataset_id"], **request))["job_id"]
    await until(client, job_id, lambda view: view["step"] >= 6)
    worker = JobDirectory(settings.jobs_dir / job_id).shim().worker
    processes = ranks_of(worker)
    assert len(processes) == 2
    os.kill(kill(worker), signal.SIGKILL)
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert alive == [], "every process of the training ends with the killed one"
    return await until(client, job_id, ended)


async def acted(client: Client) -> dict[str, Any]:
    request = {"method": "grpo", "model": "starter", "name": "actor", "hyperparameters": ACTING}
    job_id = (await call(client, "start_training", environment="quintain/inventory", **request))["job_id"]
    return await until(client, job_id, ended)


async def cancelled(client: Client, job_id: str) -> dict[str, Any]:
    await call(client, "resume_job", job_id=job_id)
    await until(client, job_id, lambda view: view["step"] >= 10)
    await call(client, "cancel_job", job_id=job_id)
    return await until(client, job_id, ended)


@pytest.mark.soak
def test_jobs_of_two_processes_act_learn_and_survive_their_worker(settings: Settings) -> None:
    store_expert_runs(settings, 12)

    async def scenario() -> dict[str, dict[str, Any]]:
        async with Client(server(settings)) as client:
            views = {"acted": await acted(client)}
            views["without worker"] = await trained(client, settings, "pupil", lambda worker: worker)
            views["without rank 2"] = await trained(client, settings, "pupil-2", lambda worker: ranks_of(worker)[1].pid)
            views["cancelled"] = await cancelled(client, views["without rank 2"]["job_id"])
            await call(client, "resume_job", job_id=views["cancelled"]["job_id"])
            views["resumed"] = await until(client, views["cancelled"]["job_id"], ended)
            views["without rank 1"] = await trained(client, settings, "pupil-3", lambda worker: ranks_of(worker)[0].pid)
            return views

    views = anyio.run(scenario)
    assert views["acted"]["status"] == "succeeded", views
    assert views["acted"]["result"]["report"]["steps"] == 1
    restarted = views["without worker"]
    assert (restarted["status"], restarted["step"], restarted["attempt"]) == ("succeeded", STEPS, 2), restarted
    assert restarted["result"]["report"]["resumed_from_step"] >= 4
    for n in (1, 2):
        error = views[f"without rank {n}"]["error"]
        assert error["code"] == "process_lost", error
        assert f"process {n} of 2 was killed by SIGKILL; resume the job" in error["message"]
    assert views["cancelled"]["status"] == "cancelled"
    assert (views["resumed"]["status"], views["resumed"]["step"]) == ("succeeded", STEPS), views["resumed"]
    assert views["resumed"]["result"]["report"]["resumed_from_step"] == views["cancelled"]["step"]
    left = [p.info["cmdline"] for p in psutil.process_iter(["cmdline"]) if str(settings.home) in str(p.info["cmdline"])]
    assert [line for line in left if "quintain.worker" in str(line)] == [], "no process of a run stays behind"
