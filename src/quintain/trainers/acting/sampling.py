"""Sampling of tokens, with the random numbers and the temperature of each episode."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Draws(NamedTuple):
    """Random numbers and temperatures of the rows."""

    uniform: torch.Tensor
    """float [B], in 0..1; of a turn of W tokens [B, W]."""
    temperature: torch.Tensor
    """float [B]; 0 is greedy."""


def pick(logits: torch.Tensor, draws: Draws | None, top_p: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Sample one token a row by inverting the cumulative distribution at a uniform number.

    Args:
        logits: float32 [B, V].
        draws: Random numbers and temperatures, both [B]; None picks the most likely token, as does a temperature of 0.
        top_p: Nucleus sampling (Holtzman et al. 2020, arXiv 1904.09751, section 3.1).

    Returns:
        The tokens, int64 [B], and their log-probabilities under the model itself, float32 [B]: at temperature 1
        and without top_p, as a trainer computes them.
    """
    token = logits.argmax(-1)
    if draws is not None:
        is_warm = draws.temperature > 0
        chances = (logits.to(widest_float(logits.device)) / draws.temperature.where(is_warm, 1.0)[:, None]).softmax(-1)
        if top_p < 1:
            ranked, order = chances.sort(dim=-1, descending=True, stable=True)
            tail = ranked.cumsum(-1) - ranked >= top_p  # the first token always stays
            chances = chances.masked_fill(torch.zeros_like(tail).scatter(1, order, tail), 0.0)
        reached = chances.cumsum(-1)
        whole = reached[:, -1:].contiguous()
        place = torch.searchsorted(reached, draws.uniform[:, None] * whole, right=True)
        last = torch.searchsorted(reached, whole)  # rounding must not exceed the last possible token
        token = torch.minimum(place, last)[:, 0].where(is_warm, token)
    return token, logits.log_softmax(-1).gather(1, token[:, None])[:, 0]


def widest_float(device: torch.device) -> torch.dtype:
    """Return the widest float type of a device."""
    return torch.float32 if device.type == "mps" else torch.float64  # MPS has no float64
