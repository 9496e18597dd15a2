"""Weights and hyperparameters of a decoder in the GGUF format, with the names that llama.cpp reads.

Source of names and layouts: gguf-py's tensor maps and keys, and the inverse of transformers' GGUF reader
(`modeling_gguf_pytorch_utils`). A written file counts only after llama.cpp has run it (quintain.trainers.handover.llama_cpp).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, NamedTuple

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Quantization

from quintain.errors import InvalidInput, Unavailable
from quintain.records.jobs.handover import GgufType
from quintain.trainers.models.gguf_rotary import rotary_factors
from quintain.trainers.models.loading import decoder_and_head

Array = np.ndarray[Any, np.dtype[Any]]

_CONFIG_KEYS = {
    gguf.Keys.LLM.CONTEXT_LENGTH: "max_position_embeddings",
    gguf.Keys.LLM.EMBEDDING_LENGTH: "hidden_size",
    gguf.Keys.LLM.BLOCK_COUNT: "num_hidden_layers",
    gguf.Keys.LLM.FEED_FORWARD_LENGTH: "intermediate_size",
    gguf.Keys.LLM.VOCAB_SIZE: "vocab_size",
    gguf.Keys.LLM.ATTN_LOGIT_SOFTCAPPING: "attn_logit_softcapping",
    gguf.Keys.LLM.FINAL_LOGIT_SOFTCAPPING: "final_logit_softcapping",
    gguf.Keys.LLM.LOGIT_SCALE: "logits_scaling",
    gguf.Keys.LLM.RESIDUAL_SCALE: "residual_multiplier",
    gguf.Keys.LLM.EMBEDDING_SCALE: "embedding_multiplier",
    gguf.Keys.Attention.HEAD_COUNT: "num_attention_heads",
    gguf.Keys.Attention.HEAD_COUNT_KV: "num_key_value_heads",
    gguf.Keys.Attention.LAYERNORM_RMS_EPS: "rms_norm_eps",
    gguf.Keys.Attention.SCALE: "attention_multiplier",
    gguf.Keys.Attention.SLIDING_WINDOW: "sliding_window",
}
"""GGUF key -> attribute of the configuration; absent and null ones are left out."""

_SCALED = ("linear", "llama3", "longrope", "yarn")
"""Kinds of rotary scaling that llama.cpp computes as transformers does."""

_BLOCK_256 = frozenset({Quantization.Q4_K, Quantization.Q6_K})


class Architecture(NamedTuple):
    """How a model type of transformers is named and stored in GGUF."""

    name: str
    stored: Callable[[str, Array, Any], Array] = lambda name, weights, config: weights
    """Layout in the file, from the tensor's GGUF name, its weights in transformers' layout, and the configuration."""
    output_bias: bool = True
    """Whether llama.cpp adds a bias after attention."""


def _interleaved(name: str, weights: Array, config: Any) -> Array:
    """Reorder rows of queries and keys from halves to pairs, as llama.cpp's rotary embedding of `llama` expects."""
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(name.split(".")[-2])
    if heads is None:
        return weights
    return weights.reshape(heads, 2, -1, *weights.shape[1:]).swapaxes(1, 2).reshape(weights.shape)


def _with_offset(name: str, weights: Array, config: Any) -> Array:
    """Add the 1 that Gemma adds to the weights of each norm while it runs."""
    return weights + 1 if name.endswith("norm.weight") else weights


ARCHITECTURES: Mapping[str, Architecture] = {
    "gemma2": Architecture("gemma2", _with_offset),
    "gemma3_text": Architecture("gemma3", _with_offset),
    "granite": Architecture("granite", _interleaved),
    "llama": Architecture("llama", _interleaved),
    "mistral": Architecture("llama", _interleaved),
    "olmo2": Architecture("olmo2"),
    "phi3": Architecture("phi3"),
    "qwen2": Architecture("qwen2"),
    "qwen3": Architecture("qwen3", output_bias=False),
    "smollm3": Architecture("smollm3", _interleaved),
}
"""Model types whose files llama.cpp was seen to run like the model (tests/trainers/test_gguf_export.py)."""


