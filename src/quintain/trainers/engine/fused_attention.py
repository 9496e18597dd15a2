"""Packed attention on the CPU, merged from calls of the fused kernel.

Each segment attends to ranges of keys, one kernel call a range; the softmax over all ranges follows from their log-sum-exps
L_p,

    out = sum_p exp(L_p - L) out_p,   L = log sum_p exp(L_p),

and in the backward pass each call gets the merged `out` and `L`, from which it recomputes its part of the true softmax.
This is the identity of ring attention (Liu et al. 2023, arXiv 2310.01889). An attention sink is one more term of L without a value.
There are no masks and no copies of keys, except of the keys that leave a sliding window within a block. In 16 bits the kernel
also sums in float32, where plain products round the scores. In float32 it computes with PyTorch's default products, so that plain
products are faster where the run has another back end (`block_attention`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from quintain.trainers.engine.block_attention import row_products
from quintain.trainers.engine.head import at_least_float32
from quintain.trainers.engine.packing import Range, Segment, path_slice

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class _Block(NamedTuple):
    """Consecutive queries with the keys before them."""

    rows: slice
    visible: tuple[Range, ...]
    """Keys that all queries of the block see."""
    leaving: tuple[Range, ...]
    """Keys before those, of which each query of the block sees one fewer than the query before it."""


def _blocks(segments: Sequence[Segment], window: int | None) -> Iterator[_Block]:
    """Yield the segments, cut where they are longer than a window, so that no query leaves its own block's keys.

    Blocks have the earlier ones of their segment among the keys before them. Shorter blocks only add calls: the kernel itself
    skips the tiles behind the diagonal (`python -m benchmarks.attention`).
    """
    for segment in segments:
        size = segment.end - segment.start if window is None else window
        length = sum(b - a for a, b in segment.ancestors)
        for start in range(segment.start, segment.end, size):
            end = min(start + size, segment.end)
            before = ((segment.start, start),) if start > segment.start else ()
            path, first = (*segment.ancestors, *before), length + start - segment.start
            # Keys from `all_see` on are in the window of the last query, keys from `one_sees` on in that of the first.
            all_see = 0 if window is None else max(first + end - start - window, 0)
            one_sees = 0 if window is None else max(first - window + 1, 0)
            yield _Block(slice(start, end), path_slice(path, all_see, first), path_slice(path, one_sees, all_see))


def _backwards(ranges: Sequence[Range]) -> torch.Tensor:
    """Return the rows of ranges in reverse order, int64 [m]."""
    return torch.cat([torch.arange(a, b) for a, b in ranges]).flip(0)


def _reversed(x: torch.Tensor) -> torch.Tensor:
    """Return the rows of a block that see leaving keys, all but the last, in reverse order: [G, h, n, ...] to [G, h, n - 1, ...].

    Queries and leaving keys in reverse order see each other causally.
    """
    return x[:, :, :-1].flip(2)


def _pieces(groups: int, heads: int) -> int:
    """Return into how many products to divide the heads of a group: the kernel uses one thread a product."""
    threads = torch.get_num_threads()
    return next(p for p in range(1, heads + 1) if heads % p == 0 and (groups * p >= threads or p == heads))


def _folded(x: torch.Tensor, pieces: int) -> torch.Tensor:
    """Fold heads of a group into rows, [G, h, m, ...] to [G, pieces, h/pieces m, ...], which needs no causal order."""
    return x.reshape(x.shape[0], pieces, -1, *x.shape[3:])


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return output and log-sum-exp of one range of keys."""
    out, lse = _flash(query, key, value, 0.0, causal, scale=scale)
    return out, lse.reshape(query.shape[:3])


