"""The attention of GGUF models, where transformers 5.23 reads it wrongly: the size of the heads, and biases."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

_OUTPUT_BIAS = ".self_attn.o_proj.bias"


def with_stored_attention(config: Any, path: Path) -> Any:
    """Set the biases of a file, and the head size of Qwen 3; transformers takes defaults and drops weights without a place."""
    from gguf import GGUFReader

    reader = GGUFReader(path)
    size = reader.fields.get("qwen3.attention.key_length")
    if size is not None:
        config.head_dim = size.contents()
    if getattr(config, "attention_bias", None) is False:
        config.attention_bias = any(tensor.name == "blk.0.attn_q.bias" for tensor in reader.tensors)
    return config


def fill_output_biases(model: Any, missing: Iterable[str]) -> list[str]:
    """Set the missing biases of attention's output to 0, what a file without them means; return the other missing weights."""
    parameters = dict(model.named_parameters())
    others = []
    for name in missing:
        if name.endswith(_OUTPUT_BIAS):
            torch.nn.init.zeros_(parameters[name])
        else:
            others.append(name)
    return others
