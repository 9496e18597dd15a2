"""Artifacts through the real server, worker processes and environment variables: a bucket, a Hub, and an empty machine."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from hub_endpoint import TOKEN, local_hub
from mcp_client import call, ended, until
from quintain.artifacts.transfers import fetch, names_below
from quintain.errors import InvalidInput, NotFound
from quintain.records.agent import Agent, ModelRef
from quintain.records.filters import TrajectoryFilter
from quintain.server.app import create_server
from quintain.settings import Settings
from quintain.tools.data.datasets import export_dataset
from quintain.tools.services import open_services
from trajectory_runs import NOW, run

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]


def test_an_agent_goes_to_a_bucket_and_a_hub_and_comes_back_in_another_home(
    bucket: str, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tiny_models import save_tiny_model

    allowed = settings.model_copy(update={"artifacts": (bucket, "hub:owner")})
    services = open_services(allowed)
    base = ModelRef(source="folder", path=str(save_tiny_model(settings.agents_dir / "base")))
    services.store.agents.add(Agent(name="clerk", model=base, system_prompt="Be brief."), NOW)
    services.close()

    async def push(destination: str, path: str) -> dict[str, Any]:
        async with Client(create_server(allowed)) as client:
            wanted = {"agent": "clerk", "format": "merged", "push_to": destination, "path": path}
            started = await call(client, "export_agent", **wanted)
            return await until(client, started["job_id"], ended)

    async def register(home: Path) -> dict[str, Any]:
        there = Settings(home=home, artifacts=(bucket,), poll_s=0.1)
        async with Client(create_server(there)) as client:
            return await call(client, "register_agent", name="copy", model=f"{bucket}/clerk")

    view = anyio.run(push, f"{bucket}/clerk", "one")
    assert view["status"] == "succeeded", view
    assert view["result"]["report"]["pushed_to"] == f"{bucket}/clerk"
    agent = anyio.run(register, tmp_path / "another")["agent"]
    assert (agent["system_prompt"], agent["parent"]) == ("Be brief.", "agent:clerk@1")
    with local_hub() as hub:
        for name, value in {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HUB_OFFLINE": "0"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        hub.refuses = "/commit"
        failed = anyio.run(push, "hub:owner/clerk", "two")
        assert failed["error"]["code"] == "hub_refused"
        hub.refuses = ""

        async def resume() -> dict[str, Any]:
            async with Client(create_server(allowed)) as client:
                resumed = await call(client, "resume_job", job_id=failed["job_id"])
                return await until(client, resumed["job_id"], ended)

        view = anyio.run(resume)
        assert view["status"] == "succeeded", view
        files = hub.repositories["models/owner/clerk"]
        folder = settings.exports_dir / "two"
        written = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*")}
        assert files.keys() == written.keys()
        assert {name for name in files if files[name] != written[name]} == {"README.md", "agent.json"}
        assert not any(str(settings.home).encode() in content for content in files.values()), "paths of this machine"


def newest_complete(url: str, folder: Path) -> int | None:
    """Return the step of the newest copy that is whole: a later one may have been cut by the end of the job."""
    for copies in names_below(url):
        for name in sorted(names_below(f"{url}/{copies}"), reverse=True):
            with suppress(InvalidInput, NotFound):
                fetch(f"{url}/{copies}/{name}", folder)
                return int(name.removeprefix("step-"))
    return None


def test_a_training_continues_from_a_bucket_after_its_folder_is_lost(bucket: str, settings: Settings) -> None:
    mirrored = settings.model_copy(update={"checkpoints": f"{bucket}/checkpoints", "grace_s": 90.0})
    services = open_services(mirrored)
    runs = [run(f"t{i}", tags=("mine",)) for i in range(4)]
    services.store.trajectories.add_many(runs, NOW)
    dataset = export_dataset(services, "sft", "good", filter=TrajectoryFilter(tags=("mine",))).dataset_id
    services.close()

    copies, aside = f"{bucket}/checkpoints", settings.home / "aside"

    async def talk() -> None:
        async with Client(create_server(mirrored)) as client:
            settings_of_run = {"max_steps": 400, "checkpoint_every_steps": 1, "epochs": 400, "batch_size": 1}
            started = await call(
                client,
                "start_training",
                method="sft",
                model="starter",
                dataset_id=dataset,
                hyperparameters=settings_of_run,
            )
            job = started["job_id"]
            await until(client, job, lambda view: view["step"] >= 2)
            await call(client, "cancel_job", job_id=job)
            cancelled = await until(client, job, ended)
            assert cancelled["status"] == "cancelled", cancelled
            newest = newest_complete(copies, aside)
            assert newest is not None
            shutil.rmtree(mirrored.jobs_dir / job)
            resumed = await call(client, "resume_job", job_id=job)
            view = await until(client, resumed["job_id"], lambda view: view["step"] > newest or ended(view))
            assert view["status"] == "running", view
            steps = (mirrored.jobs_dir / resumed["job_id"] / "events.jsonl").read_text().splitlines()
            assert any('"restoring"' in line for line in steps)
            first = next(line for line in steps if '"progress"' in line)
            assert f'"step":{newest + 1}' in first
            await call(client, "cancel_job", job_id=resumed["job_id"])
            await until(client, resumed["job_id"], ended)

    anyio.run(talk)
