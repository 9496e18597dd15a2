"""The optimizer: clip the gradients, take a step; with sharding, every rank does so for its shard."""

from __future__ import annotations

import math
from typing import Any

import torch

from quintain.records.hyperparameters import TrainingConfig
from quintain.trainers.loop.checkpoint_weights import trainable


def adamw(model: Any, config: TrainingConfig) -> torch.optim.Optimizer:
    """Return AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101); biases and norm weights do not decay.

    Its learning rate is set at each update.
    """
    parameters = list(trainable(model).values())
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=0.0, fused=True)


def clip(model: Any, optimizer: torch.optim.Optimizer, scale: torch.amp.GradScaler, bound: float) -> float:
    """Unscale the gradients and clip their norm at `bound`, 0 for no bound; return the norm before clipping."""
    scale.unscale_(optimizer)
    return float(torch.nn.utils.clip_grad_norm_(trainable(model).values(), bound or math.inf))


def update(optimizer: torch.optim.Optimizer, scale: torch.amp.GradScaler, rate: float) -> None:
    """Take an optimizer step at a learning rate, and clear the gradients."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    scale.step(optimizer)  # skipped where a float16 gradient overflowed; then the scale is halved
    scale.update()
    optimizer.zero_grad(set_to_none=True)
