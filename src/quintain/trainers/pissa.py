"""PiSSA: adapters that begin as the principal part of their weights (Meng et al. 2024, arXiv 2404.02948)."""

from __future__ import annotations

import math
from typing import Any

import torch

from quintain.errors import InvalidInput
from quintain.records.hyperparameters import LoraConfig

_ITERATIONS = 4
"""Power iterations of the randomised decomposition, as in the paper's fast variant. The start is exact whatever their number."""

_NAME = "default"


def doubled_alpha(lora: LoraConfig) -> float:
    """Return the alpha of an adapter of twice the rank whose scale is that of the settings."""
    return lora.alpha * (math.sqrt(2) if lora.rslora else 2.0)


@torch.no_grad()
def initialize(model: Any, rank: int) -> None:
    """Set the adapters of a model, which have rank 2 r, to the principal part of their weights less the same.

    The paper trains B and A in W_res + s B A with W_res = W - s B_0 A_0, where s B_0 A_0 is the part of W with the r largest
    singular values. Here W stays, and the constants -B_0 and A_0 are the other r columns and rows of the adapter:
    W + s [B, -B_0] [A; A_0] is the same function with the same gradients. So what is saved is a plain LoRA adapter of W, as
    it is after PEFT's conversion, and without adapters the model is the one that it began as.

    Args:
        model: With new adapters of rank 2 r.
        rank: r.

    Raises:
        InvalidInput: An adapter is on a module that is not a linear layer.
    """
    from peft.tuners.lora import LoraLayer

    for name, layer in model.named_modules():
        if not isinstance(layer, LoraLayer):
            continue
        if not isinstance(layer.get_base_layer(), torch.nn.Linear):
            raise InvalidInput(
                f"expected linear layers under lora.init 'pissa', got {name}; leave it out of lora.targets, or set lora.init to "
                "'default'"
            )
        _decompose(layer, rank)


def _decompose(layer: Any, rank: int) -> None:
    weight = layer.get_base_layer().weight.float()
    a, b = layer.lora_A[_NAME].weight, layer.lora_B[_NAME].weight
    k = min(rank, *weight.shape)
    u, values, v = torch.svd_lowrank(weight, q=min(2 * k, *weight.shape), niter=_ITERATIONS)
    root = (values[:k] / layer.scaling[_NAME]).sqrt()
    a[:k], b[:, :k] = root[:, None] * v[:, :k].T, u[:, :k] * root
    a[rank:], b[:, rank:] = 0.0, 0.0
    a[rank : rank + k], b[:, rank : rank + k] = a[:k], -b[:, :k]
    constant = torch.arange(2 * rank) >= rank
    a.register_hook(lambda gradient: gradient.masked_fill(constant.to(gradient.device)[:, None], 0.0))
    b.register_hook(lambda gradient: gradient.masked_fill(constant.to(gradient.device), 0.0))
