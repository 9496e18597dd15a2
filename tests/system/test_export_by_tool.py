"""An agent handed over through the real server and worker, and read by plain transformers and peft."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
import torch
from mcp import Client
from peft import AutoPeftModelForCausalLM
from transformers import AutoModelForCausalLM, AutoTokenizer

from expert_runs import store_expert_runs
from mcp_client import call, ended, until
from quintain.jobs.directory import JobDirectory
from quintain.records.agent import Agent, ModelRef
from quintain.records.hyperparameters import LoraConfig
from quintain.server.app import create_server
from quintain.settings import Settings
from quintain.tools.services import Services, open_services
from quintain.trainers.models import load_model, save_model
from tiny_models import save_tiny_model
from trajectory_runs import NOW

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")


@pytest.fixture
def services(settings: Settings) -> Iterator[Services]:
    opened = open_services(settings)
    yield opened
    opened.close()


def small_agent(services: Services) -> Agent:
    """A tiny agent with an adapter, as a training leaves one."""
    folder = services.settings.agents_dir
    base = ModelRef(source="folder", path=str(save_tiny_model(folder / "base")))
    loaded = load_model(base, lora=LoraConfig(rank=4, alpha=8), train=True)
    with torch.no_grad():
        for parameter in loaded.model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1)
    save_model(loaded.model, loaded.tokenizer, folder / "clerk")
    model = base.model_copy(update={"adapter": str(folder / "clerk")})
    return services.store.agents.add(Agent(name="clerk", model=model), NOW)


def logprobs(model: Any, text: str, tokenizer: Any) -> torch.Tensor:
    with torch.no_grad():
        return torch.as_tensor(model.eval()(**tokenizer(text, return_tensors="pt")).logits.log_softmax(-1))


def test_an_agent_is_exported_once_and_appears_in_its_lineage(services: Services) -> None:
    base = ModelRef(source="folder", path=str(save_tiny_model(services.settings.agents_dir / "base")))
    agent = services.store.agents.add(Agent(name="clerk", model=base), NOW)

    async def talk() -> dict[str, Any]:
        async with Client(create_server(services.settings)) as client:
            wanted = {"agent": "clerk", "format": "merged"}
            started = await call(client, "export_agent", **wanted)
            again = await call(client, "export_agent", **wanted)
            assert (again["job_id"], again["deduplicated"], started["deduplicated"]) == (started["job_id"], True, False)
            other = await call(client, "export_agent", **wanted, path="mine")
            stopped = await call(client, "cancel_job", job_id=other["job_id"])
            assert stopped["status"] == "cancelled"  # it had waited for the first one's slot
            view = await until(client, started["job_id"], ended)
            assert view["status"] == "succeeded", view
            refused = await client.call_tool("export_agent", wanted)
            assert refused.is_error
            assert "[exists]" in str(refused.content)
            lineage = await call(client, "get_lineage", id=agent.id)
            assert started["job_id"] in {node["id"] for node in lineage["descendants"]}
            return view

    view = anyio.run(talk)
    report, exports = view["result"]["report"], services.settings.exports_dir
    folder = exports / "clerk-1-merged"
    assert report["path"] == str(folder.resolve())
    assert report["path"] in view["next_step"]
    assert report["parity"]["max_difference"] < 1e-4
    assert [path.name for path in exports.iterdir()] == ["clerk-1-merged"]
    read, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    own = load_model(agent.model, merge=False)
    text = "What does the mango cost?"
    assert (logprobs(read, text, tokenizer) - logprobs(own.model, text, own.tokenizer)).abs().max() < 1e-4


def sessions(settings: Settings) -> dict[str, Any]:
    """Train the embedded model for a few steps, and hand it over in both formats."""

    async def talk() -> dict[str, Any]:
        async with Client(create_server(settings)) as client:

            async def done(started: dict[str, Any]) -> dict[str, Any]:
                view = await until(client, started["job_id"], ended)
                assert view["status"] == "succeeded", view
                return dict(view["result"])

            data = await call(client, "export_dataset", kind="sft", name="good", filter={"tags": ["expert"]})
            few = {"max_steps": 4, "batch_size": 2, "lora": {"rank": 4}, "learning_rate": 0.01}
            request = {"method": "sft", "model": "starter", "name": "clerk", "hyperparameters": few}
            await done(await call(client, "start_training", dataset_id=data["dataset_id"], **request))
            return {
                format: (await done(await call(client, "export_agent", agent="clerk", format=format)))["report"]
                for format in ("adapter", "merged")
            }

    return anyio.run(talk)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_trained_agent_is_the_same_in_plain_transformers_and_peft(settings: Settings, services: Services) -> None:
    store_expert_runs(settings, 8)
    reports = sessions(settings)
    agent = services.store.agents.get("clerk")
    own = load_model(agent.model, merge=False)
    text = own.tokenizer.apply_chat_template([{"role": "user", "content": "How many apples?"}], tokenize=False)
    wanted = logprobs(own.model, text, own.tokenizer)
    base = AutoModelForCausalLM.from_pretrained(agent.model.path)
    assert (logprobs(base, text, own.tokenizer) - wanted).abs().max() > 0.01
    for kind, cls in (("adapter", AutoPeftModelForCausalLM), ("merged", AutoModelForCausalLM)):
        folder = Path(reports[kind]["path"])
        read, tokenizer = cls.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
        assert (logprobs(read, text, tokenizer) - wanted).abs().max() < 1e-4
        ids = tokenizer(text, return_tensors="pt")
        said, wrote = (one.generate(**ids, max_new_tokens=8, do_sample=False) for one in (read, own.model))
        assert torch.equal(said, wrote)
        assert "| agent:clerk@1 | sft | ds-" in (folder / "README.md").read_text()


@pytest.mark.soak
def test_a_killed_export_is_carried_to_its_end_by_the_next_attempt(services: Services) -> None:
    small_agent(services)

    async def talk() -> dict[str, Any]:
        async with Client(create_server(services.settings)) as client:
            started = await call(client, "export_agent", agent="clerk", format="adapter")
            await until(client, started["job_id"], lambda view: view["phase"] == "importing")
            (aside,) = services.settings.exports_dir.glob(".*")
            (aside / "half.safetensors").write_bytes(b"x")
            shim = JobDirectory(services.settings.jobs_dir / started["job_id"]).shim()
            assert shim is not None
            assert shim.worker is not None
            assert psutil.pid_exists(shim.worker)
            os.kill(shim.worker, signal.SIGKILL)
            return await until(client, started["job_id"], ended)

    view = anyio.run(talk)
    assert (view["status"], view["attempt"]) == ("succeeded", 2)
    assert "half.safetensors" not in view["result"]["report"]["files"]
    assert [path.name for path in services.settings.exports_dir.iterdir()] == ["clerk-1-adapter"]
