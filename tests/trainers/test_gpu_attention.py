"""Flex attention on the CPU, without its compiler.

It runs through the functions that run on CUDA, and is held against a mask by positions or against separate rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.attention import flex_attention as torch_flex
from transformers import LlamaConfig, LlamaForCausalLM

from quintain.trainers.engine import attention, flex, forward
from quintain.trainers.engine.forward import Engine
from quintain.trainers.engine.packing import Segment, pack
from trainers.own_forward import (
    distance,
    gradients,
    make,
    masked_attention,
    own_logprobs,
    row,
    seen_by_paths,
    weights,
)

TREE = (Segment(0, 6), Segment(6, 8, ((0, 3),)), Segment(8, 12, ((0, 3), (6, 7))))
"""A trunk of 6 tokens, a branch of 2 behind its third token, and a branch of 4 behind the first token of that branch."""


@pytest.fixture
def flex_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lift PyTorch's ban of gradients on the CPU, where it computes all scores, and leave its compiler out."""
    monkeypatch.setattr(torch_flex, "_validate_device", lambda *tensors: None)
    monkeypatch.setattr(torch_flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


def random_tree(seed: int, n: int) -> tuple[Segment, ...]:
    """Segments of a trie whose rows are up to 40 times as long as others, packed as the engine packs rows."""
    draw = np.random.default_rng(seed)
    trunk = draw.integers(0, 50, n).tolist()
    rows = [trunk]
    for _ in range(12):
        parent = rows[draw.integers(len(rows))]
        rows.append(parent[: draw.integers(len(parent))] + draw.integers(0, 50, draw.integers(1, n)).tolist())
    return pack([row(ids, lambda t: True) for ids in rows]).padded(flex.BLOCK).segments


@pytest.mark.parametrize("window", [None, 40, 300])
def test_blocks_of_a_mask_are_empty_partial_or_full_as_its_entries_are(window: int | None) -> None:
    """Exactly full blocks are full, no visible entry is outside of the blocks, and few blocks are kept without need."""
    kept = needed = 0
    for seed in range(2):
        segments = random_tree(seed, 400)
        n = segments[-1].end
        for chosen in (segments, segments[2::3]):
            mask = flex.trie_mask(chosen, n, window, torch.device("cpu"))
            assert n % flex.BLOCK == len(mask.rows) % flex.BLOCK == 0
            seen = seen_by_paths(chosen, n, window)[mask.rows]
            q, k = (torch.arange(size) for size in (len(mask.rows), n))
            assert np.array_equal(mask.blocks.mask_mod(q, q, q[:, None], k[None]).numpy(), seen)
            blocks = seen.reshape(len(q) // flex.BLOCK, flex.BLOCK, n // flex.BLOCK, flex.BLOCK)
            full, some = blocks.all((1, 3)), blocks.any((1, 3))
            shown = mask.blocks.to_dense()[0, 0].numpy().astype(bool)
            assert (shown | ~some).all()
            full_blocks: Any = mask.blocks.full_kv_num_blocks, mask.blocks.full_kv_indices
            counts, places = (x[0, 0] for x in full_blocks)
            assert [sorted(p[:c].tolist()) for c, p in zip(counts, places, strict=True)] == [
                np.flatnonzero(line).tolist() for line in full
            ]
            kept, needed = kept + int(shown.sum()), needed + int(some.sum())
    assert kept <= 2 * needed


@pytest.mark.usefixtures("flex_on_cpu")
def test_attention_and_its_gradients_are_those_of_a_mask_by_positions() -> None:
    """Float64, two key heads for four query heads, sinks, caps and windows, all queries and some."""
    draw = torch.Generator().manual_seed(0)

    def some(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=draw, requires_grad=True)

    query, key, value, sinks = some(1, 4, 12, 2), some(1, 2, 12, 2), some(1, 2, 12, 2), some(4)

    chosen = (Segment(7, 8, ((0, 3), (6, 7))), Segment(9, 12, ((0, 3), (6, 7), (8, 9))))
    cases: list[tuple[Any, int | None, float | None, Any]] = [(TREE, None, None, None), (chosen, None, None, sinks)]
    cases += [(TREE, 2, 0.5, None), (chosen, 3, 0.5, sinks)]
    for segments, window, cap, sink in cases:
        inputs = (query, key, value, *(() if sink is None else (sink,)))
        settings = {"sliding_window": window, "softcap": cap, "s_aux": sink, "scaling": 0.7}
        layout = attention.Layout(segments, "flex")
        attended, _ = attention.packed_attention(None, query, key, value, None, packed=layout, **settings)
        rows = [q for segment in segments for q in range(segment.start, segment.end)]
        assert float(attended.detach()[:, sorted({*range(12)} - {*rows})].abs().sum()) == 0
        seen = torch.from_numpy(seen_by_paths(segments, 12, window))
        expected, attended = masked_attention(query, key, value, seen, cap, sink)[:, rows], attended[:, rows]
        assert torch.allclose(attended, expected, rtol=0, atol=1e-12)
        direction = torch.randn(expected.shape, dtype=torch.float64, generator=draw)
        slopes = torch.autograd.grad(expected, inputs, direction)
        for own, slope in zip(torch.autograd.grad(attended, inputs, direction), slopes, strict=True):
            assert torch.allclose(own, slope, rtol=0, atol=1e-12)


def model_and_rows() -> tuple[Any, Any]:
    draw = np.random.default_rng(0)
    prompt, deeper, *ends = (draw.integers(0, 61, n).tolist() for n in (60, 40, 30, 20, 9))
    rows = [row([*prompt, *deeper, *ends[0]]), row([*prompt, *deeper, *ends[1]]), row([*prompt, *ends[2]])]
    return make(LlamaConfig, LlamaForCausalLM, num_hidden_layers=2, max_position_embeddings=512), rows


@pytest.mark.usefixtures("flex_on_cpu")
def test_an_engine_with_flex_attention_gives_the_logprobs_and_gradients_of_separate_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forward, "kernels_for", lambda device: ("flex", "sdpa"))
    model, rows = model_and_rows()
    engine = Engine.of(model)
    assert (engine.path, engine.pruned, engine.kernel, engine.reason) == ("packed", True, "flex", None)
    w = weights(rows)
    own = gradients(model, lambda: -(w * own_logprobs(model, rows)).sum())
    assert distance(own, gradients(model, lambda: -(w * engine.logprobs(rows).logprobs).sum())) < 1e-5
    with torch.no_grad():
        assert torch.allclose(engine.logprobs(rows).logprobs, own_logprobs(model, rows), rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("flex_on_cpu")
def test_a_kernel_that_drops_a_part_of_the_gradient_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the right outputs, and without the gradient by the keys."""
    attend = flex.attend

    def without_keys(query: Any, key: Any, *rest: Any) -> torch.Tensor:
        return attend(query, key.detach(), *rest)

    monkeypatch.setattr(forward, "kernels_for", lambda device: ("flex", "sdpa"))
    monkeypatch.setattr(flex, "attend", without_keys)
    engine = Engine.of(model_and_rows()[0])
    assert engine.kernel is None
    assert engine.reason is not None
    assert "flex attention is not used: gradients differ" in engine.reason


def test_without_its_device_flex_attention_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward, "kernels_for", attention.kernels_for)
    assert attention.kernels_for(torch.device("cuda")) == ("flex", "sdpa")
    assert attention.kernels_for(torch.device("mps")) == ("sdpa",)
    monkeypatch.setattr(forward, "kernels_for", lambda device: attention.kernels_for(torch.device("cuda")))
    engine = Engine.of(model_and_rows()[0])
    assert (engine.path, engine.kernel) == ("packed", None)
    assert engine.reason is not None
    assert "flex attention is not used: FlexAttention does not support backward on CPU" in engine.reason


@pytest.mark.soak
def test_after_the_first_shapes_no_length_compiles_flex_attention_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced with gradients by PyTorch's compiler without its code generator; branches and windows do not count either."""
    monkeypatch.setattr(torch_flex, "_validate_device", lambda *tensors: None)
    compiled = torch.compile(torch_flex.flex_attention, dynamic=True, fullgraph=True, backend="aot_eager")
    monkeypatch.setattr(flex, "_kernel", lambda device_type: compiled)
    torch._dynamo.reset()
    draw, graphs = torch.Generator().manual_seed(0), []
    for seed, size, window in [(0, 100, None), (1, 160, 9), (2, 220, None), (3, 130, 30)]:
        segments = random_tree(seed, size)
        n = segments[-1].end
        for chosen in (segments, segments[1::2]):
            inputs = [torch.randn(1, heads, n, 16, generator=draw, requires_grad=True) for heads in (4, 2, 2)]
            both = []
            for kernel in ("flex", "sdpa"):
                layout = attention.Layout(chosen, kernel)
                query, key, value = inputs
                out, _ = attention.packed_attention(None, query, key, value, None, packed=layout, sliding_window=window)
                both.append([out, *torch.autograd.grad(out.cumsum(1).sum(), inputs)])
            for own, generic in zip(*both, strict=True):
                assert torch.allclose(own, generic, rtol=1e-4, atol=1e-3)
            graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert graphs[2] == graphs[-1] <= 3
