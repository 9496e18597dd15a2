"""Number format of a run, as far as the device supports it, and loss scaling for float16."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch

from quintain.records.hyperparameters.methods import Precision, TrainingConfig
from quintain.trainers.engine.machine import bf16_speedup
from quintain.trainers.models.quantization import size_of
from quintain.trainers.models.value_head import head_of

_LARGE_MODEL = 10_000_000
"""Parameters from which `auto` considers bf16 on a CPU: products of smaller models take too little of a step."""

_CLEARLY_FASTER = 1.4
"""Speed-up of a product from which `auto` takes bf16 on a CPU: a step has other parts than products, which gain nothing."""


class Format(NamedTuple):
    """Number format of forward and backward passes; trained weights and optimizer state stay float32 but with adamw_bf16."""

    name: str
    """`fp32`, `bf16` or `fp16`."""
    autocast: torch.dtype | None
    """None: float32 throughout."""
    scales_loss: bool
    """Scale the loss before the backward pass and unscale the gradients after it: float16 gradients below 6e-8 vanish."""
    note: str | None
    """Why the format differs from the requested one."""
    rule: str = "as requested"
    """Why the run has this format."""


_FP32 = Format("fp32", None, False, None)
_BF16 = Format("bf16", torch.bfloat16, False, None)


def choose(
    asked: Precision,
    model: Any,
    remembered: Path | None = None,
    *,
    casts_to_act: bool = False,
    device: torch.device | None = None,
) -> Format:
    """Return the number format for a model on its device.

    `auto` is bf16 on CUDA devices that support it. On a CPU it is bf16 where a product of the model's largest layer is clearly
    faster in it than in float32, measured; else, and for small models, fp32. CUDA and MPS are untested.

    Args:
        asked: The setting.
        model: The loaded model.
        remembered: File with the choices of an earlier attempt (`machine.prepare` writes it). The measurement depends on other
            load, so a resumed run repeats the choice.
        casts_to_act: Whether the model acts with float32 weights: bf16 would convert all of them for each token.
        device: Where the model will be trained; None: where it is.
    """
    device = device or model.device
    if asked == "auto":
        return _automatic(model, device, remembered, casts_to_act=casts_to_act)
    if asked == "fp32":
        return _FP32
    if asked == "bf16":
        if device.type == "cuda" and not torch.cuda.is_bf16_supported():
            return _FP32._replace(note="this GPU has no bf16; training runs in fp32")
        return _BF16
    if device.type == "cpu":
        return _FP32._replace(note="fp16 on a CPU is slower than fp32 and overflows; training runs in fp32")
    return Format("fp16", torch.float16, True, None)


def _automatic(model: Any, device: torch.device, remembered: Path | None, *, casts_to_act: bool) -> Format:
    if device.type == "cuda":
        has_bf16 = torch.cuda.is_bf16_supported()
        return _BF16._replace(rule="this GPU has bf16") if has_bf16 else _FP32._replace(rule="this GPU has no bf16")
    if device.type != "cpu":
        return _FP32._replace(rule=f"fp32 on {device.type}")
    if remembered is not None and remembered.exists():
        kept = json.loads(remembered.read_bytes())
        return (_BF16 if kept["precision"] == "bf16" else _FP32)._replace(rule=kept["precision_rule"])
    if sum(map(size_of, model.parameters())) < _LARGE_MODEL:
        return _FP32._replace(rule="fp32 for a small model on a CPU")
    if casts_to_act:
        return _FP32._replace(rule="fp32 where a model acts on a CPU while all its weights are trained")
    if (shape := _largest_layer(model)) is None:
        return _FP32._replace(rule="the model has no linear layer to measure")
    inner, outer = shape
    speedup = bf16_speedup(inner, outer)
    chosen = _BF16 if speedup >= _CLEARLY_FASTER else _FP32
    return chosen._replace(rule=f"bf16 products of a layer {inner} x {outer} measured {speedup:.2g} times as fast")


def hold_base(model: Any, config: TrainingConfig, number_format: Format) -> None:
    """Convert the weights below adapters to bf16 where the run computes in it, and with `adamw_bf16` all but a value head's.

    Adapters stay float32. A product of bf16 converts the others anyway, in every pass. Sharded models keep float32: a block's
    parameters share one type.
    """
    trains_bf16 = config.optimizer == "adamw_bf16"
    if (config.lora is None and not trains_bf16) or config.sharding != "none" or number_format.name != "bf16":
        return
    head = head_of(model)
    kept = set[int]() if head is None else {id(p) for p in head.parameters()}
    for parameter in model.parameters():
        if (trains_bf16 or not parameter.requires_grad) and parameter.is_floating_point() and id(parameter) not in kept:
            parameter.data = parameter.data.to(torch.bfloat16)


def _largest_layer(model: Any) -> tuple[int, int] | None:
    """Return inner and outer width of the largest linear layer below the head; None without one."""
    head = model.get_output_embeddings()
    layers = [m for m in model.modules() if isinstance(m, torch.nn.Linear) and m is not head]
    shapes = [(m.in_features, m.out_features) for m in layers]
    return max(shapes, key=lambda shape: (shape[0] * shape[1], shape), default=None)


def loss_scale(device: torch.device, *, enabled: bool) -> torch.amp.GradScaler:
    """Dynamic loss scaling (Micikevicius et al. 2018, arXiv 1710.03740, section 3.2); it does nothing where it is off."""
    return torch.amp.GradScaler(device.type, enabled=enabled)
