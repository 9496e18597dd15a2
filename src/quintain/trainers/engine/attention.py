"""Exact attention over a packed sequence, for any transformers model that takes its attention from the interface.

A segment attends to itself causally and to its ancestors in full. On the CPU each part is one call of the fused kernel; the
softmax over all parts follows from their log-sum-exps L_p,

    out = sum_p exp(L_p - L) out_p,   L = log sum_p exp(L_p),

and in the backward pass each part's kernel gets the merged `out` and `L`, from which it recomputes its part of the true softmax.
This is the identity of ring attention (Liu et al. 2023, arXiv 2310.01889). There are no masks and no copies of keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable
from torch.nn.attention.bias import causal_lower_right
from transformers import AttentionInterface

from quintain.trainers.engine.head import at_least_float32
from quintain.trainers.engine.machine import default_products
from quintain.trainers.engine.packing import Segment

NAME = "quintain_packed"
"""The attention function's name in transformers' registry."""

Kernel = Literal["flash_cpu", "sdpa"]

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward

_BLOCK = 256
"""Rows of a block; see `_blocks`."""

_FOREIGN = ("sliding_window", "softcap", "s_aux", "position_bias")
"""Arguments of models with another attention than the plain causal one."""


class Unsupported(ValueError):
    """The model's attention is not plain causal attention, or does not receive the layout."""


@dataclass(frozen=True)
class Layout:
    """Queries of the packed sequence and the ranges that they attend to; each layer receives it as `packed`."""

    segments: tuple[Segment, ...]
    """Rows outside of all segments are not queries: their output is zero."""
    kernel: Kernel


def kernel_for(device: torch.device) -> Kernel:
    """Return the fused CPU kernel on the CPU, scaled_dot_product_attention elsewhere."""
    return "flash_cpu" if device.type == "cpu" else "sdpa"


