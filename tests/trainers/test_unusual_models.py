"""Architectures that need a way of their own, and how near to exact arithmetic the engine stays on them."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    ApertusConfig,
    ApertusForCausalLM,
    BioGptConfig,
    BioGptForCausalLM,
    DeepseekV32Config,
    DeepseekV32ForCausalLM,
    FalconMambaConfig,
    FalconMambaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    RwkvConfig,
    RwkvForCausalLM,
)

from quintain.errors import InvalidInput
from quintain.records.agent import Agent, ModelRef
from quintain.records.hyperparameters.methods import LoraConfig
from quintain.trainers.engine.forward import Engine
from quintain.trainers.engine.self_check import padded_inputs
from quintain.trainers.models.adapters import with_new_adapter
from quintain.worker.policies.creation import open_policy
from trainers.own_forward import gradients, make, own_logprobs, row, weights
from trainers.playing import GREEDY, TOKENIZER

UNUSUAL = {
    "biogpt": lambda: make(BioGptConfig, BioGptForCausalLM),
    "apertus": lambda: make(ApertusConfig, ApertusForCausalLM),
    "falcon_mamba": lambda: make(FalconMambaConfig, FalconMambaForCausalLM, state_size=8, num_hidden_layers=2),
}


def rows() -> list[Any]:
    some = torch.randint(2, 61, (3, 45), generator=torch.Generator().manual_seed(0)).tolist()
    return [row(some[0]), row([*some[0][:20], *some[1][:9]]), row(some[1][:33]), row(some[2][:37])]


def padded_logprobs(model: Any, given: list[Any]) -> torch.Tensor:
    """The plain way: rows padded to one length, whole logits."""
    logs = model(**padded_inputs(given, torch.device("cpu"))).logits.log_softmax(-1)
    return torch.cat([logs[i, r.places - 1, r.token_ids[r.places]] for i, r in enumerate(given)])


@pytest.mark.parametrize("family", UNUSUAL)
def test_gradients_are_as_near_to_those_in_float64_as_the_models_own(family: str) -> None:
    """Where single tensors differ from the plain float32 path by more than 1e-5, float32 is the reason, not the engine.

    Keys' biases (BioGPT) have a gradient of zero, because softmax does not see what is added to all keys; what float32
    leaves there is rounding. All tensors together agree with the plain path within 1e-5 in every family; each is within
    1e-5 of its true value, or within three times the distance of the plain path.
    """
    model, given = UNUSUAL[family]().eval(), rows()
    w = weights(given)
    engine = Engine.of(model)
    ours = gradients(model, lambda: engine.nll(given, w)[0])
    plain = gradients(model, lambda: -(w * padded_logprobs(model, given)).sum())
    exactly = deepcopy(model).double()
    exact = gradients(exactly, lambda: -(w.double() * own_logprobs(exactly, given)).sum())
    whole = float(torch.cat([g.flatten() for g in exact.values()]).norm())
    apart = torch.cat([(ours[name] - plain[name]).flatten() for name in exact])
    assert float(apart.norm()) < 1e-5 * whole
    for name, true in exact.items():
        error, own = (float((made[name] - true).norm()) for made in (ours, plain))
        assert error <= max(3 * own, 1e-5 * float(true.norm())) + 1e-9 * whole, name


def test_sparse_attention_picks_the_keys_that_it_picks_in_the_row_alone() -> None:
    """Many keys score exactly zero here, and among equals `topk` goes by the width of the pass: padding would choose others."""
    settings = {
        "num_key_value_heads": 4,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
        "n_group": 1,
        "topk_group": 1,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
        "first_k_dense_replace": 1,
        "index_n_heads": 2,
        "index_head_dim": 8,
        "index_topk": 4,
    }
    model, given = make(DeepseekV32Config, DeepseekV32ForCausalLM, **settings).eval(), rows()
    engine = Engine.of(model)
    assert engine.path == "padded"
    with torch.no_grad():
        assert torch.allclose(engine.logprobs(given).logprobs, own_logprobs(model, given), atol=1e-5)
    assert engine.cost(given).computed_tokens == sum(map(len, given))


def test_adapters_that_a_model_cannot_have_are_refused_with_the_layers_that_it_has() -> None:
    model = make(MambaConfig, MambaForCausalLM, state_size=8)
    with pytest.raises(InvalidInput, match=r"this model \(mamba\).*name others.*\(dt_proj, in_proj, lm_head, out_proj"):
        with_new_adapter(model, LoraConfig())


def test_a_model_without_a_cache_gives_one_warning_when_it_is_opened(tmp_path: Path) -> None:
    torch.manual_seed(0)
    RwkvForCausalLM(RwkvConfig(vocab_size=len(TOKENIZER), hidden_size=32, num_hidden_layers=2)).save_pretrained(
        tmp_path
    )
    TOKENIZER.save_pretrained(tmp_path)
    heard: list[tuple[str, str]] = []
    agent = Agent(name="slow", model=ModelRef(source="folder", path=str(tmp_path)))
    open_policy(agent, GREEDY, warn=lambda code, message: heard.append((code, message)))
    ((code, message),) = heard
    assert code == "acting"
    assert "(rwkv) has no cache" in message