def require_architecture(config: Any) -> Architecture:
    """Return how a model, or the part for text of one that reads images too, is stored in GGUF.

    Raises:
        InvalidInput: The model type or its kind of rotary scaling is not written (`unsupported_model`).
    """
    config = config.get_text_config()
    found = ARCHITECTURES.get(config.model_type)
    if found is None:
        raise _unsupported(f"a model of type {', '.join(ARCHITECTURES)}, got {config.model_type}")
    kinds = {str(rope.get("rope_type", "default")) for rope in _rotary(config)} - {"default", *_SCALED}
    if kinds:
        raise _unsupported(
            f"rotary embeddings that are plain or scaled by {', '.join(_SCALED)}, got {', '.join(sorted(kinds))}"
        )
    return found


def _unsupported(what: str) -> InvalidInput:
    return InvalidInput(
        f"expected {what}, for GGUF; export it in the format 'merged' and convert the folder by llama.cpp's convert_hf_to_gguf.py",
        code="unsupported_model",
    )


def add_hyperparameters(writer: gguf.GGUFWriter, config: Any, arch: str) -> None:
    """Add the configuration's values under the names of GGUF."""
    for key, attribute in _CONFIG_KEYS.items():
        value = getattr(config, attribute, None)
        if value is not None:
            add = writer.add_uint32 if isinstance(value, int) else writer.add_float32
            add(key.format(arch=arch), value)
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(int(head * _rotary(config)[0].get("partial_rotary_factor", 1.0)))
    writer.add_rope_freq_base(max(rope["rope_theta"] for rope in _rotary(config)))
    _add_scaling(writer, config)
    _add_windows(writer, config, arch)


def _add_scaling(writer: gguf.GGUFWriter, config: Any) -> None:
    """Add the rotary scaling: that of Llama 3 as factors of the frequencies, in a tensor. Layers with a window have none."""
    for rope in _rotary(config):
        kind = rope.get("rope_type", "default")
        if kind == "llama3":
            writer.add_tensor("rope_freqs.weight", rotary_factors(config)[0])
        elif kind == "longrope":
            for name in ("long", "short"):
                writer.add_tensor(f"rope_factors_{name}.weight", np.asarray(rope[f"{name}_factor"], np.float32))
            writer.add_rope_scaling_attn_factors(rotary_factors(config)[1])
        elif kind in _SCALED:
            writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
            writer.add_rope_scaling_factor(rope["factor"])
        if kind in ("longrope", "yarn"):
            writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])


def _add_windows(writer: gguf.GGUFWriter, config: Any, arch: str) -> None:
    """Add which layers have a sliding window: all but every n-th, the pattern that llama.cpp reads."""
    kinds = list(getattr(config, "layer_types", None) or ())
    if "sliding_attention" not in kinds:
        return
    period = kinds.index("full_attention") + 1 if "full_attention" in kinds else 0
    if any((kind == "full_attention") != (period > 0 and layer % period == 0) for layer, kind in enumerate(kinds, 1)):
        raise _unsupported(f"full attention in every n-th layer, got {', '.join(kinds)}")
    writer.add_sliding_window_pattern(period)
    bases = [rope["rope_theta"] for rope in _rotary(config)]
    if len(bases) > 1:
        writer.add_float32(gguf.Keys.Rope.FREQ_BASE_SWA.format(arch=arch), min(bases))


def _rotary(config: Any) -> list[Mapping[str, Any]]:
    """Return the rotary parameters: one, or one for each kind of layer."""
    given = config.rope_parameters
    return [given] if "rope_theta" in given else list(given.values())


def to_stored_model(model: Any, architecture: Architecture) -> tuple[dict[str, torch.Tensor], Any]:
    """Return the weights by name, a tied head once, and the configuration of the model as llama.cpp can compute it."""
    decoder, head = decoder_and_head(model)
    weights = {f"model.{name}": weight.detach() for name, weight in decoder.named_parameters()}
    if head.weight is not model.get_input_embeddings().weight:
        weights["lm_head.weight"] = head.weight.detach()
    config = model.config.get_text_config()
    if architecture.output_bias or not any(name.endswith("o_proj.bias") for name in weights):
        return weights, config
    config = copy(config)
    queries = config.num_attention_heads // config.num_key_value_heads
    config.num_attention_heads += queries
    config.num_key_value_heads += 1
    for layer in range(config.num_hidden_layers):
        _add_constant_heads(weights, f"model.layers.{layer}.self_attn.", queries, config.head_dim)
    return weights, config


