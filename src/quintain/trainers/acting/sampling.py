"""Sampling of tokens, with the random numbers and the temperature of each episode."""

from __future__ import annotations

from typing import NamedTuple

import torch

from quintain.records.agent import Sampling


class Draws(NamedTuple):
    """Random numbers and temperatures of a turn."""

    uniform: torch.Tensor
    """float [B, W], in 0..1."""
    temperature: torch.Tensor
    """float [B]; 0 is greedy."""


def pick(
    logits: torch.Tensor, sampling: Sampling, uniform: torch.Tensor | None, temperature: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sample one token a row by inverting the cumulative distribution at a uniform number.

    Args:
        logits: float32 [B, V].
        sampling: Temperature and top_p (nucleus sampling, Holtzman et al. 2020, arXiv 1904.09751, section 3.1).
        uniform: float [B] in 0..1; None picks the most likely token.
        temperature: float [B], of each row in place of `sampling`'s; a row at 0 picks the most likely token.

    Returns:
        The tokens, int64 [B], and their log-probabilities under the model itself, float32 [B]: at temperature 1
        and without top_p, as a trainer computes them.
    """
    token = logits.argmax(-1)
    if uniform is not None:
        dtype = widest_float(logits.device)
        if temperature is None:
            temperature = torch.full(logits.shape[:1], sampling.temperature, dtype=dtype, device=logits.device)
        is_warm = temperature > 0
        chances = (logits.to(dtype) / temperature.where(is_warm, 1.0)[:, None]).softmax(-1)
        if sampling.top_p < 1:
            ranked, order = chances.sort(dim=-1, descending=True, stable=True)
            tail = ranked.cumsum(-1) - ranked >= sampling.top_p  # the first token always stays
            chances = chances.masked_fill(torch.zeros_like(tail).scatter(1, order, tail), 0.0)
        reached = chances.cumsum(-1)
        whole = reached[:, -1:].contiguous()
        place = torch.searchsorted(reached, uniform[:, None] * whole, right=True)
        last = torch.searchsorted(reached, whole)  # rounding must not exceed the last possible token
        token = torch.minimum(place, last)[:, 0].where(is_warm, token)
    return token, logits.log_softmax(-1).gather(1, token[:, None])[:, 0]


def widest_float(device: torch.device) -> torch.dtype:
    """Return the widest float type of a device."""
    return torch.float32 if device.type == "mps" else torch.float64  # MPS has no float64
