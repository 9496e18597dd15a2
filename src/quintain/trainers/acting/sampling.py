"""Sampling of tokens, with the random numbers and the temperature of each episode."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn

_BLOCK = 512
"""Tokens that are summed together."""


class Draws(NamedTuple):
    """Random numbers and temperatures of the rows."""

    uniform: torch.Tensor
    """float [B], in 0..1; of a turn of W tokens [B, W]."""
    temperature: torch.Tensor
    """float [B]; 0 is greedy."""
    plain: bool = False
    """Whether each temperature is known to be 0 or 1, so that nothing is divided; false is always right."""


class TokenLimits(NamedTuple):
    """Which tokens may be sampled, after the temperature; top_k, top_p and min_p apply in this order, as in transformers."""

    top_p: float = 1.0
    """The likeliest tokens of this share of what top_k leaves (Holtzman et al. 2020, arXiv 1904.09751, section 3.1); 1: all."""
    top_k: int = 0
    """So many of the likeliest tokens, and those as likely as the last (Fan et al. 2018, arXiv 1805.04833); 0: all."""
    min_p: float = 0.0
    """Tokens at least this share as likely as the likeliest (Nguyen et al. 2024, arXiv 2407.01082); 0: all."""


EVERY_TOKEN = TokenLimits()


def pick(
    logits: torch.Tensor, draws: Draws | None, limits: TokenLimits = EVERY_TOKEN
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sample one token a row by inverting the cumulative distribution at a uniform number.

    Args:
        logits: float32 [B, V].
        draws: Random numbers and temperatures, both [B]; None picks the most likely token, as does a temperature of 0.
        limits: Tokens that may be sampled.

    Returns:
        The tokens, int64 [B], and their log-probabilities under the model itself, float32 [B]: at temperature 1
        and without limits, as a trainer computes them.
    """
    token = logits.argmax(-1, keepdim=True)
    if draws is not None:
        is_warm = draws.temperature > 0
        heat = draws.temperature.where(is_warm, 1.0)[:, None].float()
        chances = (logits if draws.plain else logits / heat).softmax(-1)
        token = _inverted(_limited(chances, limits, draws.uniform.dtype), draws.uniform).where(is_warm[:, None], token)
    return token[:, 0], logits.log_softmax(-1).gather(1, token)[:, 0]


def _limited(chances: torch.Tensor, limits: TokenLimits, dtype: torch.dtype) -> torch.Tensor:
    """Return probabilities [B, V] with 0 for the tokens beyond the limits; sums are of type `dtype`."""
    if 0 < limits.top_k < chances.shape[-1]:
        least = chances.topk(limits.top_k, dim=-1).values[:, -1:]
        chances = chances.masked_fill(chances < least, 0.0)
    if limits.top_p < 1:
        ranked, order = chances.sort(dim=-1, descending=True, stable=True)
        share = limits.top_p * ranked.sum(-1, keepdim=True, dtype=dtype) if limits.top_k else limits.top_p
        tail = ranked.cumsum(-1, dtype=dtype) - ranked >= share  # the first token always stays
        chances = chances.masked_fill(torch.zeros_like(tail).scatter(1, order, tail), 0.0)
    if limits.min_p:
        chances = chances.masked_fill(chances < limits.min_p * chances.amax(-1, keepdim=True), 0.0)
    return chances


def _inverted(weights: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Return the place, int64 [B, 1], where the cumulative sum of weights [B, V] passes the share `uniform` [B] of the whole.

    Blocks are summed first, so that only one of them is summed token by token.
    """
    weights = nn.functional.pad(weights, (0, -weights.shape[1] % _BLOCK)).unflatten(1, (-1, _BLOCK))
    of_blocks = weights.sum(-1).cumsum(-1, dtype=uniform.dtype)
    block, left = _place(of_blocks, uniform[:, None] * of_blocks[:, -1:])
    own = weights[torch.arange(len(weights), device=block.device), block[:, 0]].cumsum(-1, dtype=uniform.dtype)
    place, _ = _place(own, left)
    return block * _BLOCK + place


def _place(reached: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the first place of a cumulative sum [B, n] above the target [B, 1], and what is left of the target there."""
    last = torch.searchsorted(reached, reached[:, -1:].contiguous())  # rounding must not exceed the last possible place
    place = torch.minimum(torch.searchsorted(reached, target, right=True), last)
    before = nn.functional.pad(reached, (1, 0)).gather(1, place)
    return place, target - before