def _add_constant_heads(weights: dict[str, torch.Tensor], prefix: str, queries: int, size: int) -> None:
    """Replace the bias after attention by heads whose output is constant, in place and exactly.

    Attention weights sum to 1. So a key-value head with zero weights and the bias (1, 0, ...) of its values outputs this vector at
    every position, and the first column of its output projection is added unchanged: the bias.
    """
    for name, rows in (("q_proj", queries * size), ("k_proj", size), ("v_proj", size)):
        weight, bias = weights[f"{prefix}{name}.weight"], weights[f"{prefix}{name}.bias"]
        weights[f"{prefix}{name}.weight"] = torch.cat([weight, weight.new_zeros(rows, weight.shape[1])])
        weights[f"{prefix}{name}.bias"] = torch.cat([bias, bias.new_zeros(rows)])
    weights[f"{prefix}v_proj.bias"][-size] = 1.0
    weight, bias = weights[f"{prefix}o_proj.weight"], weights.pop(f"{prefix}o_proj.bias")
    columns = weight.new_zeros(weight.shape[0], queries * size)
    columns[:, 0] = bias
    weights[f"{prefix}o_proj.weight"] = torch.cat([weight, columns], dim=1)


def add_weights(
    writer: gguf.GGUFWriter,
    weights: Mapping[str, torch.Tensor],
    config: Any,
    architecture: Architecture,
    kind: GgufType,
) -> None:
    """Add every weight in the type that llama.cpp's quantiser gives it.

    Raises:
        InvalidInput: A weight has no name in GGUF (`unsupported_model`).
        Unavailable: The library of K-quants is missing.
    """
    layers = config.num_hidden_layers
    arch = next(number for number, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture.name)
    names = gguf.get_tensor_name_map(arch, layers)
    tied = "lm_head.weight" not in weights
    for own_name, tensor in weights.items():
        name = names.get_name(own_name, try_suffixes=(".weight", ".bias"))
        if name is None:
            raise _unsupported(f"weights that {architecture.name} has, got {own_name!r}")
        values = architecture.stored(name, tensor.float().cpu().numpy(), config)
        wanted = _quantization(name, values, kind, layers, tied)
        writer.add_tensor(name, _quantized(values, wanted), raw_dtype=wanted)


def _quantization(name: str, values: Array, kind: GgufType, layers: int, tied: bool) -> Quantization:
    """Return the type of one tensor (llama_tensor_get_type of llama-quant.cpp, for the file types in use)."""
    if values.ndim < 2:
        return Quantization.F32
    if kind == "f16":
        return Quantization.F16
    if kind == "q8_0":
        return Quantization.Q8_0 if values.shape[-1] % 32 == 0 else Quantization.F16
    is_head = name == "output.weight" or (tied and name == "token_embd.weight")
    more = is_head
    if name.startswith("blk.") and name.split(".")[2] in {"attn_v", "ffn_down"}:
        more = _has_more_bits(int(name.split(".")[1]), layers)
    wanted = Quantization.Q6_K if more else Quantization.Q4_K
    if values.shape[-1] % 256:  # K-quants have blocks of 256 values
        wanted = Quantization.Q8_0 if more else Quantization.Q5_0
    return wanted if values.shape[-1] % 32 == 0 else Quantization.F16


def _has_more_bits(layer: int, layers: int) -> bool:
    """Whether q4_k_m gives this layer's values and last projection six bits (use_more_bits of llama-quant.cpp)."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def _quantized(values: Array, wanted: Quantization) -> Array:
    values = np.ascontiguousarray(values)
    if wanted not in _BLOCK_256:
        return gguf.quantize(values, wanted)
    try:
        libgguf = importlib.import_module("libgguf")
    except ImportError:
        raise Unavailable(
            "expected libgguf for the type q4_k_m, got none; pip install 'quintain[gguf]', or choose q8_0",
            code="missing_extra",
        ) from None
    return np.asarray(libgguf.quantize_rows(values, int(wanted)))
