"""Decoding with the fastest cache that reproduces the logits of a model's plain forward pass.

A check on two short rows decides whether rows of different lengths can share a cache, or whether a model has a usable cache at all:
some count columns in a way of their own, some lose their state when several tokens come at a time, and some have no cache.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch

from quintain.trainers.acting.kv_cache import Batch, Row, gather, has_columns, is_whole_batch
from quintain.trainers.acting.static_steps import StaticSteps, has_fixed_shapes
from quintain.trainers.engine.rotary import Rotary
from quintain.trainers.engine.self_check import is_single
from quintain.trainers.models.loading import eval_mode

Caching = Literal["batched", "single", "none"]
"""batched: rows share a padded cache; single: each has its own; none: each token reads its whole row again."""

_FEEDS = ((20, 6), (3, 7), (1, 1))
"""Numbers of tokens that the two rows of the check are fed, feed by feed."""

_PASS_TOKENS = 128
"""Tokens that cost as much as one more pass over the weights, about."""

_MISFITS = (AssertionError, AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)
"""Exceptions of models whose cache differs from the assumption."""

_STATIC_DEVICES = frozenset({"cuda"})
"""Devices where steps of fixed shapes are faster; on others they compute columns that have no tokens yet for nothing."""

_known: WeakKeyDictionary[torch.nn.Module, tuple[Caching, bool]] = WeakKeyDictionary()
"""Results of the check in this process; they do not depend on the weights."""


@dataclass(frozen=True)
class Decoder:
    """Feeds new tokens to a model with a cache; create it by `Decoder.of`."""

    model: Any
    caching: Caching
    takes: frozenset[str]
    """Arguments of the model's forward pass."""
    rotary: Rotary
    static: bool = False
    """Whether further tokens can be decoded by `StaticSteps`."""

    @staticmethod
    def of(model: Any, context_tokens: int) -> Decoder:
        """Return the fastest decoder that agrees with the model; its mode and all random states stay unchanged.

        Args:
            model: A causal language model, without peft's wrapper.
            context_tokens: The model's context. If it, or a border of its rotary factors, is below the length of the check,
                nothing is checked.
        """
        takes = frozenset(inspect.signature(model.forward).parameters)
        decoder = Decoder(model, "batched" if has_columns(model.config) else "single", takes, Rotary.of(model))
        if min([context_tokens, *(border.tokens for border in decoder.rotary.borders)]) < sum(
            lengths[0] for lengths in _FEEDS
        ):
            return decoder if "position_ids" in takes else replace(decoder, caching="single")
        if model not in _known:
            with eval_mode(model), torch.no_grad():
                _known[model] = _checked(decoder)
        caching, static = _known[model]
        return replace(decoder, caching=caching, static=static)

    def read(self, rows: Sequence[Row], ids: Sequence[Sequence[int]], factors: int = 0) -> tuple[Batch, torch.Tensor]:
        """Extend rows to these ids in one batch.

        All rows are fed equally many columns: a shorter chunk begins with tokens that are in the cache already, so that no
        padding is within a row. Where one chunk is much longer than others, its row is fed the difference first.

        Args:
            rows: Contents of the cache; one row, unless rows share a cache.
            ids: All tokens of each row, at least one more than in the cache.
            factors: Minimum rotary factors of the rows; see `Rotary.factors_of`.

        Returns:
            The batch with the rows in this order, and the logits after the last column, float32 [B, V].
        """
        rows = [row.cut(len(all_ids) - 1) for row, all_ids in zip(rows, ids, strict=True)]
        width = _first_width(rows, ids)
        if longer := [i for i, row in enumerate(rows) if len(ids[i]) - row.length > width]:
            before, _ = self.read([rows[i] for i in longer], [ids[i][:-width] for i in longer], factors)
            for place, i in enumerate(longer):
                rows[i] = before.row(place)
        rows = [row.cut(max(len(all_ids) - width, 0)) for row, all_ids in zip(rows, ids, strict=True)]
        batch = self._batch(rows, factors)
        end = batch.columns + width
        batch.starts = [end - len(all_ids) for all_ids in ids]
        chunks = [[0] * (width - len(all_ids)) + [*all_ids[-width:]] for all_ids in ids]
        return batch, self.step(batch, torch.tensor(chunks, device=self.model.device))

    def step(self, batch: Batch, ids: torch.Tensor) -> torch.Tensor:
        """Feed new tokens to all rows of a batch.

        Returns:
            float32 [B, V], the logits after the last column.
        """
        batch.columns += ids.shape[1]
        arguments: dict[str, Any] = {"logits_to_keep": 1} if "logits_to_keep" in self.takes else {}
        if self.caching == "none":
            batch.row_ids = ids if batch.row_ids is None else torch.cat([batch.row_ids, ids], 1)
            arguments |= {"input_ids": batch.row_ids, "use_cache": False}
        else:
            arguments |= {"input_ids": ids, "past_key_values": batch.cache, "use_cache": True}
            arguments |= self._places(batch, ids)
        with self._factors(batch, ids.device):
            logits: torch.Tensor = self.model(**arguments).logits
        return logits[:, -1].float()

    def _factors(self, batch: Batch, device: torch.device) -> AbstractContextManager[None]:
        if not self.rotary.modules:
            return nullcontext()
        lengths = [batch.columns - start for start in batch.starts]
        own = [[max(batch.factors, self.rotary.factors_of(n))] for n in lengths]
        return self.rotary.factors_by_row(torch.tensor(own, device=device))

    def _places(self, batch: Batch, ids: torch.Tensor) -> dict[str, Any]:
        """Return the attention mask, where there is padding, and the positions."""
        starts = batch.starts_on(ids.device)
        columns = torch.arange(batch.columns, device=ids.device)
        places: dict[str, Any] = {}
        if any(batch.starts):
            places["attention_mask"] = (columns >= starts).long()
        if "position_ids" in self.takes:
            places["position_ids"] = (columns[-ids.shape[1] :] - starts).clamp(min=0)
        return places

    def _batch(self, rows: Sequence[Row], factors: int) -> Batch:
        """Return a batch of these rows: the one that they are in, if it has no others, or a copy."""
        batch = rows[0].batch
        if batch is not None and is_whole_batch(rows):
            return batch
        if any(row.length for row in rows):
            return gather(rows, factors)
        return Batch.empty(self.model.config, shared=self.caching == "batched", factors=factors)


