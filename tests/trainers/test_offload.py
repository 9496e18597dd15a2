from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from quintain.trainers.engine import offload
from quintain.trainers.engine.forward import Engine
from trainers.own_forward import distance, gradients, make, row, weights


def test_activations_are_moved_and_weights_are_not_and_the_gradients_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if every tensor of 100 numbers was on another device; with gradient checkpointing far fewer are moved."""
    moved: list[torch.Tensor] = []

    def pack(x: torch.Tensor) -> Any:
        packed = own(x)
        if isinstance(packed, offload._Moved):
            moved.append(x)
            return packed._replace(copy=packed.copy.clone())
        return packed

    own = offload._pack
    monkeypatch.setattr(offload, "_SMALLEST", 100)
    rows, sizes = [row(range(40)), row([*range(20), *range(40, 60)])], []
    for checkpointed in (False, True):
        model = make(LlamaConfig, LlamaForCausalLM)
        engine = Engine.of(model, gradient_checkpointing=checkpointed)
        w = weights(rows)
        expected = gradients(model, lambda one=engine, w=w: -(w * one.logprobs(rows).logprobs).sum())
        monkeypatch.setattr(offload, "_pack", pack)
        moved.clear()
        with offload.activations_offloaded():
            found = gradients(model, lambda one=engine, w=w: -(w * one.logprobs(rows).logprobs).sum())
        monkeypatch.setattr(offload, "_pack", own)
        assert distance(expected, found) == 0
        own_memory = {p.untyped_storage().data_ptr() for p in model.parameters()}
        assert not own_memory & {x.untyped_storage().data_ptr() for x in moved}
        sizes.append(sum(x.numel() for x in moved))
    assert sizes[0] > sizes[1] > 0
