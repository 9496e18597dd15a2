"""Packed attention by the kernels beneath `torch.nn.attention.varlen`: one call for all segments, and one a level of prefixes.

The calls are merged as on the CPU (see `fused_attention`). PyTorch's own backward pass of varlen attention drops the gradient of the
log-sum-exp, so a merge by autograd would give wrong gradients without an error. Here the merge and its calls are one function, whose
backward pass hands the merged output and log-sum-exp to the kernel of each call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

from quintain.trainers.engine.fused_attention import merge_parts, sink_gradient
from quintain.trainers.engine.head import at_least_float32
from quintain.trainers.engine.packing import Segment
from quintain.trainers.engine.trie_intervals import Part, causal_parts, intervals, prefix_calls, sequence_bounds

_forward = torch.ops.aten._flash_attention_forward
_backward = torch.ops.aten._flash_attention_backward


class Call(NamedTuple):
    """Arguments of one call: sequences of m queries and n keys."""

    query_bounds: torch.Tensor
    """int32 [S + 1]"""
    key_bounds: torch.Tensor
    """int32 [S + 1]"""
    longest: tuple[int, int]
    """Queries and keys of the longest sequence."""
    causal: bool
    keyless: torch.Tensor | None
    """bool [m]: queries without keys in this call; None: there are none."""


class Schedule(NamedTuple):
    """Calls over a packed sequence."""

    calls: tuple[Call, ...]
    rows: torch.Tensor | None
    """int64 [m]: the tokens that are queries; None: all."""


def schedule(segments: Sequence[Segment], n: int, device: torch.device) -> Schedule:
    """Return the calls for the segments of a packed sequence of n tokens, the causal one first."""
    visible = intervals(segments, n)
    m = len(visible.rows)
    calls = [_call(causal_parts(segments, visible), m, n, True, device)]
    calls += [_call(parts, m, n, False, device) for parts in prefix_calls(visible)]
    return Schedule(tuple(calls), None if m == n else torch.from_numpy(visible.rows).to(device))


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    sinks: torch.Tensor | None,
    planned: Schedule,
    scale: float,
) -> torch.Tensor:
    """Return attention without windows and caps.

    Args:
        query: float [1, H, n, D].
        key: float [1, G, n, D], where G divides H.
        value: float [1, G, n, D].
        sinks: float [H]; None: none.
        planned: The calls.
        scale: Factor of the scores.

    Returns:
        float [1, n, H, D], zero at the tokens that are no queries.
    """
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    if planned.rows is None:
        return VarlenAttention.apply(q, k, v, sinks, planned.calls, scale).unsqueeze(0)
    out = VarlenAttention.apply(q.index_select(0, planned.rows), k, v, sinks, planned.calls, scale)
    return out.new_zeros(1, *q.shape).index_copy(1, planned.rows, out.unsqueeze(0))


class VarlenAttention(torch.autograd.Function):
    """Attention merged from calls of the varlen kernels."""

    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        sinks: torch.Tensor | None,
        calls: tuple[Call, ...],
        scale: float,
    ) -> torch.Tensor:
        """Return float [m, H, D] of queries [m, H, D], keys and values [n, G, D] and sinks [H]."""
        parts = []
        for call in calls:
            out, lse, state, *_ = _forward(
                query, key, value, *call[:2], *call.longest, 0.0, call.causal, False, scale=scale
            )
            lse = _by_query(lse, query)
            parts.append((out, lse if call.keyless is None else lse.masked_fill(call.keyless[:, None], -torch.inf)))
        merged, total = merge_parts(parts, None if sinks is None else sinks.to(at_least_float32(query.dtype)))
        merged = merged.to(query.dtype)
        ctx.save_for_backward(query, key, value, sinks, merged, total, state)
        ctx.calls, ctx.scale = calls, scale
        return merged

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Sum the gradients of the calls, each computed with the merged output and log-sum-exp."""
        query, key, value, sinks, out, total, state = ctx.saved_tensors
        grad, by_head, unused = grad.contiguous(), total.T.contiguous(), total.new_empty(0)
        sums = [torch.zeros_like(x, dtype=at_least_float32(x.dtype)) for x in (query, key, value)]
        for call in ctx.calls:
            gradients = _backward(
                grad,
                query,
                key,
                value,
                out,
                by_head,
                *call[:2],
                *call.longest,
                0.0,
                call.causal,
                state,
                unused,
                scale=ctx.scale,
            )
            for total_gradient, gradient in zip(sums, gradients, strict=True):
                total_gradient += gradient
        d_sinks = None if sinks is None else sink_gradient(sinks, total, grad, out).sum(0).to(sinks.dtype)
        d_query, d_key, d_value = (x.to(y.dtype) for x, y in zip(sums, (query, key, value), strict=True))
        return d_query, d_key, d_value, d_sinks, None, None


def _by_query(lse: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """Return the log-sum-exp as [m, H]; the kernels return [H, m], their documentation [m, H].

    Raises:
        ValueError: It has neither shape.
    """
    m, heads = query.shape[:2]
    if lse.shape == (heads, m):
        return lse.T
    raise ValueError(f"expected a log-sum-exp of shape ({heads}, {m}) from the varlen kernel, got {tuple(lse.shape)}")


def _call(parts: Sequence[Part], m: int, n: int, causal: bool, device: torch.device) -> Call:
    queries, keys = (torch.tensor(bounds, dtype=torch.int32) for bounds in sequence_bounds(parts, m, n))
    keyless = torch.ones(m, dtype=torch.bool)
    for part in parts:
        keyless[slice(*part.queries)] = False
    longest = int(queries.diff().max()), int(keys.diff().max())
    return Call(
        queries.to(device), keys.to(device), longest, causal, keyless.to(device) if bool(keyless.any()) else None
    )
