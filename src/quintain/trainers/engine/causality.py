"""Whether a model predicts tokens from those before them only: one that reads ahead finds every answer and learns nothing."""

from __future__ import annotations

from typing import Any

import torch

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
