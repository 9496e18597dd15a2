"""Training survives the death of its processes: a real client, a real server, real training, and SIGKILL."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from mcp import Client

from expert_runs import store_expert_runs
from jobs_in_process import in_process
from mcp_client import call, ended, server, until
from quintain.jobs.directory import JobDirectory
from quintain.server.app import create_server
from quintain.settings import Settings
from quintain.threads import GOMP_SPINCOUNT

STEPS = 24
THREADS_SLEEP_EARLY = f"GOMP_SPINCOUNT = '{GOMP_SPINCOUNT}'" if sys.platform == "linux" else ""
TRAINING = {
    "method": "sft",
    "model": "starter",
    "name": "pupil",
    "hyperparameters": {"max_steps": STEPS, "epochs": 100, "batch_size": 4, "checkpoint_every_steps": 5},
}


@pytest.fixture
def dataset(settings: Settings) -> str:
    """The name of a dataset to be, of the scripted expert's runs in the test's home."""
    store_expert_runs(settings, 24)
    return "expert"


async def start_and_reach(client: Client, dataset: str, step: int) -> str:
    """Start training over MCP and wait for a step; returns while server, shim and worker are at work."""
    exported = await call(client, "export_dataset", kind="sft", name=dataset, filter={"tags": ["expert"]})
    started = await call(client, "start_training", dataset_id=exported["dataset_id"], **TRAINING)
    await until(client, started["job_id"], lambda view: view["step"] >= step)
    return str(started["job_id"])


def server_process() -> psutil.Process:
    (found,) = [child for child in psutil.Process().children() if "serve" in child.cmdline()]
    return found


def test_a_training_survives_its_server_its_processes_and_a_cancel(settings: Settings, dataset: str) -> None:
    """Kill the server, then worker and shim; cancel the second attempt, and resume it as a new job.

    The next server, and the attempt of the resumed job, run in this process.
    """
    verbose = server(settings)
    verbose.env = {**(verbose.env or {}), "OMP_DISPLAY_ENV": "VERBOSE"}

    async def scenario() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], list[list[int]]]:
        async with Client(verbose) as client:
            job_id = await start_and_reach(client, dataset, step=3)
            os.kill(server_process().pid, signal.SIGKILL)
        async with Client(create_server(settings)) as client:
            alone = await until(client, job_id, lambda view: view["step"] >= 10 or ended(view))
            shim = JobDirectory(settings.jobs_dir / job_id).shim()
            for pid in (shim.worker, shim.shim):
                if pid is not None:
                    os.kill(pid, signal.SIGKILL)
            await until(client, job_id, lambda view: view["attempt"] == 2 and view["step"] >= 12)
            await call(client, "cancel_job", job_id=job_id)
            cancelled = await until(client, job_id, ended)
        with in_process():
            return alone, cancelled, *await resume(job_id)

    async def resume(job_id: str) -> tuple[dict[str, Any], list[list[int]]]:
        async with Client(create_server(settings)) as client:
            again = await call(client, "resume_job", job_id=job_id)
            resumed = await until(client, again["job_id"], ended)
            curves = [
                (await call(client, "get_job", job_id=one, detail="metrics"))["curves"]["loss"]["steps"]
                for one in (job_id, again["job_id"])
            ]
            return resumed, curves

    alone, cancelled, resumed, (first, second) = anyio.run(scenario)
    assert (alone["status"], alone["attempt"]) == ("running", 1), alone
    assert (cancelled["status"], cancelled["error"], cancelled["attempt"]) == ("cancelled", None, 2)
    assert first == list(range(1, cancelled["step"] + 1)), "every step counts once, although a kill repeated some"
    assert (resumed["status"], resumed["step"], resumed["resumed_from"]) == ("succeeded", STEPS, cancelled["job_id"])
    assert resumed["total_steps"] == STEPS
    resumed_from = resumed["result"]["report"]["resumed_from_step"]
    assert resumed_from >= 10, "it continues from a checkpoint of the cancelled job"
    assert second == list(range(1, STEPS + 1)), "the curve of a resumed job is whole"
    assert resumed["result"]["agent"] == "agent:pupil@1"
    assert leftovers(settings.home) == [], "no process stays behind"
    log = JobDirectory(settings.jobs_dir / str(cancelled["job_id"])).path / "log"
    assert THREADS_SLEEP_EARLY in log.read_text(), "the worker's OpenMP has read the limit on spinning"


def leftovers(home: Path) -> list[str]:
    """Command lines that still name this home, after a last moment to end."""
    deadline = time.monotonic() + 60
    while True:
        lines = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
        left = [line for line in lines if str(home) in line]
        if not left or time.monotonic() > deadline:
            return left
        psutil.wait_procs([], timeout=0.1)
