"""Packed attention by plain matrix products: a block of queries at a time, with its probabilities in memory.

In float32 this is faster than the fused CPU kernel, because the products take the back end of the run's products. The backward
pass reads the probabilities P that were kept and computes the others again, to the same bits. With dP = dO V^T and the row sums
D = sum_d dO O, the scores get

    dS = P (dP - D),

as in FlashAttention (Dao et al. 2022, arXiv 2205.14135, appendix B.4). An attention sink is one more score without a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

from quintain.trainers.engine.head import at_least_float32
from quintain.trainers.engine.machine import products_of
from quintain.trainers.engine.packing import Range, Segment, path_slice

_BLOCK = 256
"""Maximum number of queries of a block."""

_SCORES = 2**23
"""Maximum number of scores of a block over all heads, unless a block has one query."""

_HIDDEN = torch.full((_BLOCK, _BLOCK), -torch.inf).triu(1)
"""Mask of the keys after their query. Added, because `masked_fill_` takes four times as long."""

_LONG = 256
"""Keys from which the products of a block take the back end of the run's products, which compiles each new shape."""


class Scoring(NamedTuple):
    """How a layer scores keys."""

    scale: float
    window: int | None = None
    """A query sees the keys less than so many tokens before it on its own path, itself included; None: all."""
    cap: float | None = None
    """Scores become cap * tanh(score / cap); None: they stay."""


class _Block(NamedTuple):
    """Consecutive queries and the keys that at least one of them sees; the last keys are the queries' own."""

    queries: slice
    keys: tuple[Range, ...]

    def of(self, x: torch.Tensor) -> torch.Tensor:
        """Return the rows of the keys, [G, T, D] to [G, K, D]; a view where they are consecutive."""
        parts = [x[:, a:b] for a, b in self.keys]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def add(self, total: torch.Tensor, part: torch.Tensor) -> None:
        """Add [G, D, K] to the columns of the keys in [G, D, T]."""
        done = 0
        for a, b in self.keys:
            total[..., a:b] += part[..., done : done + b - a]
            done += b - a

    def products(self) -> AbstractContextManager[None]:
        """Return the back end of the block's products."""
        return nullcontext() if sum(b - a for a, b in self.keys) >= _LONG else products_of("highest")


