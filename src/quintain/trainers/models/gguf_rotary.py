"""Scaling of rotary embeddings in GGUF files, which transformers leaves out when it reads one."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from quintain.errors import InvalidInput

_LLAMA3 = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
"""Settings of all Llama 3.1, 3.2 and 3.3 models. A file has only the factors that follow from them."""


def with_stored_rotary(config: Any, reader: Any) -> Any:
    """Return the configuration with the scaling that a file states in keys or tensors.

    Raises:
        InvalidInput: transformers has no such scaling (`unsupported_model`).
    """
    arch = reader.fields["general.architecture"].contents()
    keys = {
        name: f"{arch}.rope.scaling.{name}" for name in ("type", "factor", "original_context_length", "attn_factor")
    }
    stored = {name: reader.fields[key].contents() for name, key in keys.items() if key in reader.fields}
    tensors = {tensor.name: np.asarray(tensor.data) for tensor in reader.tensors if tensor.name.startswith("rope_")}
    given = config.rope_parameters
    own = given if "rope_theta" in given else given["full_attention"]  # llama.cpp scales no layer with a window
    kind = stored.get("type", "none")
    if own.get("rope_type", "default") != "default":
        return config  # transformers has read it
    if "rope_factors_long.weight" in tensors:
        head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        own["partial_rotary_factor"] = reader.fields[f"{arch}.rope.dimension_count"].contents() / head
        own |= {"rope_type": "longrope", "attention_factor": stored.get("attn_factor", 1.0)}
        own |= {f"{name}_factor": tensors[f"rope_factors_{name}.weight"].tolist() for name in ("long", "short")}
        config.original_max_position_embeddings = stored["original_context_length"]
        own["original_max_position_embeddings"] = stored["original_context_length"]
    elif (factors := tensors.get("rope_freqs.weight")) is not None:
        own |= {**_LLAMA3, "factor": float(factors.max())}
        if not np.allclose(rotary_factors(config)[0], factors, rtol=1e-3):
            raise _unsupported("the frequencies of Llama 3.1 to 3.3 in rope_freqs.weight, got others")
    elif kind in ("linear", "yarn"):
        own |= {"rope_type": kind, "factor": stored["factor"]}
        if kind == "yarn":
            own["original_max_position_embeddings"] = stored["original_context_length"]
    elif kind != "none":
        raise _unsupported(f"rotary scaling by linear, yarn or longrope, got {kind}")
    return config


def rotary_factors(config: Any) -> tuple[Any, float]:
    """Return by what each frequency of a rotary embedding is divided, float32 [head size / 2], and by what its output is multiplied."""
    rope = config.rope_parameters
    scaled, output = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, torch.device("cpu"))
    plain = rope["rope_theta"] ** -(torch.arange(len(scaled), dtype=torch.float64) / len(scaled))
    return (plain / scaled.double()).float().numpy(), float(output)


def _unsupported(what: str) -> InvalidInput:
    return InvalidInput(f"expected {what}; name the folder of the model's safetensors", code="unsupported_model")
