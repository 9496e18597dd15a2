"""Linear layers of few rows: what decoding is made of, a token of each episode at a time.

`F.linear` reads a weight as the narrow side of x W^T. With a handful of rows CPU libraries then use one thread, or kernels
that reach a fraction of the memory's rate; as W x^T the weight is the long side, and the same product is made by all threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import nn

_MOST = 4
"""Rows above which `F.linear` is as quick. By number and not by timing: a resumed run must round as it did before."""


@contextmanager
def small_batch_linear(model: nn.Module) -> Iterator[None]:
    """Let a model's float32 linear layers on the CPU compute few rows quickly, up to rounding the same."""
    layers = [
        layer
        for layer in model.modules()
        if type(layer) is nn.Linear and "forward" not in vars(layer) and _fits(layer.weight)
    ]
    for layer in layers:
        layer.forward = partial(_forward, layer)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _fits(weight: torch.Tensor) -> bool:
    return type(weight) is nn.Parameter and weight.dtype == torch.float32 and weight.device.type == "cpu"


def _forward(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    rows = x.numel() // x.shape[-1]
    if not 0 < rows <= _MOST:
        return nn.functional.linear(x, layer.weight, layer.bias)
    flat = x.reshape(rows, -1)
    if rows == 1:  # the product with a vector is the slowest of all
        flat = torch.cat([flat, flat])
    made = (layer.weight @ flat.t()).t()[:rows]
    if layer.bias is not None:
        made = made + layer.bias
    return made.reshape(*x.shape[:-1], -1).contiguous()
