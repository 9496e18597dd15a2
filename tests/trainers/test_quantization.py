"""Adapters on quantised bases: exact gradients, resumable training, and an agent that acts and is exported as it was trained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from quintain.errors import InvalidInput
from quintain.records.agent import Agent, ModelRef, Quantization, Sampling
from quintain.records.hyperparameters.methods import LoraConfig
from quintain.records.jobs.handover import Ancestor, ExportAgentSpec, Provenance
from quintain.records.protocols import Message, Turn
from quintain.trainers.acting.policy import open_policy
from quintain.trainers.data.streams import token_row
from quintain.trainers.engine.forward import Engine
from quintain.trainers.models.loading import load_model, save_model
from quintain.trainers.reference_log_probs import model_identity
from quintain.worker.job_kinds.export_agent import run as export
from quintain.worker.job_kinds.train import _agent
from tiny_models import save_tiny_model
from trainers.runs import Recorder, dataset, metric, resumed, run, same, spec

bitsandbytes = pytest.importorskip("bitsandbytes")

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")

KINDS: tuple[Quantization, ...] = ("nf4", "int8")
ROWS = [token_row(list(range(3 + i, 43 + i)), [t > 10 for t in range(40)]) for i in range(3)]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("quantised") / "base", hidden=64)


def ref(base: Path, quantization: Quantization | None, adapter: Path | None = None) -> ModelRef:
    path = str(adapter) if adapter else None
    return ModelRef(source="folder", path=str(base), adapter=path, quantization=quantization)


def adapted(base: Path, kind: Quantization, *, dequantize: bool) -> Any:
    """A quantised model, or its dequantised weights, under adapters that are the same for both."""
    model = load_model(ref(base, kind), lora=LoraConfig(rank=4), train=True, dequantize=dequantize).model
    chance = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in (p for p in model.parameters() if p.requires_grad):
            parameter.copy_(0.05 * torch.randn(parameter.shape, generator=chance))
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_adapters_get_the_gradients_that_they_get_on_the_dequantised_weights(base: Path, kind: Quantization) -> None:
    quantised, plain = (adapted(base, kind, dequantize=dequantize) for dequantize in (False, True))
    engines = [Engine.of(model) for model in (quantised, plain)]
    assert [(e.path, e.pruned, e.reason) for e in engines] == [("packed", True, None)] * 2
    assert engines[0].cost(ROWS) == engines[1].cost(ROWS)
    losses = []
    for engine in engines:
        loss, _ = engine.nll(ROWS, torch.ones(sum(row.n_supervised for row in ROWS)))
        loss.backward()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    own, other = ({n: p.grad for n, p in m.named_parameters() if p.grad is not None} for m in (quantised, plain))
    assert own.keys() == other.keys()
    for name, gradient in own.items():
        assert (gradient - other[name]).norm() <= 1e-5 * other[name].norm(), name
    kinds = {type(m).__name__ for m in quantised.modules()}
    assert {"nf4": "Linear4bit", "int8": "Linear8bitLt"}[kind] in kinds
    assert quantised.get_output_embeddings().weight.dtype == torch.float32
    rounded = load_model(ref(base, kind), dequantize=True).model.get_decoder().layers[0].mlp.up_proj.weight.detach()
    exact = load_model(ref(base, None)).model.get_decoder().layers[0].mlp.up_proj.weight.detach()
    # NF4 is off by up to 0.152 of a block's largest weight, int8 by 0.5 / 127 of a row's: half of the widest steps.
    bound = {"nf4": 0.16, "int8": 0.5 / 127 * 1.01}[kind] * float(exact.abs().max())
    assert 0 < float((rounded - exact).abs().max()) <= bound


def test_a_run_on_nf4_learns_resumes_bit_equal_and_its_agent_acts_and_is_exported_as_it_was_trained(
    base: Path, tmp_path: Path
) -> None:
    """Rank 64 of 64 makes matrices of 4,096 numbers, whose moments AdamW keeps in 8 bits."""
    settings: dict[str, Any] = {
        "lora": LoraConfig(rank=64),
        "quantization": "nf4",
        "optimizer": "adamw_8bit",
        "learning_rate": 8e-3,
        "epochs": 3,
    }
    rows = dataset(4)
    job = spec(base, tmp_path / "out", **settings)
    _, recorder = run(job, tmp_path / "job", rows)
    losses = metric(recorder, "loss")
    assert losses[-1] < 0.9 * losses[0]
    state = torch.load(next((tmp_path / "job" / "checkpoints").glob("step-*")) / "state.pt", weights_only=True)
    assert torch.uint8 in {tensor.dtype for tensor in tensors_in(state["optimizer"]["state"])}

    again = spec(base, tmp_path / "resumed", **settings)
    assert resumed(again, tmp_path / "again", rows, kill_at=5)[0].resumed_from_step == 4
    assert same(tmp_path / "out", tmp_path / "resumed")

    agent = _agent(job, "job-1", None).model_copy(update={"id": "agent:trained@1", "version": 1})
    assert agent.model == ref(base, "nf4", tmp_path / "out")
    policy = open_policy(agent, Sampling(max_new_tokens=8))
    assert any(type(m).__name__ == "Linear4bit" for m in policy._model.modules())
    turn = Turn(episode_id="a", messages=(Message(role="user", content="price of item 1?"),))
    (reply,) = policy.act([turn])
    assert reply.sampled is not None
    acting = load_model(agent.model)
    expected = Engine.of(acting.model).logprobs(ROWS).logprobs.detach()
    merged = exported(agent, "merged", tmp_path)
    assert merged["parity"]["max_difference"] < merged["parity"]["bound"] == 1e-4
    assert any("NF4" in note for note in merged["notes"])
    read = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert (Engine.of(read).logprobs(ROWS).logprobs - expected).abs().max() < 1e-4
    unquantised = load_model(agent.model.model_copy(update={"quantization": None})).model
    assert (Engine.of(unquantised).logprobs(ROWS).logprobs - expected).abs().max() > 1e-2
    adapter = exported(agent, "adapter", tmp_path)
    assert adapter["parity"]["max_difference"] == 0
    assert any(note.endswith("load the base so") for note in adapter["notes"])


def tensors_in(state: Any) -> Iterator[torch.Tensor]:
    if isinstance(state, dict):
        for value in state.values():
            yield from tensors_in(value)
    elif isinstance(state, torch.Tensor):
        yield state


class _Silent(Recorder):
    def warn(self, code: str, message: str) -> None:
        raise AssertionError((code, message))


def exported(agent: Agent, format: Any, folder: Path) -> dict[str, Any]:
    provenance = Provenance(ancestors=(Ancestor(agent=agent.id or "", methods=("sft",), job_id="job-1"),))
    job = ExportAgentSpec(agent=agent, format=format, destination=str(folder / format), provenance=provenance)
    return export(job, folder / f"job-{format}", _Silent()).report


@pytest.mark.parametrize("stored_in", ["load_in_4bit", "load_in_8bit"])
def test_a_base_whose_files_are_quantised_is_loaded_as_plain_weights_that_can_be_saved(
    base: Path, stored_in: str, tmp_path: Path
) -> None:
    """Its own layers quantise their inputs on the CPU and cannot be merged, and peft would adapt them in their type."""
    stored = tmp_path / "stored"
    quantised = AutoModelForCausalLM.from_pretrained(base, quantization_config=BitsAndBytesConfig(**{stored_in: True}))
    quantised.save_pretrained(stored)
    tokenizer = load_model(ref(base, None)).tokenizer
    tokenizer.save_pretrained(stored)
    model = load_model(ref(stored, None), lora=LoraConfig(rank=2), train=True).model
    assert (Engine.of(model).path, {p.dtype for p in model.parameters()}) == ("packed", {torch.float32})
    plain = load_model(ref(stored, None)).model
    save_model(plain, tokenizer, tmp_path / "plain")
    again = load_model(ref(tmp_path / "plain", None)).model
    assert all(torch.equal(again.get_parameter(name), p) for name, p in plain.named_parameters())


def test_the_identity_of_a_quantised_model_depends_on_its_scales(base: Path) -> None:
    for kind in KINDS:
        model = load_model(ref(base, kind)).model
        before = model_identity(model)
        layer = model.get_decoder().layers[0].mlp.up_proj
        scales = layer.weight.quant_state.state2.absmax if kind == "nf4" else layer.state.SCB
        scales.mul_(2)
        assert model_identity(model) != before


def test_quantised_weights_are_not_trained_themselves(base: Path) -> None:
    with pytest.raises(InvalidInput, match="set lora"):
        load_model(ref(base, "nf4"), train=True)
