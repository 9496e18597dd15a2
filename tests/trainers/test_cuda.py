"""What only a GPU can show; skipped without one."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM, LlamaConfig, LlamaForCausalLM

from quintain.records.agent import Sampling
from quintain.trainers.engine import forward
from quintain.trainers.engine.forward import Engine
from quintain.trainers.engine.offload import activations_offloaded
from quintain.trainers.loop.optimizer import stochastically_rounded
from tiny_models import tiny_model
from trainers.own_forward import distance, gradients, make, row, weights
from trainers.playing import TOKENIZER, ids_of, play, policy, spread

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

PROMPT = [i % 61 for i in range(300)]
ROWS = [row([*PROMPT, *[(i * j) % 61 for i in range(150)]]) for j in (3, 7, 11)]
LLAMA: dict[str, Any] = {"hidden_size": 128, "head_dim": 32, "max_position_embeddings": 1024}
GEMMA: dict[str, Any] = {**LLAMA, "sliding_window": 100, "attn_logit_softcapping": 20.0, "query_pre_attn_scalar": 32}


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_flex_attention_gives_the_logprobs_and_gradients_of_the_cpu(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds: Any = {"llama": (LlamaConfig, LlamaForCausalLM, LLAMA), "gemma2": (Gemma2Config, Gemma2ForCausalLM, GEMMA)}
    config, model, settings = kinds[family]
    own = make(config, model, **settings)
    there = copy.deepcopy(own).cuda()
    monkeypatch.setattr(forward, "kernels_for", lambda device: {"cuda": ("flex", "sdpa")}.get(device.type, ("cpu",)))
    engine = Engine.of(there)
    assert (engine.path, engine.kernel, engine.reason) == ("packed", "flex", None)
    w, plain = weights(ROWS), Engine.of(own)
    expected = gradients(own, lambda: -(w * plain.logprobs(ROWS).logprobs).sum())
    found = gradients(there, lambda: -(w.cuda() * engine.logprobs(ROWS).logprobs).sum())
    assert distance(expected, {name: gradient.cpu() for name, gradient in found.items()}) < 5e-3


def test_captured_steps_write_the_tokens_of_the_growing_cache_without_waiting_for_each() -> None:
    sampling, model = Sampling(temperature=1.0, max_new_tokens=64), spread(tiny_model(TOKENIZER)).cuda()
    actor = policy(sampling, model=model)
    assert actor._decoder.static
    growing = policy(sampling, model=model)
    growing._decoder = replace(growing._decoder, static=False)
    played, expected = play(actor, "abcd", n_turns=2), play(growing, "abcd", n_turns=2)
    assert {name: ids_of(replies) for name, replies in played.items()} == {
        name: ids_of(replies) for name, replies in expected.items()
    }


def test_activations_move_to_main_memory_and_numbers_are_rounded_on_the_device() -> None:
    model = make(LlamaConfig, LlamaForCausalLM, **LLAMA).cuda()
    engine, w = Engine.of(model), weights(ROWS).cuda()

    def peak() -> tuple[dict[str, torch.Tensor], int]:
        torch.cuda.reset_peak_memory_stats()
        found = gradients(model, lambda: -(w * engine.logprobs(ROWS).logprobs).sum())
        return found, torch.cuda.max_memory_allocated()

    expected, before = peak()
    with activations_offloaded():
        found, after = peak()
    assert distance(expected, found) < 1e-5
    assert after < before
    x = torch.full((4096,), 1.0 + 0.25 / 128, device="cuda")
    share = (stochastically_rounded(x, torch.Generator("cuda").manual_seed(0)) > 1).float().mean()
    assert float(share) == pytest.approx(0.25, abs=0.05)
