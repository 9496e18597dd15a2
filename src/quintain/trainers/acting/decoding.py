"""How a model decodes: with the fastest cache by which it gives the logits of its own plain forward pass.

Whether a model bears padding in its cache, or a cache at all, is found out on two short rows and not assumed: some count
columns where others count tokens, some forget their state when several tokens come at a time, and some keep none.
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
"""batched: rows share a cache, padded; single: each has its own; none: each token reads its whole row again."""

_FEEDS = ((20, 6), (3, 7), (1, 1))
"""Tokens that the two rows of the check are fed, one feed after the other."""

_MISFITS = (AssertionError, AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)
"""What a model raises whose cache is not what it is taken for."""

_known: WeakKeyDictionary[torch.nn.Module, Caching] = WeakKeyDictionary()
"""What was found out in this process; it does not depend on the weights."""


@dataclass(frozen=True)
class Decoder:
    """A model that is fed tokens behind those that it has seen; make it by `Decoder.of`."""

    model: Any
    caching: Caching
    takes: frozenset[str]
    """Arguments that its forward pass knows."""
    rotary: Rotary

    @staticmethod
    def of(model: Any, context_tokens: int) -> Decoder:
        """The fastest decoder that agrees with the model; its mode and all random states stay as they are.

        Args:
            model: A causal language model, without peft's wrapper.
            context_tokens: What it can read. Where that, or a border of its rotary factors, is below the length of the
                check, nothing is checked.
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
        self, cache: DynamicCache, ids: torch.Tensor, mask: torch.Tensor, seen: torch.Tensor | None, factors: int = 0
    ) -> torch.Tensor:
        """Run tokens through the model.

        Args:
            cache: Grows by the width of `ids`, where the model has one.
            ids: int64 [B, T], padded on the left.
            mask: bool [B, columns]; True where a column holds a token, the new ones included.
            seen: int64 [1, columns]; all tokens, where there is no cache.
            factors: Rotary factors of rows that are not longer yet; see `Rotary.factors_of`.

        Returns:
            float32 [B, V], the logits after the last column; of no meaning in rows that end with padding.
        """
        last = {"logits_to_keep": 1} if "logits_to_keep" in self.takes else {}
        if self.caching == "none":
            given: dict[str, Any] = {"input_ids": seen, "use_cache": False}
        else:
            given = {"input_ids": ids, "past_key_values": cache, "use_cache": True}
        if self.caching == "batched":  # without padding no mask is needed; recurrent layers want one of the new tokens
            given["attention_mask"] = mask.long()
        if self.caching != "none" and "position_ids" in self.takes:
            given["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        own = (
            [[max(factors, self.rotary.factors_of(n))] for n in mask.sum(1).tolist()] if self.rotary.modules else [[0]]
        )
        with self.rotary.as_alone(torch.tensor(own, device=ids.device)):
            logits: torch.Tensor = self.model(**given, **last).logits
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
            made = _fed(replace(decoder, caching=way), rows)
        except _MISFITS:
            continue
        if float((made - own).norm() / own.norm().clamp_min(1e-30)) <= _bound(model):
            return way
    return "none"


def _fed(decoder: Decoder, rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """The logits behind rows that were fed piece by piece, float32 [2, V]."""
    made = []
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
        made.append(logits)
    return torch.cat(made)


def _bound(model: Any) -> float:
    """How far logits may lie apart by rounding, relative; a wrong cache puts them apart by as much as they are."""
    exact = model.dtype in (torch.float32, torch.float64) and not torch.is_autocast_enabled(model.device.type)
    if not exact:
        return 0.3
    return 1e-3 if model.device.type == "cpu" else 1e-2  # float32 may be TF32 on CUDA
