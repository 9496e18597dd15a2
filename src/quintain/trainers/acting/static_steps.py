"""Decoding steps of one token a row with fixed shapes, which CUDA replays as a graph.

Keys and values stay in stores with room for all steps of a turn. A step writes one column, whose number is on the device, and
attends to all columns under a mask computed from it. So a step has the same shapes and addresses as the one before, and the host
neither waits for the device nor launches the kernels of the model one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from quintain.trainers.acting.kv_cache import Batch, GrowingLayer

_WARM_UPS = 2
"""Passes before the capture, in which libraries choose their kernels and workspaces."""


def has_fixed_shapes(model: Any) -> bool:
    """Whether a model's layers attend to all columns, by an attention function that takes a mask for each query."""
    config = model.config.get_text_config(decoder=True)
    layers = DynamicCache(config=model.config).layers
    return config._attn_implementation == "sdpa" and all(type(layer) is DynamicLayer for layer in layers)


class FixedLayer(DynamicLayer):
    """Keys and values of one layer in stores of a fixed number of columns: float [B, heads, C, head_dim]."""

    def __init__(self, stores: tuple[torch.Tensor, torch.Tensor], column: torch.Tensor) -> None:
        """Create a layer over stores that others own."""
        super().__init__()
        self.lazy_initialization(*stores)
        self.keys, self.values = stores
        self._column = column

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new column in place and return all columns."""
        keys, values = self.keys, self.values
        assert keys is not None
        assert values is not None
        return keys.index_copy_(2, self._column, key_states), values.index_copy_(2, self._column, value_states)

    def get_seq_length(self) -> int:
        """Return the number of columns, written or not."""
        return 0 if self.keys is None else self.keys.shape[2]


class StaticSteps:
    """Further steps of a batch of which each layer is a `GrowingLayer` without a window."""

    def __init__(self, model: Any, batch: Batch, n_steps: int) -> None:
        """Reserve room, and capture the step on CUDA."""
        device = model.device
        self.batch = batch
        self._model, self._layers = model, [layer for layer in batch.cache.layers if isinstance(layer, GrowingLayer)]
        self._ids = torch.zeros(len(batch.starts), 1, dtype=torch.long, device=device)
        self._column = torch.tensor([batch.columns], device=device)
        self._columns = torch.arange(batch.columns + n_steps, device=device)
        self._starts = batch.starts_on(device)
        self._cache = DynamicCache()
        self._cache.layers = [FixedLayer(layer.reserve(n_steps), self._column) for layer in self._layers]
        self._run = _captured(self._logits) if device.type == "cuda" else self._logits
        self._column -= 1

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        """Feed one token a row, int64 [B, 1], and return the logits, float32 [B, V], which the next call overwrites."""
        self._ids.copy_(ids)
        self._column += 1
        self.batch.columns += 1
        return self._run()

    def settle(self) -> None:
        """Make the columns that were written part of the batch; until then it must not be copied."""
        for layer in self._layers:
            layer.extend(self.batch.columns)

    def _logits(self) -> torch.Tensor:
        visible = (self._columns >= self._starts) & (self._columns <= self._column)
        output = self._model(
            input_ids=self._ids,
            attention_mask=visible[:, None, None],
            position_ids=self._column - self._starts,
            past_key_values=self._cache,
            use_cache=True,
        )
        logits: torch.Tensor = output.logits[:, -1].float()
        return logits


def _captured(run: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
    """Return a replay of the kernels that `run` launches, which must be the same at each call.

    Autocast must not keep converted weights from outside of the graph, where they would be freed.
    """
    keeps = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(_WARM_UPS):
                run()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits = run()
    finally:
        torch.set_autocast_cache_enabled(keeps)

    def replay() -> torch.Tensor:
        graph.replay()
        return logits

    return replay
