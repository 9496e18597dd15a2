"""Noise on the embeddings while a model is trained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from quintain.records.hyperparameters import SFTConfig, TrainingConfig


def noise_of(config: TrainingConfig) -> float:
    """Return the alpha of a run's noise, 0 for none."""
    return (config.neftune_alpha or 0.0) if isinstance(config, SFTConfig) else 0.0


@contextmanager
def embedding_noise(model: Any, alpha: float, lengths: torch.Tensor) -> Iterator[None]:
    """Add alpha / sqrt(L d) times uniform numbers in -1..1 to the embeddings (NEFTune, Jain et al. 2023, arXiv 2310.05914).

    L is the length of the token's own row and d the width of the embeddings. A model in eval mode gets none.

    Args:
        model: The model, plain or with adapters.
        alpha: 0: no noise, and no random numbers are drawn.
        lengths: int64, broadcastable to [B, T]: L of each token.
    """
    if not alpha or not model.training:
        yield
        return

    def add(module: Any, arguments: Any, embedded: torch.Tensor) -> torch.Tensor:
        bound = alpha / (lengths.to(embedded.device).unsqueeze(-1) * embedded.shape[-1]).sqrt()
        return embedded + (2 * torch.rand_like(embedded) - 1) * bound.to(embedded.dtype)

    hook = model.get_input_embeddings().register_forward_hook(add)
    try:
        yield
    finally:
        hook.remove()
