"""A job that trains in two processes: through the death of each process and of the worker, a cancel, and two resumes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from mcp import Client

from expert_runs import store_expert_runs
from mcp_client import call, ended, server, until
from quintain.jobs.directory import JobDirectory
from quintain.records.agent import Agent, ModelRef
from quintain.records.hyperparameters.methods import GRPOConfig
from quintain.records.jobs.job import Job, JobStatus, TrainSpec
from quintain.records.jobs.job_events import JobEvent
from quintain.settings import Settings
from quintain.tools.training.model_folders import starter_folder

STEPS = 24
SETTINGS = {"max_steps": STEPS, "epochs": 100, "batch_size": 4, "checkpoint_every_steps": 4, "processes": 2}


class Training:
    """A job, and the processes that it has on this machine."""

    def __init__(self, client: Client, settings: Settings, job_id: str) -> None:
        self.client, self.settings, self.job_id = client, settings, job_id

    async def reaches(self, step: int) -> None:
        await until(
            self.client,
            self.job_id,
            lambda view: (view["step"] >= step and self.has_stepped(view["attempt"])) or ended(view),
        )

    def has_stepped(self, attempt: int) -> bool:
        lines = JobDirectory(self.settings.jobs_dir / self.job_id).events.read_bytes().splitlines()
        return any((e.attempt, e.type) == (attempt, "progress") for e in map(JobEvent.model_validate_json, lines))

    async def begins(self, attempt: int) -> dict[str, Any]:
        view: dict[str, Any] = await until(
            self.client, self.job_id, lambda view: view["attempt"] == attempt or ended(view)
        )
        return view

    async def end(self) -> dict[str, Any]:
        view: dict[str, Any] = await until(self.client, self.job_id, ended)
        return view

    async def resume(self) -> None:
        self.job_id = (await call(self.client, "resume_job", job_id=self.job_id))["job_id"]

    def kill(self, which: int) -> None:
        """Kill a process of the training, by number from 1, or the worker, which is 0; all others must end with it."""
        worker = JobDirectory(self.settings.jobs_dir / self.job_id).shim().worker
        ranks = sorted(psutil.Process(worker).children(), key=lambda child: int(child.environ()["RANK"]))
        assert len(ranks) == 2
        os.kill([worker, *(rank.pid for rank in ranks)][which], signal.SIGKILL)
        _, alive = psutil.wait_procs(ranks, timeout=20)
        assert alive == []


@pytest.mark.soak
@pytest.mark.timeout(400)
@pytest.mark.parametrize("sharding", ["none", "full"])
def test_a_job_of_two_processes_survives_their_death_and_a_cancel(settings: Settings, sharding: str) -> None:
    store_expert_runs(settings, 12)

    async def scenario() -> dict[str, dict[str, Any]]:
        views = {}
        async with Client(server(settings)) as client:
            dataset = await call(client, "export_dataset", kind="sft", name="expert", filter={"tags": ["expert"]})
            request = {
                "method": "sft",
                "model": "starter",
                "name": "pupil",
                "hyperparameters": SETTINGS | {"sharding": sharding},
            }
            begun = await call(client, "start_training", dataset_id=dataset["dataset_id"], **request)
            training = Training(client, settings, begun["job_id"])
            for attempt, which in enumerate((2, 1), 2):
                await training.reaches(step=6 if which == 2 else 9)
                training.kill(which)
                views[f"without {which}"] = await training.begins(attempt)
            await training.reaches(step=13)
            await call(client, "cancel_job", job_id=training.job_id)
            views["cancelled"] = await training.end()
            await training.resume()
            await training.reaches(step=17)
            training.kill(0)
            views["without worker"] = await training.end()
            return views

    views = anyio.run(scenario)
    for which in (1, 2):
        view = views[f"without {which}"]
        assert view["status"] == "running", view
        assert f"attempt_ended: process {which} of 2 was killed by SIGKILL; " in view["warnings"][-1]
    assert views["cancelled"]["status"] == "cancelled", views["cancelled"]
    last = views["without worker"]
    assert (last["status"], last["step"], last["attempt"]) == ("succeeded", STEPS, 2), last
    assert last["result"]["report"]["resumed_from_step"] >= views["cancelled"]["step"]
    left = [p.info["cmdline"] for p in psutil.process_iter(["cmdline"]) if str(settings.home) in str(p.info["cmdline"])]
    assert [line for line in left if "quintain.worker" in str(line)] == [], "no process of a run stays behind"


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_two_machines_that_meet_share_a_sharded_job_that_acts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other machine is a launcher of its own here, as `torchrun` starts it."""
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        meeting = f"127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    asked = {"processes": 2, "machines": 2, "rendezvous": meeting, "sharding": "full"}
    acting = {"rollouts": 1, "tasks_per_step": 2, "group_size": 4, "learning_rate": 1e-4}
    spec = TrainSpec(
        method="grpo",
        agent=Agent(name="starter", model=ModelRef(source="starter", path=str(starter_folder()))),
        environment="quintain/inventory",
        name="actor",
        output_dir=str(home / "agents" / "actor"),
        config=GRPOConfig(**asked, **acting),
    )
    directory = JobDirectory(home / "jobs" / "job-1")
    now = datetime(2026, 1, 2, tzinfo=UTC)
    times = {"created_at": now, "updated_at": now}
    directory.prepare(Job(id="job-1", kind="train", spec=spec, status=JobStatus.QUEUED, request_key="k", **times))
    other = ["torch.distributed.run", "--nnodes", "2", "--node-rank", "1", "--nproc-per-node", "1"]
    other += ["--rdzv-backend", "static", "--rdzv-endpoint", meeting, "-m", "quintain.worker.rank"]
    machines = [["quintain.worker", str(directory.path), "1"], [*other, str(directory.path)]]
    launchers = [subprocess.Popen([sys.executable, "-m", *command], start_new_session=True) for command in machines]
    try:
        assert [launcher.wait(250) for launcher in launchers] == [0, 0], "both end, the second one too"
    finally:
        for launcher in launchers:
            with suppress(ProcessLookupError):
                os.killpg(launcher.pid, signal.SIGKILL)
            launcher.wait()
    events = [JobEvent.model_validate_json(line) for line in directory.events.read_bytes().splitlines()]
    assert events[-1].type == "result"
    assert (home / "agents" / "actor" / "model.safetensors").is_file()