def _blocks(segments: Sequence[Segment], heads: int, window: int | None) -> Iterator[_Block]:
    for segment in segments:
        length = sum(b - a for a, b in segment.ancestors)
        longest = length + segment.end - segment.start
        reach = longest if window is None else min(longest, window + _BLOCK)
        size = max(min(_BLOCK, _SCORES // (heads * reach)), 1)
        for start in range(segment.start, segment.end, size):
            end = min(start + size, segment.end)
            path = (*segment.ancestors, (segment.start, end))
            first = length + start - segment.start
            low = 0 if window is None else max(first - window + 1, 0)
            yield _Block(slice(start, end), path_slice(path, low, length + end - segment.start))


def _hide(scores: torch.Tensor, window: int | None) -> None:
    """Set the scores [..., n, K] of keys after their query, and of those that have left its window, to -inf."""
    n, keys = scores.shape[-2:]
    scores[..., keys - n :] += _HIDDEN[:n, :n]
    if window is not None and keys > window:
        gone = torch.ones(n, keys - window, dtype=torch.bool).tril(keys - window - n)
        scores[..., : keys - window].masked_fill_(gone, -torch.inf)


def _scores(
    query: torch.Tensor, key: torch.Tensor, n: int, scoring: Scoring
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the scores of scaled queries [G, r n, D], [G, r, n, K], and the slope of the cap."""
    scores = torch.bmm(query, key.mT).to(at_least_float32(query.dtype))
    slope = None
    if scoring.cap is not None:
        squashed = (scores / scoring.cap).tanh_()
        slope, scores = 1 - squashed.square(), squashed * scoring.cap
    scores = scores.view(query.shape[0], -1, n, key.shape[1])
    _hide(scores, scoring.window)
    return scores, slope


def _probabilities(scores: torch.Tensor, sinks: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the probabilities of keys, [G, r, n, K], and those of the sinks, [G, r, n]."""
    if sinks is None:
        return scores.softmax(-1), None
    total = torch.logaddexp(scores.logsumexp(-1), sinks)
    return scores.sub_(total.unsqueeze(-1)).exp_(), (sinks - total).exp_()


def row_products(grad: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Return sum_d grad * out, at least float32 [G, h, n]."""
    wide = at_least_float32(out.dtype)
    return (grad.to(wide) * out.to(wide)).sum(-1)


class BlockAttention(torch.autograd.Function):
    """Attention of queries [G, H/G, T, D] to keys [G, T, D] with values [G, T, E]: a group of heads shares its keys."""

    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        sinks: torch.Tensor | None,
        segments: tuple[Segment, ...],
        scoring: Scoring,
        room: int,
    ) -> torch.Tensor:
        """Return float [T, G, H/G, E], the layout that the output projection wants; `sinks` is float32 [G, H/G, 1].

        Probabilities are kept in at most `room` bytes; with caps or sinks, whose gradients need more, none are.
        """
        groups, heads, n, _ = query.shape
        if not any(ctx.needs_input_grad) or sinks is not None or scoring.cap is not None:
            room = 0
        kept = []
        complete = sum(s.end - s.start for s in segments) == n
        shape = n, groups, heads, value.shape[2]
        out = query.new_empty(shape) if complete else query.new_zeros(shape)
        for block in _blocks(segments, groups * heads, scoring.window):
            with block.products():
                q = (query[:, :, block.queries] * scoring.scale).flatten(1, 2)
                scores, _ = _scores(q, block.of(key), block.queries.stop - block.queries.start, scoring)
                p = _probabilities(scores, sinks)[0].flatten(1, 2).to(value.dtype)
                attended = torch.bmm(p, block.of(value))
            out[block.queries] = attended.unflatten(1, (heads, -1)).permute(2, 0, 1, 3)
            if p.nbytes <= room:
                kept.append(p)
                room -= p.nbytes
            else:
                room = 0  # so that those that are kept are of the first blocks
        ctx.save_for_backward(query, key, value, sinks, out, *kept)
        ctx.segments, ctx.scoring = segments, scoring
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Read or compute again the probabilities of each block, and from them the gradients."""
        query, key, value, sinks, out, *kept = ctx.saved_tensors
        scoring, (groups, heads) = ctx.scoring, query.shape[:2]
        grad, out = grad.permute(1, 2, 0, 3), out.permute(1, 2, 0, 3)
        d_query = torch.zeros_like(query)
        # Transposed, so that the small operand of their products is the transposed one.
        d_key, d_value = (torch.zeros_like(x.mT, dtype=at_least_float32(x.dtype)) for x in (key, value))
        d_sinks = None if sinks is None else torch.zeros_like(sinks)
        for i, block in enumerate(_blocks(ctx.segments, groups * heads, scoring.window)):
            rows, n = block.queries, block.queries.stop - block.queries.start
            g, k = grad[:, :, rows], block.of(key)
            q = (query[:, :, rows] * scoring.scale).flatten(1, 2)
            d = row_products(g, out[:, :, rows])
            g = g.flatten(1, 2)
            with block.products():
                slope = of_sinks = None
                if i < len(kept):
                    p = kept[i]
                else:
                    scores, slope = _scores(q, k, n, scoring)
                    shares, of_sinks = _probabilities(scores, sinks)
                    p = shares.flatten(1, 2)
                block.add(d_value, torch.bmm(g.mT, p.to(g.dtype)))
                d_scores = torch.bmm(g, block.of(value).mT).to(p.dtype).sub_(d.reshape(groups, -1, 1)).mul_(p)
                if slope is not None:
                    d_scores *= slope
                d_scores = d_scores.to(q.dtype)
                block.add(d_key, torch.bmm(q.mT, d_scores))
                d_query[:, :, rows] = torch.bmm(d_scores, k).mul_(scoring.scale).unflatten(1, (heads, -1))
            if d_sinks is not None and of_sinks is not None:
                d_sinks -= (of_sinks * d).sum(2, keepdim=True)
        return d_query, d_key.mT.to(key.dtype), d_value.mT.to(value.dtype), d_sinks, None, None, None
