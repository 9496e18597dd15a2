"""A KV cache of columns for rows of different lengths, with full attention, sliding windows and chunks.

A row is contiguous: padding on the left, then its tokens. So a distance in columns is a distance in tokens, and transformers'
masks, which count columns, are right for windows and chunks at any padding. A `Row` is a view of a cache: rows are copied only
to form another batch. Keys and values grow in place; transformers' own layers copy them for each new token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from transformers import DynamicCache
from transformers.cache_utils import DummyLayer, DynamicLayer, DynamicSlidingWindowLayer

_ROOM = 256
"""Columns to add when a cache is full."""


def has_columns(config: Any) -> bool:
    """Whether the model's cache is keys and values by column: neither recurrent states nor keys picked by a score."""
    kinds = (DynamicLayer, DynamicSlidingWindowLayer, DummyLayer)
    return all(type(layer) in kinds for layer in DynamicCache(config=config).layers)


@dataclass(eq=False)
class Batch:
    """Rows that are decoded together in one cache."""

    cache: DynamicCache
    starts: list[int]
    """First column of each row that is a token."""
    columns: int = 0
    """Columns in the cache."""
    factors: int = 0
    """Rotary factors of the keys: as in a row of at least so many tokens; see `engine.rotary.Rotary.factors_of`."""
    shared: bool = True
    """Whether the cache has columns that can be cut off and copied. Otherwise it belongs to one row."""
    row_ids: torch.Tensor | None = None
    """int64 [1, columns]; the tokens, if the model is decoded without a cache."""
    _on_device: tuple[list[int], torch.Tensor] | None = None

    @staticmethod
    def empty(config: Any, *, shared: bool, factors: int = 0) -> Batch:
        """Return a batch without columns, for one row."""
        cache = DynamicCache(config=config)
        if shared:
            cache.layers = [_own_layer(layer) for layer in cache.layers]
        return Batch(cache, [0], factors=factors, shared=shared)

    def starts_on(self, device: torch.device) -> torch.Tensor:
        """Return `starts` as int64 [B, 1] on a device, copied there once."""
        if self._on_device is None or self._on_device[0] != self.starts:
            self._on_device = [*self.starts], torch.tensor(self.starts, device=device)[:, None]
        return self._on_device[1]

    def row(self, index: int, length: int | None = None) -> Row:
        """Return one row with its first `length` tokens, by default all."""
        return Row(self, index, self.columns - self.starts[index] if length is None else length)


@dataclass(frozen=True, eq=False)
class Row:
    """The first `length` tokens of one row of a batch; `Row()` has none."""

    batch: Batch | None = None
    index: int = 0
    length: int = 0

    @property
    def end(self) -> int:
        """The column behind its tokens."""
        return self.batch.starts[self.index] + self.length if self.batch else 0

    @property
    def spare(self) -> int:
        """How many of its last tokens can be cut off: all, or as many as leave every window complete."""
        if self.batch is None:
            return 0
        if not self.batch.shared:
            return 0
        start = self.batch.starts[self.index]
        layers = [layer for layer in self.batch.cache.layers if isinstance(layer, GrowingLayer)]
        short = [layer for layer in layers if layer.sliding_window is not None and layer.dropped > start]
        bounds = [self.end - layer.dropped - cast(int, layer.sliding_window) + 1 for layer in short]
        return max(min([self.length, *bounds]), 0)

    def cut(self, length: int) -> Row:
        """Return the row with `length` tokens at most; without any where its cache cannot be cut off there."""
        lost = max(self.length - length, 0)
        is_complete = self.batch is not None and (self.batch.shared or self.end == self.batch.columns)
        if not is_complete or lost > self.spare:
            return Row()
        return replace(self, length=self.length - lost)


def gather(rows: Sequence[Row], factors: int) -> Batch:
    """Return a batch with a copy of rows, aligned on the right; a row may repeat, and at least one has tokens."""
    columns = max(row.length for row in rows)
    (source, *_) = (row.batch for row in rows if row.batch)
    cache = DynamicCache()
    cache.layers = [_gathered(rows, place, columns) for place in range(len(source.cache.layers))]
    return Batch(cache, [columns - row.length for row in rows], columns, factors)


def is_whole_batch(rows: Sequence[Row]) -> bool:
    """Whether these are the rows of one batch in their order, each with all of its tokens."""
    batch = rows[0].batch
    if batch is None or len(rows) != len(batch.starts):
        return False
    return all(row.batch is batch and row.index == i and row.end == batch.columns for i, row in enumerate(rows))


