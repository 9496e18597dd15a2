"""Visibility of tokens: a model that reads ahead learns nothing, and one with windows cannot be padded."""

from __future__ import annotations

import math
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

_LENGTH = 24
_FAINT = 1e-6
"""Maximum influence of a later token on a prediction, relative to that of earlier ones; 0 in a causal model."""


def reads_ahead(model: Any) -> bool:
    """Whether logits depend on later tokens, by gradients at the embeddings; False if gradients are unavailable.

    Replacing later tokens would not do: rounding can change the choice of experts without reading ahead.
    """
    vocabulary = model.get_input_embeddings().weight.shape[0]
    ids = torch.randint(vocabulary, (1, _LENGTH), generator=torch.Generator().manual_seed(0))
    embedded: list[torch.Tensor] = []

    def track(module: Any, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        embedded.append(output.detach().requires_grad_())
        return embedded[-1]

    hook = model.get_input_embeddings().register_forward_hook(track)
    try:
        with torch.enable_grad():
            logits = model(input_ids=ids.to(next(model.parameters()).device), use_cache=False).logits
            (gradient,) = torch.autograd.grad(logits[0, _LENGTH // 2 - 1].float().square().sum(), embedded[0])
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        return False
    finally:
        hook.remove()
    sizes = gradient[0].float().norm(dim=-1)
    return bool(sizes[_LENGTH // 2 :].max() > _FAINT * sizes[: _LENGTH // 2].max())


def can_batch(config: Any) -> bool:
    """Whether every layer of the model attends to all columns.

    Sliding windows and recurrent states count columns, padding included, so rows of different lengths would be wrong.
    """
    local = "local" in (getattr(config, "attention_layers", None) or ())  # GPT-Neo's name for a window
    return not local and all(type(layer) is DynamicLayer for layer in DynamicCache(config=config).layers)


def picked_keys(config: Any) -> float:
    """Return how many keys each query selects by a score (DeepSeek-V3.2 and its relatives); infinite without selection.

    The score is a sum of ReLUs, so many keys score exactly 0, and `topk` chooses among equals by their position in the whole width
    of the pass. So in rows longer than this, padding changes the choice.
    """
    return getattr(config.get_text_config(decoder=True), "index_topk", None) or math.inf