def packed_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Compute attention over one packed sequence, by the interface of transformers.

    Args:
        module: The attention module; unused.
        query: float [1, H, T, D].
        key: float [1, G, T, D], where G divides H: grouped-query heads are not repeated.
        value: float [1, G, T, E].
        attention_mask: Unused: the layout defines what is visible.
        **kwargs: `packed` (the layout), `scaling`, `dropout`, and further arguments of the model.

    Returns:
        float [1, T, H, E], and None for the attention weights.

    Raises:
        Unsupported: The layout is missing, or the model needs windows, caps, sinks or biases.
    """
    layout: Layout | None = kwargs.get("packed")
    if layout is None:
        raise Unsupported("the model does not hand keyword arguments down to its attention")
    if foreign := [name for name in _FOREIGN if kwargs.get(name) is not None]:
        raise Unsupported(f"its attention takes {', '.join(foreign)}")
    query, key = query.to(value.dtype), key.to(value.dtype)  # rotary embeddings leave float32 under autocast
    scale = kwargs.get("scaling") or query.shape[-1] ** -0.5
    dropout = kwargs.get("dropout") or 0.0
    # The fused CPU kernel has neither dropout nor values of another width.
    if layout.kernel == "sdpa" or dropout or value.shape[-1] != query.shape[-1]:
        return _generic(query, key, value, layout.segments, scale, dropout), None
    groups = key.shape[1]
    merged = _Flash.apply(
        query[0].unflatten(0, (groups, -1)), key[0].unsqueeze(1), value[0].unsqueeze(1), layout.segments, scale
    )
    return merged.flatten(1, 2).unsqueeze(0), None


AttentionInterface.register(NAME, packed_attention)


@contextmanager
def packed_attention_in(configs: Sequence[Any]) -> Iterator[None]:
    """Use packed attention in the models of these configurations, and restore their own afterwards."""
    before = [config._attn_implementation_internal for config in configs]
    try:
        for config in configs:
            # Not the property: its setter reaches into sub-configurations of parts that are not ours.
            config._attn_implementation_internal = NAME
        yield
    finally:
        for config, name in zip(configs, before, strict=True):
            config._attn_implementation_internal = name


def is_packed(config: Any) -> bool:
    """Whether models of this configuration use packed attention now."""
    return bool(config._attn_implementation_internal == NAME)


def attention_configs(model: Any) -> list[Any]:
    """Return the configurations from which the layers of a model read their attention implementation."""
    found = {id(m.config): m.config for m in model.modules() if hasattr(m, "config")}
    return [config for config in found.values() if hasattr(config, "_attn_implementation_internal")]


def _blocks(segments: Sequence[Segment]) -> Iterator[Segment]:
    """Yield the segments, long ones cut into blocks that have the earlier blocks among their ancestors.

    The fused kernel computes whole tiles along the diagonal and discards half of them. Short blocks waste less, and the tokens
    before a block are attended to in full.
    """
    for segment in segments:
        if segment.end - segment.start < 2 * _BLOCK:
            yield segment
            continue
        for start in range(segment.start, segment.end, _BLOCK):
            before = ((segment.start, start),) if start > segment.start else ()
            yield Segment(start, min(start + _BLOCK, segment.end), (*segment.ancestors, *before))


def _pieces(groups: int, heads: int) -> int:
    """Return into how many products to divide the heads of a group: the kernel uses one thread a product."""
    threads = torch.get_num_threads()
    return next(p for p in range(1, heads + 1) if heads % p == 0 and (groups * p >= threads or p == heads))


def _folded(x: torch.Tensor, pieces: int) -> torch.Tensor:
    """Fold heads of a group into rows, [G, h, m, ...] to [G, pieces, h/pieces m, ...], which needs no causal order."""
    return x.reshape(x.shape[0], pieces, -1, *x.shape[3:])


class _Flash(torch.autograd.Function):
    """Packed attention by the fused CPU kernel.

    Queries are [G, H/G, T, D] and keys [G, 1, T, D]: the kernel reads a key for all heads of its group through a stride of zero.
    Without a causal order, heads are rows of one query.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        segments: tuple[Segment, ...],
        scale: float,
    ) -> torch.Tensor:
        """Return float [T, G, H/G, D], the layout that the output projection wants."""
        groups, heads, n, width = query.shape
        complete = sum(s.end - s.start for s in segments) == n
        out = query.new_empty(n, groups, heads, width) if complete else query.new_zeros(n, groups, heads, width)
        lse = torch.empty(groups, heads, n, dtype=at_least_float32(query.dtype))
        pieces = _pieces(groups, heads)
        spread, folds = (-1, heads, -1, -1), (-1, pieces, -1, -1)
        with default_products():
            for block in _blocks(segments):
                rows = slice(block.start, block.end)
                q = query[:, :, rows]
                o, total = _flash(
                    q, key[:, :, rows].expand(spread), value[:, :, rows].expand(spread), 0.0, True, scale=scale
                )
                outs, sums = [o], [total]
                folded = _folded(q, pieces) if block.ancestors else q
                for start, end in block.ancestors:
                    k, v = key[:, :, start:end].expand(folds), value[:, :, start:end].expand(folds)
                    o, total = _flash(folded, k, v, 0.0, False, scale=scale)
                    outs.append(o.reshape(q.shape))
                    sums.append(total.reshape(q.shape[:3]))
                merged, lse[:, :, rows] = _merged(outs, sums)
                out[rows] = merged.permute(2, 0, 1, 3)
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.segments, ctx.scale = segments, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Sum the gradients of the parts, each computed with the merged output and log-sum-exp."""
        query, key, value, out, lse = ctx.saved_tensors
        grad, out = grad.permute(1, 2, 0, 3), out.permute(1, 2, 0, 3)
        d_query = torch.zeros_like(query)
        d_key, d_value = (torch.zeros_like(x[:, 0], dtype=at_least_float32(x.dtype)) for x in (key, value))
        pieces = _pieces(*query.shape[:2])
        spread, folds = (-1, query.shape[1], -1, -1), (-1, pieces, -1, -1)
        with default_products():
            for block in _blocks(ctx.segments):
                rows = slice(block.start, block.end)
                q, g, o, total = (x[:, :, rows] for x in (query, grad, out, lse))
                k, v = key[:, :, rows].expand(spread), value[:, :, rows].expand(spread)
                dq, dk, dv = _flash_backward(g, q, k, v, o, total, 0.0, True, scale=ctx.scale)
                d_query[:, :, rows] += dq
                d_key[:, rows] += dk.sum(1)
                d_value[:, rows] += dv.sum(1)
                folded = [_folded(x, pieces) for x in (g, q, o, total)] if block.ancestors else []
                for start, end in block.ancestors:
                    g, q, o, total = folded
                    k, v = key[:, :, start:end].expand(folds), value[:, :, start:end].expand(folds)
                    dq, dk, dv = _flash_backward(g, q, k, v, o, total, 0.0, False, scale=ctx.scale)
                    d_query[:, :, rows] += dq.reshape(d_query[:, :, rows].shape)
                    d_key[:, start:end] += dk.sum(1) if pieces > 1 else dk[:, 0]
                    d_value[:, start:end] += dv.sum(1) if pieces > 1 else dv[:, 0]
        return d_query, d_key.to(key.dtype).unsqueeze(1), d_value.to(value.dtype).unsqueeze(1), None, None


def _merged(outs: list[torch.Tensor], sums: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the output over all parts and its log-sum-exp, from those of each part."""
    if len(outs) == 1:
        return outs[0], sums[0]
    total = torch.logsumexp(torch.stack(sums), 0)
    merged = sum(o * (part - total).exp().unsqueeze(-1) for o, part in zip(outs, sums, strict=True))
    assert isinstance(merged, torch.Tensor)
    return merged, total


def _generic(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    segments: tuple[Segment, ...],
    scale: float,
    dropout: float,
) -> torch.Tensor:
    """Compute packed attention by scaled_dot_product_attention, one call a segment over its ancestors and itself.

    For CUDA and MPS; tested on the CPU only, against the fused kernel.
    """
    heads = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(heads, 1), value.repeat_interleave(heads, 1)
    n, width = query.shape[2], value.shape[3]
    pieces: list[torch.Tensor] = []
    done = 0
    for segment in segments:
        pieces.append(query.new_zeros(1, query.shape[1], segment.start - done, width))
        ranges = [*segment.ancestors, (segment.start, segment.end)]
        k, v = (
            torch.cat([x[:, :, a:b] for a, b in ranges], 2) if len(ranges) > 1 else x[:, :, ranges[0][0] : ranges[0][1]]
            for x in (key, value)
        )
        q = query[:, :, segment.start : segment.end]
        bias: Any = causal_lower_right(q.shape[2], k.shape[2])
        pieces.append(F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout, scale=scale))
        done = segment.end
    pieces.append(query.new_zeros(1, query.shape[1], n - done, width))
    return torch.cat(pieces, 2).transpose(1, 2).contiguous()
