"""Exact attention over a packed sequence, for any transformers model that takes its attention from the interface.

A segment attends to itself causally and to its ancestors in full, or as far as a layer's sliding window reaches along the path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right
from transformers import AttentionInterface

from quintain.trainers.engine import flex
from quintain.trainers.engine.block_attention import BlockAttention, Scoring
from quintain.trainers.engine.fused_attention import FusedAttention
from quintain.trainers.engine.head import at_least_float32
from quintain.trainers.engine.packing import Segment, path_slice

NAME = "quintain_packed"
"""The attention function's name in transformers' registry."""

_FUSED_WIDTH = 128
"""Maximum width of float32 heads for which the fused CPU kernel is taken."""

_KEPT_BYTES = 2**30
"""Of the probabilities that a pass may keep for its backward pass; the cost model of plans counts them too."""

Kernel = Literal["cpu", "flex", "sdpa"]


class _Inputs(NamedTuple):
    """Inputs of attention over one packed sequence."""

    query: torch.Tensor
    """float [1, H, T, D]"""
    key: torch.Tensor
    """float [1, G, T, D]"""
    value: torch.Tensor
    """float [1, G, T, E]"""
    sinks: torch.Tensor | None
    """float [H]"""


class Unsupported(ValueError):
    """The engine cannot compute the model's attention, or the attention does not receive the layout."""


@dataclass(frozen=True)
class Layout:
    """Queries of the packed sequence and the ranges that they attend to; each layer receives it as `packed`."""

    segments: tuple[Segment, ...]
    """Rows outside of all segments are not queries: their output is zero."""
    kernel: Kernel
    windows: Mapping[int, int | None] = field(default_factory=dict)
    """Sliding window of each layer in the model's own cache; a layer that asks for another one is refused."""
    kept_bytes: int = 0
    """Of the probabilities that each layer may keep for its backward pass."""
    masks: dict[int | None, flex.TrieMask] = field(default_factory=dict, init=False, compare=False)
    """The mask of each window, which the layers of a pass share."""


def kernels_for(device: torch.device) -> tuple[Kernel, ...]:
    """Return the kernels of a device, the fastest first; the last one needs no check against another."""
    kernels: dict[str, tuple[Kernel, ...]] = {"cpu": ("cpu",), "cuda": ("flex", "sdpa")}
    return kernels.get(device.type, ("sdpa",))


