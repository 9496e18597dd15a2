"""Decoding with the fastest cache that reproduces the logits of a model's plain forward pass.

A check on two short rows decides whether a model supports padding in its cache, or a cache at all: some models count columns instead
of tokens, some lose their state when several tokens come at a time, and some have no cache.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from transformers import DynamicCache

from quintain.trainers.acting.kv_cache import new_cache
from quintain.trainers.engine.causality import can_batch
from quintain.trainers.engine.rotary import Rotary
from quintain.trainers.models import eval_mode

Caching = Literal["batched", "single", "none"]
"""batched: rows share a padded cache; single: each has its own; none: each token reads its whole row again."""

_FEEDS = ((20, 6), (3, 7), (1, 1))
"""Numbers of tokens that the two rows of the check are fed, feed by feed."""

_MISFITS = (AssertionError, AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)
"""Exceptions of models whose cache differs from the assumption."""

_known: WeakKeyDictionary[torch.nn.Module, Caching] = WeakKeyDictionary()
"""Results of the check in this process; they do not depend on the weights."""


@dataclass(frozen=True)
class Decoder:
    """Feeds new tokens to a model with a cache; create it by `Decoder.of`."""

    model: Any
    caching: Caching
    takes: frozenset[str]
    """Arguments of the model's forward pass."""
    rotary: Rotary

    @staticmethod
    def of(model: Any, context_tokens: int) -> Decoder:
        """Return the fastest decoder that agrees with the model; its mode and all random states stay unchanged.

        Args:
            model: A causal language model, without peft's wrapper.
            context_tokens: The model's context. If it, or a border of its rotary factors, is below the length of the check,
                nothing is checked.
        """
        takes = frozenset(inspect.signature(model.forward).parameters)
        padded = "position_ids" in takes and can_batch(model.config)
        decoder = Decoder(model, "batched" if padded else "single", takes, Rotary.of(model))
        if min([context_tokens, *(border.tokens for border in decoder.rotary.borders)]) < sum(
            lengths[0] for lengths in _FEEDS
        ):
            return decoder
        if model not in _known:
            with eval_mode(model), torch.no_grad():
                _known[model] = _checked(decoder)
        return replace(decoder, caching=_known[model])

    def feed(
        self, cache: DynamicCache, ids: torch.Tensor, mask: torch.Tensor, row_ids: torch.Tensor | None, factors: int = 0
    ) -> torch.Tensor:
        """Run tokens through the model.

        Args:
            cache: Grows by the width of `ids`, if the model has one.
            ids: int64 [B, T], padded on the left.
            mask: bool [B, columns]; True at tokens, the new ones included.
            row_ids: int64 [1, columns]; all tokens, without a cache.
            factors: Minimum rotary factors of the rows; see `Rotary.factors_of`.

        Returns:
            float32 [B, V], the logits after the last column; undefined in rows that end with padding.
        """
        last = {"logits_to_keep": 1} if "logits_to_keep" in self.takes else {}
        if self.caching == "none":
            arguments: dict[str, Any] = {"input_ids": row_ids, "use_cache": False}
        else:
            arguments = {"input_ids": ids, "past_key_values": cache, "use_cache": True}
        if self.caching == "batched":  # without padding no mask is needed; recurrent layers want one of the new tokens
            arguments["attention_mask"] = mask.long()
        if self.caching != "none" and "position_ids" in self.takes:
            arguments["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        own = (
            [[max(factors, self.rotary.factors_of(n))] for n in mask.sum(1).tolist()] if self.rotary.modules else [[0]]
        )
        with self.rotary.factors_by_row(torch.tensor(own, device=ids.device)):
            logits: torch.Tensor = self.model(**arguments, **last).logits
        return logits[:, -1].float()


def _checked(decoder: Decoder) -> Caching:
    model = decoder.model
    vocabulary = model.get_input_embeddings().weight.shape[0]
    drawn = torch.randint(vocabulary, (2, 32), generator=torch.Generator().manual_seed(0))
    rows = [drawn[i, : sum(lengths[i] for lengths in _FEEDS)].to(model.device) for i in range(2)]
    own = torch.cat([model(input_ids=row[None], use_cache=False).logits[:, -1].float() for row in rows])
    ways: tuple[Caching, ...] = ("batched", "single") if decoder.caching == "batched" else ("single",)
    for way in ways:
        try:
            logits = _fed(replace(decoder, caching=way), rows)
        except _MISFITS:
            continue
        if float((logits - own).norm() / own.norm().clamp_min(1e-30)) <= _bound(model):
            return way
    return "none"


def _fed(decoder: Decoder, rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the logits behind rows that are fed in pieces, float32 [2, V]."""
    of_groups = []
    for group in ((0, 1),) if decoder.caching == "batched" else ((0,), (1,)):
        cache, done = new_cache(decoder.model.config), [0] * len(rows)
        mask = torch.zeros(len(group), 0, dtype=torch.bool, device=rows[0].device)
        logits = torch.zeros(0)
        for lengths in _FEEDS:
            width = max(lengths[i] for i in group)
            ids = rows[0].new_zeros(len(group), width)
            real = torch.zeros_like(ids, dtype=torch.bool)
            for place, i in enumerate(group):
                ids[place, width - lengths[i] :] = rows[i][done[i] : done[i] + lengths[i]]
                real[place, width - lengths[i] :] = True
                done[i] += lengths[i]
            mask = torch.cat([mask, real], 1)
            logits = decoder.feed(cache, ids, mask, None)
        of_groups.append(logits)
    return torch.cat(of_groups)


def _bound(model: Any) -> float:
    """Return the maximum relative difference of logits by rounding; a wrong cache gives differences of about 1."""
    exact = model.dtype in (torch.float32, torch.float64) and not torch.is_autocast_enabled(model.device.type)
    if not exact:
        return 0.3
    return 1e-3 if model.device.type == "cpu" else 1e-2  # float32 may be TF32 on CUDA
