"""Losses as plain functions of log-probabilities, and the forward pass that gives these.

N is the number of supervised tokens of a batch, V the size of the vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from quintain.trainers.batching import Batch
from quintain.trainers.models import decoder_and_head

_TOLERANCE = 1e-4
"""Largest difference of log-probabilities at which two forward passes count as the same (float32)."""


def sft_loss(logprobs: torch.Tensor, weight: torch.Tensor, total_weight: float) -> torch.Tensor:
    """Weighted negative log-likelihood, sum_i(-w_i log p_i) / total_weight.

    The normaliser is that of the whole optimizer step. So the sum over its micro-batches does not depend on how the
    step was split or padded.

    Args:
        logprobs: float [N], log-probabilities of the supervised tokens.
        weight: float [N], weight of each; 0 takes a token out.
        total_weight: Sum of the weights of all supervised tokens of the optimizer step.

    Returns:
        float scalar, in nats.
    """
    return -(weight * logprobs).sum() / total_weight


def supervised_logprobs(model: Any, batch: Batch, *, lean: bool = True) -> torch.Tensor:
    """Log-probabilities of the supervised tokens.

    Args:
        model: A causal language model.
        batch: The rows.
        lean: Apply the head to the supervised places only, so that the [B, T, V] logits never exist. Valid for models
            whose logits are `head(decoder(ids))`; see `lean_forward_agrees`.

    Returns:
        float32 [N].
    """
    inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask, "use_cache": False}
    if lean:
        decoder, head = decoder_and_head(model)
        logits = head(decoder(**inputs).last_hidden_state.flatten(0, 1)[batch.source])
    else:
        logits = model(**inputs).logits.flatten(0, 1)[batch.source]
    return -F.cross_entropy(logits.float(), batch.target, reduction="none")


@torch.no_grad()
def lean_forward_agrees(model: Any, batch: Batch) -> bool:
    """Is the lean forward pass the model's own? It is not where logits are scaled or capped after the head."""
    was_training = model.training
    model.eval()
    try:
        lean = supervised_logprobs(model, batch)
    except (AttributeError, TypeError):
        return False
    else:
        plain = supervised_logprobs(model, batch, lean=False)
        return bool(torch.allclose(lean, plain, rtol=0, atol=_TOLERANCE if lean.device.type == "cpu" else 5e-2))
    finally:
        model.train(was_training)
