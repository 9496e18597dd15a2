"""A training over two nodes of Slurm, whose commands run its batch script on this machine."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

import fake_slurm
from expert_runs import store_expert_runs
from mcp_client import call, finished, server
from quintain.settings import Settings


@pytest.mark.soak
def test_a_training_over_two_nodes_starts_the_processes_of_both(settings: Settings, tmp_path: Path) -> None:
    program = server(settings)
    assert program.env is not None
    program.env |= {"PATH": fake_slurm.install(tmp_path / "slurm"), "OMP_NUM_THREADS": "1"}
    program.env |= {"QUINTAIN_LAUNCHER": "slurm", "QUINTAIN_CLUSTER_ENV": "HF_HUB_OFFLINE,OMP_NUM_THREADS"}
    store_expert_runs(settings, 12)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    two_nodes = {"max_steps": 6, "batch_size": 4, "processes": 2, "machines": 2, "rendezvous": f"slurm:{port}"}

    async def scenario() -> dict[str, Any]:
        async with Client(program) as client:
            dataset = await call(client, "export_dataset", kind="sft", name="expert", filter={"tags": ["expert"]})
            request = {"method": "sft", "model": "starter", "name": "pupil", "hyperparameters": two_nodes}
            view = await finished(client, "start_training", dataset_id=dataset["dataset_id"], **request)
            return view | {"log": (await call(client, "get_job", job_id=view["job_id"], detail="log"))["log"]}

    view = anyio.run(scenario)
    assert (view["status"], view["step"], view["attempt"]) == ("succeeded", 6, 1), view
    (job,) = (tmp_path / "slurm").glob("*.json")
    assert fake_slurm.read(job)["options"]["nodes"] == "2"
