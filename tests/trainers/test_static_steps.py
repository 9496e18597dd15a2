"""Decoding by steps of fixed shapes, which runs on CUDA as a graph and here without one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import MistralConfig, MistralForCausalLM

from quintain.records.agent import Sampling
from quintain.trainers.acting import decoding, policy, static_steps
from tiny_models import tiny_model
from trainers.playing import TOKENIZER, ids_of, play, spread
from trainers.playing import policy as make_policy

SAMPLING = Sampling(temperature=3.0, max_new_tokens=24)


def model_with_many_ends() -> Any:
    """A model in which one token of 16 ends a turn."""
    model = spread(tiny_model(TOKENIZER))
    model.generation_config.eos_token_id = list(range(0, len(TOKENIZER), 16))
    return model


class Waits(TorchDispatchMode):
    """Counts the operations for which a host waits for a device."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        by_mask = func is torch.ops.aten.index.Tensor and any(x is not None and x.dtype == torch.bool for x in args[1])
        if by_mask or func.overloadpacket in (torch.ops.aten._local_scalar_dense, torch.ops.aten.nonzero):
            self.seen[str(func)] += 1
        return func(*args, **(kwargs or {}))


def test_static_steps_write_the_tokens_of_the_growing_cache_and_wait_for_the_device_every_8_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Turns of up to 24 tokens that end at different places, so that rows fall away and the batch is copied between steps."""
    expected = play(make_policy(SAMPLING, model=model_with_many_ends()), "abcd", n_turns=2)
    monkeypatch.setattr(decoding, "_STATIC_DEVICES", {"cpu"})
    model = model_with_many_ends()
    actor = make_policy(SAMPLING, model=model)
    assert actor._decoder.static
    actor._wait_steps = policy._CHECK_STEPS
    masks: Counter[int] = Counter()
    hook = model.register_forward_pre_hook(
        lambda _, __, inputs: masks.update([inputs["attention_mask"].ndim if "attention_mask" in inputs else 0]),
        with_kwargs=True,
    )
    with Waits() as waits:
        played = play(actor, "abcd", n_turns=2)
    hook.remove()
    assert {name: ids_of(replies) for name, replies in played.items()} == {
        name: ids_of(replies) for name, replies in expected.items()
    }
    lengths = [len(ids) for replies in played.values() for ids in ids_of(replies)]
    assert min(lengths) < 8 < 16 < max(lengths)
    assert masks[4] > 20, "masks of four dimensions are those of static steps"
    assert sum(waits.seen.values()) <= 2 * masks[4] // policy._CHECK_STEPS + 4


def test_models_whose_static_steps_are_wrong_or_impossible_decode_in_the_growing_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not make_policy(model=model_with_many_ends())._decoder.static, "on the CPU"
    monkeypatch.setattr(decoding, "_STATIC_DEVICES", {"cpu"})
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    windows = MistralConfig(vocab_size=len(TOKENIZER), num_hidden_layers=2, sliding_window=16, **sizes)
    assert not make_policy(model=spread(MistralForCausalLM(windows)))._decoder.static
    update = static_steps.FixedLayer.update

    def one_too_early(layer: Any, keys: Any, values: Any, *args: Any, **kwargs: Any) -> Any:
        layer._column = layer._column - 1
        return update(layer, keys, values, *args, **kwargs)

    monkeypatch.setattr(static_steps.FixedLayer, "update", one_too_early)
    actor = make_policy(SAMPLING, model=model_with_many_ends())
    assert actor._decoder.caching == "batched"
    assert not actor._decoder.static
