"""Fast linear layers for few rows, as in decoding, with one token of each episode at a time.

For x W^T with few rows, CPU libraries use one thread, or kernels at a fraction of the memory bandwidth. As W x^T the weight is the long
side, and all threads compute the same product.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import nn

_MOST = 4
"""Rows above which `F.linear` is as fast. It is fixed and not timed, because a resumed run must round as before."""


@contextmanager
def small_batch_linear(model: nn.Module) -> Iterator[None]:
    """Make a model's float32 linear layers on the CPU fast for few rows; results agree up to rounding."""
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
    if rows == 1:  # the product with a vector is the slowest
        flat = torch.cat([flat, flat])
    product = (layer.weight @ flat.t()).t()[:rows]
    if layer.bias is not None:
        product = product + layer.bias
    return product.reshape(*x.shape[:-1], -1).contiguous()
