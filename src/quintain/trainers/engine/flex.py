"""Packed attention by flex attention: one call for all segments, with a mask of intervals, without copies of keys.

Source: Dong et al. 2024, arXiv 2412.05496 (`torch.nn.attention.flex_attention`). The kernel is compiled for lengths of any size, so
that a new length does not compile it again.

The packed order visits the trie depth first, so the descendants of a token are the tokens behind it up to some place: key k is
visible to the queries q with k <= q < until[k]. These are the Euler intervals of the trie, with the place as the time of entry.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

from quintain.trainers.engine.block_attention import Scoring
from quintain.trainers.engine.packing import Segment

BLOCK = 128
"""Queries and keys of a block of the mask; lengths that it divides need no bounds check in the kernel."""


_COMPILATIONS = 64
"""Compiled variants in a process: by type, head width, cap, sinks, gradients, and a few shapes of each. PyTorch's default of 8 would
end in an error, and without `fullgraph` in all scores of a pass in memory."""


class Intervals(NamedTuple):
    """Queries of a packed sequence of n tokens, and the queries that see each key."""

    rows: NDArray[np.int64]
    """int64 [m], rising: the tokens inside of the segments, which are the queries."""
    until: NDArray[np.int64]
    """int64 [n]; the queries in k..until[k] see key k. 0: none does."""
    position: NDArray[np.int64]
    """int64 [n]; the place of each visible key on its path."""


def intervals(segments: Sequence[Segment], n: int) -> Intervals:
    """Return the intervals of the segments of a packed sequence of n tokens, in one walk over their ranges."""
    until, position, is_query = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.bool_)
    for segment in segments:
        offset = 0
        for start, end in (*segment.ancestors, (segment.start, segment.end)):
            until[start:end] = segment.end
            position[start:end] = np.arange(offset, offset + end - start)
            offset += end - start
        is_query[segment.start : segment.end] = True
    return Intervals(np.flatnonzero(is_query), until, position)


class TrieMask(NamedTuple):
    """Mask of a layer over a packed sequence of n tokens."""

    blocks: BlockMask
    rows: torch.Tensor
    """int64 [M]: the token of each query, the last one repeated up to a multiple of the block."""
    n_queries: int
    """M without the repetitions."""


def trie_mask(segments: Sequence[Segment], n: int, window: int | None, device: torch.device) -> TrieMask:
    """Return the mask of the segments of a packed sequence of n tokens.

    Query q with token r sees key k if k <= r < until[k], and pos[r] - pos[k] < window on its path. Whether a block of the mask is
    empty, partial or full follows from the extremes of these in the block, without the n^2 entries.
    """
    visible = intervals(segments, n)
    count = len(visible.rows)
    rows = np.concatenate([visible.rows, np.full(-count % BLOCK, visible.rows[-1])])
    first = visible.position[rows] - (n if window is None else window - 1)
    shown, full = _block_kinds(rows, first, visible.until, visible.position)
    row, lowest, until, position = (
        torch.from_numpy(x.astype(np.int32)).to(device) for x in (rows, first, visible.until, visible.position)
    )

    def sees(b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return (k <= row[q]) & (row[q] < until[k]) & (position[k] >= lowest[q])

    blocks = BlockMask.from_kv_blocks(
        *_listed(shown & ~full, device),
        *_listed(full, device),
        BLOCK_SIZE=BLOCK,
        mask_mod=sees,
        seq_lengths=(len(rows), n),
    )
    return TrieMask(blocks, torch.from_numpy(rows).to(device), count)


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    sinks: torch.Tensor | None,
    mask: TrieMask,
    scoring: Scoring,
) -> torch.Tensor:
    """Return the attention of the queries of the mask.

    A sink s is one more score without a value. With the log-sum-exp l of a query's scores, it scales the output by
    exp(l - log(exp(l) + exp(s))).

    Args:
        query: float [1, H, n, D].
        key: float [1, G, n, D], where G divides H.
        value: float [1, G, n, E].
        sinks: float [H]; None: none.
        mask: The mask, whose window is that of `scoring`.
        scoring: How the layer scores keys.

    Returns:
        float [1, n, H, E], zero at the tokens that are not queries.
    """
    n = query.shape[2]
    complete = mask.n_queries == n == len(mask.rows)
    result: Any = _kernel(query.device.type)(
        query if complete else query.index_select(2, mask.rows),
        key,
        value,
        score_mod=_cap(scoring.cap),
        block_mask=mask.blocks,
        scale=scoring.scale,
        enable_gqa=key.shape[1] != query.shape[1],
        return_aux=None if sinks is None else AuxRequest(lse=True),
    )
    out: torch.Tensor = result if sinks is None else result[0]
    if sinks is not None:
        total = result[1].lse
        sink = sinks.to(total.dtype)[:, None]
        out = (out * (total - torch.logaddexp(total, sink)).exp().unsqueeze(-1)).to(value.dtype)
    out = out.transpose(1, 2)
    if complete:
        return out.contiguous()
    attended = out.new_zeros(1, n, *out.shape[2:])
    return attended.index_copy(1, mask.rows[: mask.n_queries], out[:, : mask.n_queries])


@cache
def _kernel(device_type: str) -> Callable[..., Any]:
    """Return flex attention, compiled where it has a fused kernel with gradients."""
    kernel: Callable[..., Any] = flex_attention
    if device_type == "cpu":
        return kernel
    limits = importlib.import_module("torch._dynamo").config
    limits.recompile_limit = max(limits.recompile_limit, _COMPILATIONS)
    return torch.compile(kernel, dynamic=True, fullgraph=True)


@cache
def _cap(cap: float | None) -> Callable[..., torch.Tensor] | None:
    """Return the change of scores to cap * tanh(score / cap); the same function for the same cap, so that it compiles once."""
    if cap is None:
        return None

    def capped(score: torch.Tensor, b: Any, h: Any, q: Any, k: Any) -> torch.Tensor:
        return cap * torch.tanh(score / cap)

    return capped


def _block_kinds(
    rows: NDArray[np.int64], first: NDArray[np.int64], until: NDArray[np.int64], position: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which blocks may have visible pairs, and in which ones all pairs are visible, bool [M / 128, n / 128] each."""

    def extremes(x: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        starts = np.arange(0, len(x), BLOCK)
        return np.minimum.reduceat(x, starts), np.maximum.reduceat(x, starts)

    (row_low, row_high), (first_low, first_high) = ([x[:, None] for x in extremes(y)] for y in (rows, first))
    (key_low, key_high), (until_low, until_high), (at_low, at_high) = map(
        extremes, (np.arange(len(until)), until, position)
    )
    shown = (key_low <= row_high) & (row_low < until_high) & (at_high >= first_low)
    return shown, (key_high <= row_low) & (row_high < until_low) & (at_low >= first_high)


def _listed(blocks: NDArray[np.bool_], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return how many blocks of keys each block of queries has, int32 [1, 1, q], and their numbers first, [1, 1, q, k]."""
    counts, order = blocks.sum(1), np.argsort(~blocks, axis=1, kind="stable")
    number, indices = (torch.from_numpy(x.astype(np.int32))[None, None].to(device) for x in (counts, order))
    return number, indices
