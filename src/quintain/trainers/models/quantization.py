"""Quantised base models: linear layers in NF4 or int8 by bitsandbytes, under adapters (Dettmers et al. 2023, arXiv 2305.14314).

Embeddings, head and norms keep their type. A layer computes x W^T with W dequantised, whether the model trains or acts, so that an
agent acts as it was trained; on CUDA, bitsandbytes' int8 products quantise x too (Dettmers et al. 2022, arXiv 2208.07339).
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

from quintain.errors import InvalidInput, Unavailable
from quintain.records.agent import Quantization
from quintain.trainers.engine.machine import return_freed_memory


def quantize(model: Any, kind: Quantization, device: torch.device) -> None:
    """Replace a model's linear layers, except the head, by quantised ones on a device.

    Layers are replaced one after another, and each weight is freed before the next one is quantised.

    Raises:
        Unavailable: bitsandbytes is not installed (`missing_extra`).
        InvalidInput: The model has no linear layers, or the device has no quantised ones.
    """
    if device.type not in ("cpu", "cuda"):
        raise InvalidInput(
            f"expected a CPU or a CUDA device for quantization '{kind}', got {device.type}; set quantization to null"
        )
    library = bitsandbytes()
    for name in _linear_layers(model):
        parent, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(parent), leaf, _quantized(library, model.get_submodule(name), kind, device))
    return_freed_memory()
    setattr(model, f"is_loaded_in_{'4bit' if kind == 'nf4' else '8bit'}", True)  # peft chooses its layers by this flag


def round_weights(model: Any, kind: Quantization, device: torch.device) -> None:
    """Give a model's linear layers, except the head, the weights that a quantised base computes with, in their own type.

    Raises:
        Unavailable: bitsandbytes is not installed (`missing_extra`).
        InvalidInput: The model has no linear layers.
    """
    library = bitsandbytes()
    for name in _linear_layers(model):
        layer = model.get_submodule(name)
        layer.weight.data.copy_(dequantized_weight(library, _quantized(library, layer, kind, device)))


def dequantize_stored(model: Any) -> Any:
    """Return a model whose files are quantised with the plain weights that it computes with.

    Raises:
        InvalidInput: transformers cannot dequantise them (`unsupported_model`).
    """
    try:
        plain = model.dequantize()
    except NotImplementedError as error:
        raise InvalidInput(
            f"cannot dequantise the weights in {model.config.name_or_path} ({error}); name the folder of the model's plain weights",
            code="unsupported_model",
        ) from None
    del plain._weight_conversions  # those of the quantiser have no reverse, so nothing could be saved
    plain.is_loaded_in_4bit = plain.is_loaded_in_8bit = False  # by which peft would choose its layers
    return plain


def dequantized_weight(library: Any, layer: Any) -> torch.Tensor:
    """Return the weight of a quantised layer, float32 [out, in]."""
    if isinstance(layer, library.nn.Linear4bit):
        weight: torch.Tensor = library.functional.dequantize_4bit(layer.weight.data, layer.weight.quant_state)
        return weight
    return layer.weight.data.float() * (layer.state.SCB / 127.0).unsqueeze(1)


def bitsandbytes() -> Any:
    """Return the module bitsandbytes.

    Raises:
        Unavailable: It is not installed (`missing_extra`).
    """
    try:
        return importlib.import_module("bitsandbytes")
    except ImportError as error:
        raise Unavailable(
            f"expected the package bitsandbytes for quantised weights and 8-bit AdamW, got {error}; "
            "pip install 'quintain[quantized]'",
            code="missing_extra",
        ) from None


def size_of(parameter: torch.Tensor) -> int:
    """Return the number of weights of a parameter; NF4 packs two in a byte."""
    state = getattr(parameter, "quant_state", None)
    return parameter.numel() if state is None else math.prod(state.shape)


def scales_of(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the scales of quantised weights by name, which are not parameters."""
    for name, module in model.named_modules():
        if (four := getattr(getattr(module, "weight", None), "quant_state", None)) is not None:
            yield f"{name}.absmax", four.absmax
            yield f"{name}.offset", four.offset
            yield f"{name}.absmax2", four.state2.absmax
        elif isinstance(eight := getattr(getattr(module, "state", None), "SCB", None), torch.Tensor):
            yield f"{name}.SCB", eight


def _linear_layers(model: Any) -> list[str]:
    """Return the names of the linear layers except the head."""
    head = model.get_output_embeddings()
    found = [name for name, m in model.named_modules() if type(m) is nn.Linear and m is not head]
    if not found:
        raise InvalidInput(
            f"expected a model with linear layers, got a {type(model).__name__} without any; set quantization to null"
        )
    return found


def _quantized(library: Any, layer: nn.Linear, kind: Quantization, device: torch.device) -> Any:
    """Return the quantised form of a layer. It is quantised from float32, whatever the type of the loaded weights."""
    weight = layer.weight.detach().to(device, torch.float32)
    shape: dict[str, Any] = {
        "input_features": layer.in_features,
        "output_features": layer.out_features,
        "bias": False,
        "device": "meta",
    }
    quantized: Any
    if kind == "nf4":
        quantized = library.nn.Linear4bit(**shape, quant_type="nf4", compress_statistics=True)
        packed = library.nn.Params4bit(
            weight, requires_grad=False, quant_type="nf4", compress_statistics=True, module=quantized
        )
        quantized.weight, quantized.forward = packed.to(device), partial(_nf4_forward, quantized)
        # Its forward pass would repack the weights for decoding in bfloat16, which rounds differently from training.
        quantized.support_avx512bf16_for_cpu = False
    else:
        quantized = library.nn.Linear8bitLt(**shape, has_fp16_weights=False, threshold=0.0)
        quantized.weight = library.nn.Int8Params(weight, requires_grad=False, has_fp16_weights=False).to(device)
        quantized.init_8bit_state()
        quantized.state.is_training = True  # on the CPU, evaluation would quantise the inputs too
        quantized.forward = partial(_int8_forward, quantized)
    quantized.bias = layer.bias
    return quantized


def _nf4_forward(layer: Any, x: torch.Tensor) -> torch.Tensor:
    x, bias = _like_autocast(layer, x)
    product: torch.Tensor = bitsandbytes().matmul_4bit(x, layer.weight, quant_state=layer.weight.quant_state, bias=bias)
    return product


def _int8_forward(layer: Any, x: torch.Tensor) -> torch.Tensor:
    x, bias = _like_autocast(layer, x)
    product: torch.Tensor = bitsandbytes().matmul(x, layer.weight, bias=bias, state=layer.state)
    return product


def _like_autocast(layer: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the input and the bias in the type in which autocast would compute a linear layer."""
    kind = x.device.type
    if torch.is_autocast_enabled(kind):
        x = x.to(torch.get_autocast_dtype(kind))
    return x, None if layer.bias is None else layer.bias.to(x.dtype)