class GrowingLayer(DynamicLayer):
    """Keys and values of one layer, views of a larger store: float [B, heads, columns, head_dim].

    A layer with a window may lack the first columns: a new token attends to itself and to the `window - 1` columns before it.
    """

    def __init__(self, window: int | None = None, dropped: int = 0) -> None:
        """Create a layer without keys.

        Args:
            window: Columns that a token attends to, itself included; None: all.
            dropped: Columns in front of the stored ones that no new token attends to.
        """
        super().__init__()
        self.sliding_window, self.dropped = window, dropped
        self.is_sliding = window is not None
        self._stores: tuple[torch.Tensor, torch.Tensor] | None = None

    @property
    def states(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Stored keys and values."""
        return cast(torch.Tensor, self.keys), cast(torch.Tensor, self.values)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append the new columns and return those that the new tokens attend to."""
        length, _ = self.get_mask_sizes(key_states.shape[2])
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states[:, :, :0], value_states[:, :, :0]
        start = self.states[0].shape[2]
        end = start + key_states.shape[2]
        for store, new in zip(self._with_room(end), (key_states, value_states), strict=True):
            store[:, :, start:end] = new
        self.extend(end)
        keys, values = self.states
        return keys[:, :, end - length :], values[:, :, end - length :]

    def reserve(self, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the stores, cut behind room for so many more columns, in which they are zero."""
        start = self.states[0].shape[2]
        keys, values = (store[:, :, : start + columns] for store in self._with_room(start + columns))
        for store in (keys, values):
            store[:, :, start:] = 0  # masked, but not a number would spread nevertheless
        return keys, values

    def extend(self, columns: int) -> None:
        """Make the first columns of the stores the layer's."""
        assert self._stores is not None
        self.keys, self.values = (store[:, :, :columns] for store in self._stores)

    def _with_room(self, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the stores with room for so many columns, larger ones where they have not."""
        if self._stores is None or columns > self._stores[0].shape[2]:
            keys, values = self.states
            stores = _store(keys, len(keys), columns), _store(values, len(values), columns)
            for store, old in zip(stores, (keys, values), strict=True):
                store[:, :, : old.shape[2]] = old
            self._stores = stores
        return self._stores

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return how many columns `update` returns for so many new tokens, and the place of the first one."""
        columns = self.get_seq_length() + query_length
        first = self.dropped
        if self.sliding_window is not None:
            first = max(first, columns - query_length - self.sliding_window + 1)
        return columns - first, first

    def get_seq_length(self) -> int:
        """Return the number of columns, with those that were dropped."""
        return self.dropped + (self.states[0].shape[2] if self.is_initialized else 0)

    def fill(self, rows: Sequence[Row], place: int, columns: int) -> None:
        """Copy rows from the layers of their batches at this place, aligned on the right."""
        sources = [cast(GrowingLayer, row.batch.cache.layers[place]) if row.batch else None for row in rows]
        (pattern, *_) = (source for source in sources if source is not None)
        self.lazy_initialization(*pattern.states)
        stores = tuple(_store(states, len(rows), columns) for states in pattern.states)
        for i, (row, source) in enumerate(zip(rows, sources, strict=True)):
            n = min(row.length, columns)
            for which, store in enumerate(stores):
                store[i, :, : columns - n] = 0  # masked, but not a number would spread nevertheless
                if source is not None:
                    end = row.end - source.dropped
                    store[i, :, columns - n : columns] = source.states[which][row.index, :, end - n : end]
        self._stores = stores[0], stores[1]
        self.keys, self.values = (store[:, :, :columns] for store in stores)


def _own_layer(layer: Any) -> Any:
    if isinstance(layer, DummyLayer):
        return layer
    return GrowingLayer(layer.sliding_window if isinstance(layer, DynamicSlidingWindowLayer) else None)


def _gathered(rows: Sequence[Row], place: int, columns: int) -> Any:
    """Return one layer with a copy of the rows; layers that share another one's keys have none."""
    layer = next(row.batch.cache.layers[place] for row in rows if row.batch)
    if not isinstance(layer, GrowingLayer):
        return DummyLayer()
    kept = columns if layer.sliding_window is None else min(columns, layer.sliding_window - 1)
    if not layer.is_initialized:
        return GrowingLayer(layer.sliding_window, columns)
    copy = GrowingLayer(layer.sliding_window, columns - kept)
    copy.fill(rows, place, kept)
    return copy


def _store(states: torch.Tensor, n_rows: int, columns: int) -> torch.Tensor:
    """Return an uninitialised store like the states, with room to grow."""
    return states.new_empty(n_rows, states.shape[1], columns + _ROOM, states.shape[3])
