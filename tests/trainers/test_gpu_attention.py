"""Attention for CUDA on the CPU: flex attention without its compiler, and the varlen kernels as loops over sequences.

Both run through the functions that run on CUDA, and are held against a mask by positions or against separate rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.attention import flex_attention as torch_flex
from transformers import LlamaConfig, LlamaForCausalLM

from quintain.trainers.engine import attention, flex, forward, varlen
from quintain.trainers.engine.forward import Engine
from quintain.trainers.engine.fused_attention import merge_parts
from quintain.trainers.engine.head import at_least_float32
from quintain.trainers.engine.packing import Segment, pack
from quintain.trainers.engine.trie_intervals import Part, causal_parts, intervals, prefix_calls, sequence_bounds
from trainers.own_forward import distance, gradients, make, own_logprobs, row, weights

TREE = (Segment(0, 6), Segment(6, 8, ((0, 3),)), Segment(8, 12, ((0, 3), (6, 7))))
"""A trunk of 6 tokens, a branch of 2 behind its third token, and a branch of 4 behind the first token of that branch."""


@pytest.fixture
def flex_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lift PyTorch's ban of gradients on the CPU, where it computes all scores, and leave its compiler out."""
    monkeypatch.setattr(torch_flex, "_validate_device", lambda *tensors: None)
    monkeypatch.setattr(torch_flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


@pytest.fixture
def varlen_on_cpu() -> Iterator[None]:
    """Register the kernels beneath varlen attention on the CPU, as loops of the fused CPU kernel over the sequences."""
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    fused_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward

    def sequences(bounds_q: torch.Tensor, bounds_k: torch.Tensor) -> Iterator[tuple[slice, slice]]:
        q, k = bounds_q.tolist(), bounds_k.tolist()
        assert len(q) == len(k)
        for i in range(len(q) - 1):
            yield slice(q[i], q[i + 1]), slice(k[i], k[i + 1])

    def heads(x: torch.Tensor, at: slice, repeats: int = 1) -> torch.Tensor:
        return x[at].transpose(0, 1).repeat_interleave(repeats, 0).unsqueeze(0)

    def run(
        q: Any, k: Any, v: Any, bq: Any, bk: Any, mq: int, mk: int, p: float, causal: bool, *_: Any, **more: Any
    ) -> Any:
        out, lse = (
            torch.zeros_like(q),
            torch.full(q.shape[1::-1], torch.inf, dtype=at_least_float32(q.dtype)),
        )  # infinite without keys
        group = q.shape[1] // k.shape[1]
        for rows, keys in sequences(bq, bk):
            assert rows.stop - rows.start <= mq
            assert keys.stop - keys.start <= mk
            if rows.stop > rows.start and keys.stop > keys.start:
                o, total = fused(
                    heads(q, rows), heads(k, keys, group), heads(v, keys, group), p, causal, scale=more["scale"]
                )
                out[rows], lse[:, rows] = o[0].transpose(0, 1), total.reshape(q.shape[1], -1)
        return out, lse, torch.zeros(2, dtype=torch.uint64), torch.empty(0), torch.empty(0)

    def backward(g: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, bq: Any, bk: Any, *rest: Any, **more: Any) -> Any:
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        group, (_, _, p, causal, _, _) = q.shape[1] // k.shape[1], rest
        for rows, keys in sequences(bq, bk):
            if rows.stop > rows.start and keys.stop > keys.start:
                own = heads(g, rows), heads(q, rows), heads(k, keys, group), heads(v, keys, group), heads(o, rows)
                parts = fused_backward(*own, lse[None, :, rows], p, causal, scale=more["scale"])
                dq[rows] += parts[0][0].transpose(0, 1)
                for total, part in zip((dk, dv), parts[1:], strict=True):
                    total[keys] += part[0].unflatten(0, (-1, group)).sum(1).transpose(0, 1)
        return dq, dk, dv

    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    library.impl("_flash_attention_forward", run, "CPU")
    library.impl("_flash_attention_backward", backward, "CPU")
    yield
    library._destroy()


def test_a_trie_in_packed_order_is_a_set_of_intervals() -> None:
    visible = intervals(TREE, 13)  # one token behind the segments
    assert visible.rows.tolist() == list(range(12))
    assert visible.until.tolist() == [12, 12, 12, 6, 6, 6, 12, 8, 12, 12, 12, 12, 0]
    assert visible.position.tolist() == [0, 1, 2, 3, 4, 5, 3, 4, 4, 5, 6, 7, 0]
    assert causal_parts(TREE, visible) == [Part((0, 6), (0, 6)), Part((6, 8), (6, 8)), Part((8, 12), (8, 12))]
    # The branches see three tokens of the trunk; the second one a token of the first too, in another call.
    calls = prefix_calls(visible)
    assert calls == [[Part((6, 12), (0, 3))], [Part((8, 12), (6, 7))]]
    assert sequence_bounds(calls[1], 12, 13) == ([0, 8, 8, 12, 12], [0, 0, 6, 7, 13])
    assert sequence_bounds(causal_parts(TREE, visible), 12, 13) == ([0, 6, 8, 12, 12], [0, 6, 8, 12, 13])
    # Of the last segment only the tokens 9 and 11 are queries: numbers 0 and 1.
    runs = (Segment(9, 10, ((0, 3), (6, 7), (8, 9))), Segment(11, 12, ((0, 3), (6, 7), (8, 11))))
    visible = intervals(runs, 12)
    assert visible.rows.tolist() == [9, 11]
    assert visible.until.tolist() == [12, 12, 12, 0, 0, 0, 12, 0, 12, 12, 12, 12]
    assert prefix_calls(visible) == [
        [Part((0, 2), (0, 3))],
        [Part((0, 2), (6, 7))],
        [Part((0, 2), (8, 9))],
        [Part((1, 2), (9, 10))],
        [Part((1, 2), (10, 11))],
    ]


def seen_by_paths(segments: Sequence[Segment], n: int, window: int | None) -> np.ndarray[Any, Any]:
    """Which keys each token sees, bool [n, n], from the path of every token written out."""
    seen = np.zeros((n, n), bool)
    for segment in segments:
        before = [k for start, end in segment.ancestors for k in range(start, end)]
        for q in range(segment.start, segment.end):
            path = [*before, *range(segment.start, q + 1)]
            seen[q, path[-window:] if window else path] = True
    return seen


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


@pytest.mark.usefixtures("flex_on_cpu", "varlen_on_cpu")
@pytest.mark.parametrize("kernel", ["flex", "varlen"])
def test_attention_and_its_gradients_are_those_of_a_mask_by_positions(kernel: attention.Kernel) -> None:
    """Float64, two key heads for four query heads, sinks, caps and windows where the kernel has them, all queries and some."""
    draw = torch.Generator().manual_seed(0)

    def some(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=draw, requires_grad=True)

    query, key, value, sinks = some(1, 4, 12, 2), some(1, 2, 12, 2), some(1, 2, 12, 2), some(4)

    def by_mask(segments: Sequence[Segment], window: int | None, cap: float | None, sink: Any) -> torch.Tensor:
        scores = query @ key.repeat_interleave(2, 1).mT * 0.7
        scores = cap * (scores / cap).tanh() if cap else scores
        scores = scores.where(torch.from_numpy(seen_by_paths(segments, 12, window)), -torch.inf)
        column = torch.full((4, 12, 1), -torch.inf) if sink is None else sink[:, None, None].expand(-1, 12, 1)
        shares = torch.cat([scores[0], column.to(scores.dtype)], -1).softmax(-1)[..., :12]
        return (shares @ value[0].repeat_interleave(2, 0)).transpose(0, 1)[None]

    chosen = (Segment(7, 8, ((0, 3), (6, 7))), Segment(9, 12, ((0, 3), (6, 7), (8, 9))))
    cases: list[tuple[Any, int | None, float | None, Any]] = [(TREE, None, None, None), (chosen, None, None, sinks)]
    if kernel == "flex":
        cases += [(TREE, 2, 0.5, None), (chosen, 3, 0.5, sinks)]
    for segments, window, cap, sink in cases:
        inputs = (query, key, value, *(() if sink is None else (sink,)))
        settings = {"sliding_window": window, "softcap": cap, "s_aux": sink, "scaling": 0.7}
        layout = attention.Layout(segments, kernel)
        attended, _ = attention.packed_attention(None, query, key, value, None, packed=layout, **settings)
        rows = [q for segment in segments for q in range(segment.start, segment.end)]
        assert float(attended.detach()[:, sorted({*range(12)} - {*rows})].abs().sum()) == 0
        expected, attended = by_mask(segments, window, cap, sink)[:, rows], attended[:, rows]
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


@pytest.mark.usefixtures("flex_on_cpu", "varlen_on_cpu")
@pytest.mark.parametrize("kernel", ["flex", "varlen"])
def test_an_engine_with_a_cuda_kernel_gives_the_logprobs_and_gradients_of_separate_rows(
    kernel: attention.Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward, "kernels_for", lambda device: (kernel, "sdpa"))
    model, rows = model_and_rows()
    engine = Engine.of(model)
    assert (engine.path, engine.pruned, engine.kernel, engine.reason) == ("packed", True, kernel, None)
    w = weights(rows)
    own = gradients(model, lambda: -(w * own_logprobs(model, rows)).sum())
    assert distance(own, gradients(model, lambda: -(w * engine.logprobs(rows).logprobs).sum())) < 1e-5
    with torch.no_grad():
        assert torch.allclose(engine.logprobs(rows).logprobs, own_logprobs(model, rows), rtol=1e-5, atol=1e-5)
    if kernel == "varlen":  # the other one takes seconds
        rounded = Engine.of(model, autocast=torch.bfloat16)
        assert (rounded.kernel, rounded.reason) == (kernel, None), (
            "differences by rounding to bfloat16 refuse no kernel"
        )
        assert distance(own, gradients(model, lambda: -(w * rounded.logprobs(rows).logprobs).sum())) < 0.2


@pytest.mark.usefixtures("varlen_on_cpu")
def test_a_kernel_that_drops_a_part_of_the_gradient_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merged by autograd, varlen attention has right outputs, and gradients without that of the log-sum-exp."""

    class MergedByAutograd(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, q: Any, k: Any, v: Any, sinks: Any, call: Any, scale: float) -> Any:
            out, lse, state, *_ = varlen._forward(
                q, k, v, *call[:2], *call.longest, 0.0, call.causal, False, scale=scale
            )
            ctx.save_for_backward(q, k, v, out, lse, *call[:2], state)
            ctx.call, ctx.scale = call, scale
            return out, lse.T if call.keyless is None else lse.T.masked_fill(call.keyless[:, None], -torch.inf)

        @staticmethod
        def backward(ctx: Any, grad: Any, _: Any) -> Any:
            *saved, state = ctx.saved_tensors
            last = *ctx.call.longest, 0.0, ctx.call.causal, state, torch.empty(0)
            return *varlen._backward(grad.contiguous(), *saved, *last, scale=ctx.scale), None, None, None

    def merged(q: Any, k: Any, v: Any, sinks: Any, calls: Any, scale: float) -> torch.Tensor:
        apply: Any = MergedByAutograd.apply
        return merge_parts([apply(q, k, v, sinks, call, scale) for call in calls], sinks)[0]

    monkeypatch.setattr(forward, "kernels_for", lambda device: ("varlen", "sdpa"))
    monkeypatch.setattr(varlen.VarlenAttention, "apply", merged)
    engine = Engine.of(model_and_rows()[0])
    assert engine.kernel is None
    assert engine.reason is not None
    assert "varlen attention is not used: gradients differ" in engine.reason


def test_without_their_device_the_kernels_are_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward, "kernels_for", attention.kernels_for)
    assert attention.kernels_for(torch.device("cuda")) == ("flex", "varlen", "sdpa")
    assert attention.kernels_for(torch.device("mps")) == ("sdpa",)
    monkeypatch.setattr(forward, "kernels_for", lambda device: attention.kernels_for(torch.device("cuda")))
    engine = Engine.of(model_and_rows()[0])
    assert (engine.path, engine.kernel) == ("packed", None)
    assert engine.reason is not None
    assert "flex attention is not used: FlexAttention does not support backward on CPU" in engine.reason
    assert "; varlen attention is not used: Could not run 'aten::_flash_attention_forward'" in engine.reason


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