class FusedAttention(torch.autograd.Function):
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
        sinks: torch.Tensor | None,
        segments: tuple[Segment, ...],
        scale: float,
        window: int | None,
    ) -> torch.Tensor:
        """Return float [T, G, H/G, D], the layout that the output projection wants; `sinks` is float32 [G, H/G, 1]."""
        groups, heads, n, width = query.shape
        complete = sum(s.end - s.start for s in segments) == n
        out = query.new_empty(n, groups, heads, width) if complete else query.new_zeros(n, groups, heads, width)
        lse = torch.empty(groups, heads, n, dtype=at_least_float32(query.dtype))
        pieces = _pieces(groups, heads)
        spread, folds = (-1, heads, -1, -1), (-1, pieces, -1, -1)
        for rows, visible, leaving in _blocks(segments, window):
            q = query[:, :, rows]
            parts = [_attend(q, key[:, :, rows].expand(spread), value[:, :, rows].expand(spread), True, scale)]
            folded = _folded(q, pieces) if visible else q
            for start, end in visible:
                k, v = key[:, :, start:end].expand(folds), value[:, :, start:end].expand(folds)
                o, total = _attend(folded, k, v, False, scale)
                parts.append((o.reshape(q.shape), total.reshape(q.shape[:3])))
            if leaving:
                at = _backwards(leaving)
                o, total = _attend(
                    _reversed(q), key[:, :, at].expand(spread), value[:, :, at].expand(spread), True, scale
                )
                parts.append((F.pad(o.flip(2), (0, 0, 0, 1)), F.pad(total.flip(2), (0, 1), value=-torch.inf)))
            merged, lse[:, :, rows] = _merge_parts(parts, sinks)
            out[rows] = merged.permute(2, 0, 1, 3)
        ctx.save_for_backward(query, key, value, sinks, out, lse)
        ctx.segments, ctx.scale, ctx.window = segments, scale, window
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Sum the gradients of the parts, each computed with the merged output and log-sum-exp."""
        query, key, value, sinks, out, lse = ctx.saved_tensors
        grad, out = grad.permute(1, 2, 0, 3), out.permute(1, 2, 0, 3)
        d_query = torch.zeros_like(query)
        d_key, d_value = (torch.zeros_like(x[:, 0], dtype=at_least_float32(x.dtype)) for x in (key, value))
        d_sinks = None if sinks is None else torch.zeros_like(sinks)
        pieces, scale = _pieces(*query.shape[:2]), ctx.scale
        spread, folds = (-1, query.shape[1], -1, -1), (-1, pieces, -1, -1)
        for rows, visible, leaving in _blocks(ctx.segments, ctx.window):
            q, g, o, total = own = [x[:, :, rows] for x in (query, grad, out, lse)]
            k, v = key[:, :, rows].expand(spread), value[:, :, rows].expand(spread)
            dq, dk, dv = _flash_backward(g, q, k, v, o, total, 0.0, True, scale=scale)
            d_query[:, :, rows] += dq
            d_key[:, rows] += dk.sum(1)
            d_value[:, rows] += dv.sum(1)
            if d_sinks is not None:
                d_sinks += _sink_gradient(sinks, total, g, o).sum(2, keepdim=True)
            q, g, o, total = [_folded(x, pieces) for x in own] if visible else own
            for start, end in visible:
                k, v = key[:, :, start:end].expand(folds), value[:, :, start:end].expand(folds)
                dq, dk, dv = _flash_backward(g, q, k, v, o, total, 0.0, False, scale=scale)
                d_query[:, :, rows] += dq.reshape(d_query[:, :, rows].shape)
                d_key[:, start:end] += dk.sum(1) if pieces > 1 else dk[:, 0]
                d_value[:, start:end] += dv.sum(1) if pieces > 1 else dv[:, 0]
            if leaving:
                at = _backwards(leaving)
                k, v = key[:, :, at].expand(spread), value[:, :, at].expand(spread)
                q, g, o, total = (_reversed(x) for x in own)
                dq, dk, dv = _flash_backward(g, q, k, v, o, total, 0.0, True, scale=scale)
                d_query[:, :, rows][:, :, :-1] += dq.flip(2)
                d_key.index_add_(1, at, dk.sum(1).to(d_key.dtype))
                d_value.index_add_(1, at, dv.sum(1).to(d_value.dtype))
        return (
            d_query,
            d_key.to(key.dtype).unsqueeze(1),
            d_value.to(value.dtype).unsqueeze(1),
            d_sinks,
            None,
            None,
            None,
        )


def _merge_parts(
    parts: list[tuple[torch.Tensor, torch.Tensor]], sinks: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the output over all parts and the sinks, [..., D], and its log-sum-exp, [...], from those of each part."""
    if len(parts) == 1 and sinks is None:
        return parts[0]
    sums = [part for _, part in parts]
    total = torch.logsumexp(torch.stack(sums if sinks is None else [*sums, sinks.expand_as(sums[0])]), 0)
    merged = sum(o * (part - total).exp().unsqueeze(-1) for o, part in parts)
    assert isinstance(merged, torch.Tensor)
    return merged, total


def _sink_gradient(sinks: torch.Tensor, lse: torch.Tensor, grad: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Return the gradient of the sinks by each query, [...]: a sink's share exp(s - L) times -sum_d grad * out."""
    return -(sinks - lse).exp() * row_products(grad, out)
