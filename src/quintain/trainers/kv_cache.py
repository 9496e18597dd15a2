"""A KV cache that grows in place: transformers' own copies every key and value for each new token."""

from __future__ import annotations

from typing import Any, cast

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

_ROOM = 256
"""Columns that are added whenever a cache is full."""


def can_batch(config: Any) -> bool:
    """Does every layer of the model attend to all columns?

    Sliding windows and recurrent states count columns, padding included, so rows of different length would go wrong.
    """
    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=config).layers)


def new_cache(config: Any) -> DynamicCache:
    """An empty cache for a model of this configuration."""
    cache = DynamicCache(config=config)
    if can_batch(config):
        cache.layers = [GrowingLayer() for _ in cache.layers]
    return cache


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
        # After rows were repeated or selected, the keys are a tensor of their own and no view of the store.
        if self._stores is None or end > self._stores[0].shape[2] or keys.data_ptr() != self._stores[0].data_ptr():
            self._stores = _moved(keys, end + _ROOM), _moved(values, end + _ROOM)
        for store, new in zip(self._stores, (key_states, value_states), strict=True):
            store[:, :, start:end] = new
        self.keys, self.values = (store[:, :, :end] for store in self._stores)
        return self.keys, self.values


def _moved(tensor: torch.Tensor, columns: int) -> torch.Tensor:
    """The tensor in a store with room for `columns`."""
    store = tensor.new_empty(*tensor.shape[:2], columns, tensor.shape[3])
    store[:, :, : tensor.shape[2]] = tensor
    return store
