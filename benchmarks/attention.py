"""Attention of one layer, forward and backward: both CPU kernels of the engine beside PyTorch's own, in one run.

Run as `python -m benchmarks.attention [--rounds N] [--tokens N ...]`. Each figure is a median over rounds in which the sides
alternate: `fused` are calls of the fused kernel without repeated keys, `products` plain products by blocks with the run's back
end, `sdpa` is scaled_dot_product_attention with repeated keys. A ratio above 1 means that the side named first is faster.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F

from benchmarks.figures import report, say
from quintain.threads import limit_spinning
from quintain.trainers.engine.block_attention import BlockAttention, Scoring
from quintain.trainers.engine.fused_attention import FusedAttention
from quintain.trainers.engine.machine import prepare
from quintain.trainers.engine.packing import Segment

SHAPES = {"qwen": (8, 2, 64), "gemma": (4, 1, 256), "llama": (16, 8, 128)}
"""Heads, key heads and width of a head."""

_KEPT_BYTES = 2**27
"""Of the probabilities that a layer keeps: a pass keeps 1 GiB, here of eight layers."""


def _sides(shape: tuple[int, int, int], n: int, dtype: torch.dtype) -> dict[str, Callable[[], object]]:
    """Return a forward and backward pass of each kernel."""
    heads, groups, width = shape
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(groups, heads // groups, n, width, generator=generator).to(dtype).requires_grad_()
    key, value = (torch.randn(groups, n, width, generator=generator).to(dtype).requires_grad_() for _ in "kv")
    scoring, segments = Scoring(width**-0.5), (Segment(0, n),)

    def products() -> torch.Tensor:
        return BlockAttention.apply(query, key, value, None, segments, scoring, _KEPT_BYTES)

    def fused() -> torch.Tensor:
        return FusedAttention.apply(query, key.unsqueeze(1), value.unsqueeze(1), None, segments, scoring.scale, None)

    def sdpa() -> torch.Tensor:
        k, v = (x.repeat_interleave(heads // groups, 0)[None] for x in (key, value))
        attended = F.scaled_dot_product_attention(query.flatten(0, 1)[None], k, v, is_causal=True)
        return attended[0].transpose(0, 1).unflatten(1, (groups, -1))

    direction = torch.randn(n, groups, heads // groups, width, generator=generator).to(dtype)

    def both(side: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(side(), (query, key, value), direction)

    return {"products": partial(both, products), "fused": partial(both, fused), "sdpa": partial(both, sdpa)}


def compare(name: str, shape: tuple[int, int, int], n: int, dtype: torch.dtype, rounds: int) -> None:
    """Report the times of a shape and their ratios."""
    sides = _sides(shape, n, dtype)
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for i in range(rounds + 1):
        for side, run in sides.items():
            began = time.perf_counter()
            run()
            if i:  # the first round compiles products
                seconds[side].append(time.perf_counter() - began)
    label = f"attention_{name}_{n}_{str(dtype).removeprefix('torch.')}"
    for side, times in seconds.items():
        report(f"{label}_{side}_ms", [1e3 * s for s in times], "ms", None, "lower")
    for fast, slow in (("fused", "products"), ("fused", "sdpa")):
        ratios = [b / a for a, b in zip(seconds[fast], seconds[slow], strict=True)]
        report(f"{label}_{fast}_over_{slow}", [statistics.median(ratios)], "1", None)


def main() -> None:
    """Measure all shapes in both types."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attention", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, nargs="+", default=[1024, 2400])
    asked = parser.parse_args()
    machine = prepare("cpu")
    say(f"{torch.get_num_threads()} threads; another exact back end of float32 products is on: {machine.fast_matmul}")
    for dtype in (torch.float32, torch.bfloat16):
        for name, shape in SHAPES.items():
            for n in asked.tokens:
                compare(name, shape, n, dtype, asked.rounds)


if __name__ == "__main__":
    limit_spinning()
    main()
