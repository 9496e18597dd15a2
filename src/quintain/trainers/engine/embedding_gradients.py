"""Gradients at the input embeddings, for checks of what a model computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def gradient_at_embeddings(
    model: Any, compute: Callable[[], torch.Tensor], measure: Callable[[torch.Tensor], torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what a pass computes, detached, and the gradient of its measure at the output of the input embeddings.

    Args:
        model: The model; none of its parameters gets a gradient.
        compute: Runs one pass over the model.
        measure: Returns a scalar of what the pass computed.
    """
    embedded: list[torch.Tensor] = []

    def track(module: Any, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        embedded.append(output.detach().requires_grad_())
        return embedded[-1]

    hook = model.get_input_embeddings().register_forward_hook(track)
    try:
        with torch.enable_grad():
            computed = compute()
            (gradient,) = torch.autograd.grad(measure(computed), embedded[0])
    finally:
        hook.remove()
    return computed.detach(), gradient
