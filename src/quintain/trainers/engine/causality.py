"""Which tokens a model sees: one that reads ahead finds every answer and learns nothing; one with windows cannot be padded."""

from __future__ import annotations

import math
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

_LENGTH = 24
_FAINT = 1e-6
"""How far a later token may move a prediction, by how far the earlier ones do; in a causal model it is 0."""


def reads_ahead(model: Any) -> bool:
    """Do logits depend on later tokens, by their gradients at the embeddings? False where that cannot be told.

    Gradients, and not another text behind: what rounding turns into another choice of experts is no reading ahead.
    """
    vocabulary = model.get_input_embeddings().weight.shape[0]
    ids = torch.randint(vocabulary, (1, _LENGTH), generator=torch.Generator().manual_seed(0))
    seen: list[torch.Tensor] = []

    def marked(module: Any, inputs: Any, made: torch.Tensor) -> torch.Tensor:
        seen.append(made.detach().requires_grad_())
        return seen[-1]

    hook = model.get_input_embeddings().register_forward_hook(marked)
    try:
        with torch.enable_grad():
            logits = model(input_ids=ids.to(next(model.parameters()).device), use_cache=False).logits
            (gradient,) = torch.autograd.grad(logits[0, _LENGTH // 2 - 1].float().square().sum(), seen[0])
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        return False
    finally:
        hook.remove()
    sizes = gradient[0].float().norm(dim=-1)
    return bool(sizes[_LENGTH // 2 :].max() > _FAINT * sizes[: _LENGTH // 2].max())


def can_batch(config: Any) -> bool:
    """Does every layer of the model attend to all columns?

    Sliding windows and recurrent states count columns, padding included, so rows of different length would go wrong.
    """
    local = "local" in (getattr(config, "attention_layers", None) or ())  # GPT-Neo's own name for a window
    return not local and all(type(layer) is DynamicLayer for layer in DynamicCache(config=config).layers)


def picked_keys(config: Any) -> float:
    """How many keys each query picks by a score of its own (DeepSeek-V3.2 and its relatives); infinite where it sees all.

    The score is a sum of ReLUs, so many keys score exactly 0, and `topk` chooses among equals by where they stand in the whole
    width of the pass: in rows longer than this, padding moves the choice.
    """
    return getattr(config.get_text_config(decoder=True), "index_topk", None) or math.inf