def _first_width(rows: Sequence[Row], ids: Sequence[Sequence[int]]) -> int:
    """Return the width of the last common feed that costs least, with the feeds of longer chunks before it."""
    chunks = [len(all_ids) - row.length for row, all_ids in zip(rows, ids, strict=True)]
    # A row of which nothing has to stay in the cache is padded on the left.
    limits = [math.inf if row.spare == row.length else n + row.spare for row, n in zip(rows, chunks, strict=True)]
    limit, longest = min(limits), max(chunks)

    def cost(width: int) -> int:
        n_longer = sum(n > width for n in chunks)
        return len(chunks) * width + n_longer * (longest - width) + _PASS_TOKENS * (n_longer > 0)

    possible = [n for n in set(chunks) if n <= limit]
    return min(possible, key=cost) if possible else int(limit)


def _checked(decoder: Decoder) -> tuple[Caching, bool]:
    """Return how the model caches, and whether it has steps of fixed shapes."""
    model = decoder.model
    vocabulary = model.get_input_embeddings().weight.shape[0]
    drawn = torch.randint(vocabulary, (2, 32), generator=torch.Generator().manual_seed(0)).tolist()
    rows = [drawn[i][: sum(lengths[i] for lengths in _FEEDS)] for i in range(2)]
    plain = [model(input_ids=torch.tensor([row], device=model.device), use_cache=False).logits for row in rows]
    own = torch.cat([logits[:, -1].float() for logits in plain])
    ways: tuple[Caching, ...] = ("batched", "single") if decoder.caching == "batched" else ("single",)

    def agrees(feed: Callable[[Decoder, Sequence[Sequence[int]]], torch.Tensor], way: Caching) -> bool:
        try:
            logits = feed(replace(decoder, caching=way), rows)
        except _MISFITS:
            return False
        return float((logits - own).norm() / own.norm().clamp_min(1e-30)) <= _bound(model)

    caching: Caching = next((way for way in ways if agrees(_fed, way)), "none")
    possible = caching == "batched" and model.device.type in _STATIC_DEVICES and not decoder.rotary.modules
    return caching, possible and "position_ids" in decoder.takes and has_fixed_shapes(model) and agrees(
        _stepped, caching
    )


def _stepped(decoder: Decoder, rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """Return the logits behind rows whose last two tokens are fed by steps of fixed shapes, float32 [2, V]."""
    batch, logits = decoder.read([Row(), Row()], [row[:-2] for row in rows])
    steps = StaticSteps(decoder.model, batch, 2)
    for place in (-2, -1):
        logits = steps(torch.tensor([[row[place]] for row in rows], device=decoder.model.device))
    return logits


def _fed(decoder: Decoder, rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """Return the logits behind rows that are fed in pieces, float32 [2, V]."""
    of_groups = []
    for group in ((0, 1),) if decoder.caching == "batched" else ((0,), (1,)):
        cached, logits = [Row() for _ in group], torch.zeros(0)
        for feed in range(len(_FEEDS)):
            ids = [rows[i][: sum(lengths[i] for lengths in _FEEDS[: feed + 1])] for i in group]
            batch, logits = decoder.read(cached, ids)
            cached = [batch.row(place) for place in range(len(group))]
        of_groups.append(logits)
    return torch.cat(of_groups)


def _bound(model: Any) -> float:
    """Return the maximum relative difference of logits by rounding; a wrong cache gives differences of about 1."""
    if not is_single(model):
        return 0.3
    return 1e-3 if model.device.type == "cpu" else 1e-2  # float32 may be TF32 on CUDA
