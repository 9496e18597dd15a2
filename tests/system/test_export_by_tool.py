"""An agent handed over through the real server and worker, and read by plain transformers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import pytest
import torch
from mcp import Client
from transformers import AutoModelForCausalLM, AutoTokenizer

from jobs_in_process import jobs_in_process  # noqa: F401
from mcp_client import call, ended, until
from quintain.jobs.processes import try_lock, unlock
from quintain.records.agent import Agent, ModelRef
from quintain.server.app import create_server
from quintain.settings import Settings
from quintain.tools.services import Services, open_services
from quintain.trainers.models.loading import load_model
from tiny_models import save_tiny_model
from trajectory_runs import NOW


@pytest.fixture
def services(settings: Settings) -> Iterator[Services]:
    opened = open_services(settings)
    yield opened
    opened.close()


def logprobs(model: Any, text: str, tokenizer: Any) -> torch.Tensor:
    with torch.no_grad():
        return torch.as_tensor(model.eval()(**tokenizer(text, return_tensors="pt")).logits.log_softmax(-1))


@pytest.mark.usefixtures("jobs_in_process")
def test_an_agent_is_exported_once_and_appears_in_its_lineage(services: Services) -> None:
    base = ModelRef(source="folder", path=str(save_tiny_model(services.settings.agents_dir / "base")))
    agent = services.store.agents.add(Agent(name="clerk", model=base), NOW)

    starting = try_lock(services.settings.jobs_dir / "reconcile.lock")
    assert starting is not None, "until it is unlocked no job starts"

    async def talk() -> dict[str, Any]:
        async with Client(create_server(services.settings)) as client:
            wanted = {"agent": "clerk", "format": "merged"}
            started = await call(client, "export_agent", **wanted)
            again = await call(client, "export_agent", **wanted)
            assert (again["job_id"], again["deduplicated"], started["deduplicated"]) == (started["job_id"], True, False)
            other = await call(client, "export_agent", **wanted, path="mine")
            stopped = await call(client, "cancel_job", job_id=other["job_id"])
            assert stopped["status"] == "cancelled"
            unlock(starting)
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