def packed_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Compute attention over one packed sequence, by the interface of transformers.

    Args:
        module: The attention module.
        query: float [1, H, T, D].
        key: float [1, G, T, D], where G divides H: grouped-query heads are not repeated.
        value: float [1, G, T, E].
        attention_mask: Unused: the layout defines what is visible.
        **kwargs: `packed` (the layout), `scaling`, `dropout`, `sliding_window` (tokens), `softcap`, `s_aux` (sinks, [H]), and
            further arguments of the model.

    Returns:
        float [1, T, H, E], and None for the attention weights.

    Raises:
        Unsupported: The layout is missing, or the model needs biases or another window than its cache.
    """
    layout: Layout | None = kwargs.get("packed")
    if layout is None:
        raise Unsupported("the model does not hand keyword arguments down to its attention")
    if kwargs.get("position_bias") is not None:
        raise Unsupported("its attention takes position_bias")
    window, layer = kwargs.get("sliding_window"), getattr(module, "layer_idx", -1)
    if layout.windows.get(layer, window) != window:
        raise Unsupported(f"layer {layer} attends to {window} tokens and caches {layout.windows[layer]}; None is all")
    query, key = query.to(value.dtype), key.to(value.dtype)  # rotary embeddings leave float32 under autocast
    scoring = Scoring(kwargs.get("scaling") or query.shape[-1] ** -0.5, window, kwargs.get("softcap"))
    inputs, dropout = _Inputs(query, key, value, kwargs.get("s_aux")), kwargs.get("dropout") or 0.0
    if layout.kernel == "sdpa" or dropout:  # no other kernel has dropout
        return _generic(inputs, layout.segments, scoring, dropout), None
    if layout.kernel == "flex":
        return _by_flex(inputs, layout, scoring), None
    return _by_blocks(inputs, layout, scoring), None


AttentionInterface.register(NAME, packed_attention)


@contextmanager
def packed_attention_in(configs: Sequence[Any]) -> Iterator[None]:
    """Use packed attention in the models of these configurations, and restore their own afterwards."""
    before = [config._attn_implementation_internal for config in configs]
    try:
        for config in configs:
            # Not the property: its setter reaches into sub-configurations of parts that are not ours.
            config._attn_implementation_internal = NAME
        yield
    finally:
        for config, name in zip(configs, before, strict=True):
            config._attn_implementation_internal = name


def attention_configs(model: Any) -> list[Any]:
    """Return the configurations from which the layers of a model read their attention implementation."""
    found = {id(m.config): m.config for m in model.modules() if hasattr(m, "config")}
    return [config for config in found.values() if hasattr(config, "_attn_implementation_internal")]


def _by_blocks(inputs: _Inputs, layout: Layout, scoring: Scoring) -> torch.Tensor:
    query, key, value, sinks = inputs
    groups, same_width = key.shape[1], value.shape[-1] == query.shape[-1]
    grouped = query[0].unflatten(0, (groups, -1))
    if sinks is not None:
        sinks = sinks.to(at_least_float32(query.dtype)).reshape(groups, -1, 1)
    if scoring.cap is not None or not same_width or _products_are_faster(query.dtype, query.shape[-1]):
        merged = BlockAttention.apply(grouped, key[0], value[0], sinks, layout.segments, scoring, layout.kept_bytes)
    else:
        keys, values = key[0].unsqueeze(1), value[0].unsqueeze(1)
        merged = FusedAttention.apply(grouped, keys, values, sinks, layout.segments, scoring.scale, scoring.window)
    return merged.flatten(1, 2).unsqueeze(0)


def _products_are_faster(dtype: torch.dtype, width: int) -> bool:
    """Whether plain products are faster than the fused CPU kernel, which takes PyTorch's default float32 products.

    They are where the run has a faster back end for them, and for wide heads (`python -m benchmarks.attention`).
    """
    if dtype.itemsize <= 2:
        return False
    return width > _FUSED_WIDTH or torch.get_float32_matmul_precision() != "highest"


def _by_flex(inputs: _Inputs, layout: Layout, scoring: Scoring) -> torch.Tensor:
    n, device = inputs.query.shape[2], inputs.query.device
    if scoring.window not in layout.masks:
        layout.masks[scoring.window] = flex.trie_mask(layout.segments, n, scoring.window, device)
    return flex.attend(*inputs, layout.masks[scoring.window], scoring)


def _generic(inputs: _Inputs, segments: tuple[Segment, ...], scoring: Scoring, dropout: float) -> torch.Tensor:
    """Compute packed attention by scaled_dot_product_attention, one call a segment over its ancestors and itself.

    For MPS, for dropout, and as the reference of flex attention on CUDA.
    """
    query, key, value, sinks = inputs
    heads = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(heads, 1), value.repeat_interleave(heads, 1)
    n, width = query.shape[2], value.shape[3]
    pieces: list[torch.Tensor] = []
    done = 0
    for segment in segments:
        pieces.append(query.new_zeros(1, query.shape[1], segment.start - done, width))
        before = sum(b - a for a, b in segment.ancestors)
        first = 0 if scoring.window is None else max(before - scoring.window + 1, 0)
        ranges = [*path_slice(segment.ancestors, first, before), (segment.start, segment.end)]
        k, v = (
            torch.cat([x[:, :, a:b] for a, b in ranges], 2) if len(ranges) > 1 else x[:, :, ranges[0][0] : ranges[0][1]]
            for x in (key, value)
        )
        q = query[:, :, segment.start : segment.end]
        pieces.append(_attend(q, k, v, sinks, scoring, dropout))
        done = segment.end
    pieces.append(query.new_zeros(1, query.shape[1], n - done, width))
    return torch.cat(pieces, 2).transpose(1, 2).contiguous()


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    sinks: torch.Tensor | None,
    scoring: Scoring,
    dropout: float,
) -> torch.Tensor:
    """Attend to a path of keys of which the queries are the end, by a fused kernel unless there are caps or sinks."""
    n, m = query.shape[2], key.shape[2]
    if scoring.cap is None and sinks is None and (scoring.window is None or m <= scoring.window):
        bias: Any = causal_lower_right(n, m)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout, scale=scoring.scale)
    back = torch.arange(m - n, m, device=query.device)[:, None] - torch.arange(m, device=query.device)
    visible = (back >= 0) & (back < (m if scoring.window is None else scoring.window))
    if scoring.cap is None and sinks is None:
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=visible, dropout_p=dropout, scale=scoring.scale
        )
    scores = (query @ key.mT).to(at_least_float32(query.dtype)) * scoring.scale
    if scoring.cap is not None:
        scores = (scores / scoring.cap).tanh() * scoring.cap
    scores = scores.where(visible, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.to(scores.dtype).reshape(-1, 1, 1).expand(1, -1, n, 1)], -1)
    return F.dropout(scores.softmax(-1)[..., :m], dropout).to(value.dtype) @ value


def is_checkpointed(model: Any) -> bool:
    """Whether blocks of a model compute their activations again in the backward pass."""
    return any(getattr(m, "gradient_checkpointing", False) for m in model.modules())


def kept_bytes(decoder: Any) -> int:
    """Return the bytes of probabilities that each layer of a pass may keep; checkpointed layers keep theirs one at a time."""
    layers = 1 if is_checkpointed(decoder) else getattr(decoder.config, "num_hidden_layers", None)
    return _KEPT_BYTES // layers if layers else 0


def enable_checkpointing(whole: Any, configs: Sequence[Any]) -> None:
    """Checkpoint the blocks; recomputation in the backward pass uses the attention of the forward pass."""

    def contexts() -> tuple[Any, Any]:  # called in the forward pass of each block
        return nullcontext(), packed_attention_in([c for c in configs if c._attn_implementation_internal == NAME])

    # transformers 5.23 renamed it.
    enable: Callable[[dict[str, Any]], None] = (
        getattr(whole, "activation_checkpointing_enable", None) or whole.gradient_checkpointing_enable
    )
    enable({"use_reentrant": False, "context_fn": contexts})
