"""Floating-point operations of weights and attention."""

from __future__ import annotations

from typing import Any

import torch

from quintain.trainers.quantization import size_of


def weight_flops(weight: torch.Tensor) -> float:
    """Return the FLOPs of a token in forward and backward."""
    return (6.0 if weight.requires_grad else 4.0) * size_of(weight)


def attention_widths(config: Any) -> list[int]:
    """Return heads times head width of each layer; empty without attention."""
    layers = getattr(config, "num_hidden_layers", 0)
    try:
        heads = getattr(config, "num_attention_heads", 0)
        width = heads * (getattr(config, "head_dim", None) or config.hidden_size // heads) if heads else 0
        return [width] * layers if width else []
    except RuntimeError:  # the layers differ
        each = [config.per_layer_config[i] for i in range(layers)]
        return [one.num_attention_heads * one.head_dim for one in each]
