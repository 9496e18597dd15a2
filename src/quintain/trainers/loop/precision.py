"""Number format of a run, as far as the device supports it, and loss scaling for float16."""

from __future__ import annotations

from typing import NamedTuple

import torch

from quintain.records.hyperparameters import Precision


class Format(NamedTuple):
    """Number format of forward and backward passes; weights and optimizer state keep their own."""

    name: str
    """`fp32`, `bf16` or `fp16`."""
    autocast: torch.dtype | None
    """None: float32 throughout."""
    scales_loss: bool
    """Scale the loss before the backward pass and unscale the gradients after it: float16 gradients below 6e-8 vanish."""
    note: str | None
    """Why the format differs from the requested one."""


_FP32 = Format("fp32", None, False, None)


def choose(asked: Precision, device: torch.device) -> Format:
    """Return the number format for a device.

    `auto` is bf16 on CUDA devices that support it, else fp32: on CPUs without matrix units for bf16, autocast gains little
    and costs two digits of the gradient. CUDA and MPS are untested.
    """
    if asked == "auto":
        has_bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported()
        return Format("bf16", torch.bfloat16, False, None) if has_bf16 else _FP32
    if asked == "fp32":
        return _FP32
    if asked == "bf16":
        if device.type == "cuda" and not torch.cuda.is_bf16_supported():
            return _FP32._replace(note="this GPU has no bf16; training runs in fp32")
        return Format("bf16", torch.bfloat16, False, None)
    if device.type == "cpu":
        return _FP32._replace(note="fp16 on a CPU is slower than fp32 and overflows; training runs in fp32")
    return Format("fp16", torch.float16, True, None)


def loss_scale(device: torch.device, *, enabled: bool) -> torch.amp.GradScaler:
    """Dynamic loss scaling (Micikevicius et al. 2018, arXiv 1710.03740, section 3.2); it does nothing where it is off."""
    return torch.amp.GradScaler(device.type, enabled=enabled)
