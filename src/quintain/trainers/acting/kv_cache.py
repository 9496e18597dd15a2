"""A KV cache that grows in place; transformers' own copies all keys and values for each new token."""

from __future__ import annotations

from copy import copy
from typing import Any, cast

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from quintain.trainers.engine.causality import can_batch

_ROOM = 256
"""Columns to add when a cache is full."""


def new_cache(config: Any) -> DynamicCache:
    """Return an empty cache for a model of this configuration."""
    cache = DynamicCache(config=config)
    if can_batch(config):
        cache.layers = [GrowingLayer() for _ in cache.layers]
    return cache


def part_of(cache: DynamicCache, rows: torch.Tensor) -> DynamicCache:
    """Return a cache with a copy of some rows (int64 [n]), to decode those alone."""
    part = copy(cache)
    part.layers = [copy(layer) for layer in cache.layers]
    part.batch_select_indices(rows)
    return part


def take_back(cache: DynamicCache, part: DynamicCache, rows: torch.Tensor) -> None:
    """Append the new columns of a part to its cache; the other rows get zeros, to be masked."""
    for index, (states, grown) in enumerate(zip(_states(cache), _states(part), strict=True)):
        keys, values = (_spread(old, new, rows) for old, new in zip(states, grown, strict=True))
        cache.update(keys, values, index)


def _spread(old: torch.Tensor, new: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return the new columns of `new`, whose row i is row `rows[i]` of `old`; zeros in the other rows."""
    columns = old.new_zeros(*old.shape[:2], new.shape[2] - old.shape[2], old.shape[3])
    columns[rows] = new[:, :, old.shape[2] :]
    return columns


def _states(cache: DynamicCache) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return keys and values of each layer."""
    return [(cast(Any, layer).keys, cast(Any, layer).values) for layer in cache.layers]


class GrowingLayer(DynamicLayer):
    """`DynamicLayer` whose keys and values are views of a larger store; float [B, heads, columns, head_dim]."""

    def __init__(self) -> None:
        super().__init__()
        self._stores: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append the new columns and return all of them."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states[:, :, :0], value_states[:, :, :0]
        keys, values = cast(torch.Tensor, self.keys), cast(torch.Tensor, self.values)
        start, end = keys.shape[2], keys.shape[2] + key_states.shape[2]
        # After rows are repeated or selected, the keys are not a view of the store.
        if self._stores is None or end > self._stores[0].shape[2] or keys.data_ptr() != self._stores[0].data_ptr():
            self._stores = _moved(keys, end + _ROOM), _moved(values, end + _ROOM)
        for store, new in zip(self._stores, (key_states, value_states), strict=True):
            store[:, :, start:end] = new
        self.keys, self.values = (store[:, :, :end] for store in self._stores)
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep these rows, in this order, possibly repeated."""
        if self.get_seq_length() > 0:
            keys, values = cast(torch.Tensor, self.keys), cast(torch.Tensor, self.values)
            end = keys.shape[2]
            self._stores = _moved(keys, end + _ROOM, indices), _moved(values, end + _ROOM, indices)
            self.keys, self.values = (store[:, :, :end] for store in self._stores)


def _moved(tensor: torch.Tensor, columns: int, rows: torch.Tensor | None = None) -> torch.Tensor:
    """The tensor, or some of its rows, in a store with room for `columns`."""
    n = len(tensor) if rows is None else len(rows)
    store = tensor.new_empty(n, tensor.shape[1], columns, tensor.shape[3])
    store[:, :, : tensor.shape[2]] = tensor if rows is None else tensor[rows]
    return store
