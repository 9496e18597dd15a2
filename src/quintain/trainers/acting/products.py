"""Fast matrix products of few rows, as in decoding with one token of each episode at a time.

Which form is fastest depends on processor, library and shape, by factors of up to five, and forms round differently. So a probe
chooses for each shape, and the choices are kept with a job: a resumed run must round as before.
"""

from __future__ import annotations

import fcntl
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from quintain.jobs.directory import write_atomically
from quintain.trainers.engine.machine import medium_is_exact, medium_is_faster, products_of

PRODUCTS = "products.json"
"""File of a job's folder that keeps its choices."""

_FEW_ROWS = 4
"""Rows up to which W x^T is worth a try: the weight is then the long side, which some libraries compute with all threads."""

_PROBED_ROWS = 64
"""Rows up to which a shape is probed."""

_SMALL_MODEL = 10_000_000
"""Parameters of linear layers below which products take less time than their probe, and `F.linear` is the fastest form."""

_ROUNDS = 3

_BF16_ROWS = 8
"""Rows of the products by which the types of weights are compared: a batch of episodes."""

_BF16_GAIN = 1.2
"""Speed-up of all linear layers for which weights become bfloat16."""

_WORTH = 0.95
"""Time relative to `F.linear` below which another form is chosen."""

_HOPELESS = 1.5
"""Time relative to the best form above which a form is not tried again."""


def _transposed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return x W^T as (W x^T)^T, of two rows where there is one: the product with a vector is slow for large weights."""
    rows = torch.cat([x, x]) if len(x) == 1 else x
    return (weight @ rows.t()).t()[: len(x)].contiguous()


_FORMS: dict[str, tuple[Callable[[torch.Tensor, torch.Tensor], torch.Tensor], str]] = {
    "linear": (nn.functional.linear, "highest"),
    "fast linear": (nn.functional.linear, "medium"),
    "transposed": (_transposed, "highest"),
    "fast transposed": (_transposed, "medium"),
}
"""Forms of x W^T, with the precision under which they run; `medium` is another back end where it is exact, see `_exact`."""


class ProductForms:
    """The chosen form of each product of a process or job."""

    def __init__(self, kept: Path | None = None) -> None:
        """Start with the choices of an earlier attempt.

        Args:
            kept: File that keeps the choices, for all processes of a job; None: nothing is kept.
        """
        self._kept = kept
        self._chosen = self._read()

    def precision(self, model: nn.Module, asked: str) -> str:
        """Return the number format of a model's weights, "fp32" or "bf16".

        Args:
            model: The model, with float32 weights on a CPU; others stay as they are.
            asked: `fp32`, `bf16`, or `auto`, which probes and is kept as the forms are.
        """
        layers = [layer for layer in model.modules() if type(layer) is nn.Linear and _fits(layer.weight)]
        if any(p.device.type != "cpu" or p.dtype != torch.float32 for p in model.parameters()):
            return "as loaded"
        if asked == "auto":
            asked = self._recall("weights", partial(_faster_weights, layers)) if _is_large(layers) else "fp32"
        return asked

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """Compute the linear layers of a model that is not small on the CPU by the chosen forms; results agree up to rounding."""
        layers = [
            layer
            for layer in model.modules()
            if type(layer) is nn.Linear and "forward" not in vars(layer) and _fits(layer.weight)
        ]
        if not _is_large(layers):
            layers = []
        precision = self._recall("precision", _precision) if layers else "highest"
        for layer in layers:
            layer.forward = partial(self._forward, layer, {})  # type: ignore[method-assign]
        try:
            with products_of(_exact(precision)):
                yield
        finally:
            for layer in layers:
                del layer.forward

    def _forward(self, layer: nn.Linear, forms: dict[int, str], x: torch.Tensor) -> torch.Tensor:
        """Compute a layer; `forms` are those that it has had in this call, by rows."""
        rows, weight = x.numel() // layer.in_features, layer.weight
        if not 0 < rows <= _PROBED_ROWS:
            return _linear(layer, x)
        if rows not in forms:
            kind = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else weight.dtype
            shape = f"{1 << (rows - 1).bit_length()} x {layer.in_features} x {layer.out_features} {kind}"
            forms[rows] = self._recall(shape, lambda: _fastest(x.reshape(rows, -1), weight))
        return _computed(forms[rows], layer, x)

    def _recall(self, name: str, choose: Callable[[], str]) -> str:
        """Return a choice, made once for all processes of the job."""
        if name in self._chosen:
            return self._chosen[name]
        if self._kept is None:
            self._chosen[name] = choose()
            return self._chosen[name]
        with self._kept.with_suffix(".lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._chosen |= self._read()
            if name not in self._chosen:
                self._chosen[name] = choose()
                write_atomically(self._kept, json.dumps(self._chosen, indent=1).encode())
        return self._chosen[name]

    def _read(self) -> dict[str, str]:
        chosen: dict[str, str] = {}
        if self._kept is not None and self._kept.exists():
            chosen = json.loads(self._kept.read_bytes())
        return chosen


IN_PROCESS = ProductForms()
"""Choices of this process that are not kept."""


def _computed(form: str, layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    """Compute a layer in a form."""
    product, precision = _FORMS[form]
    with products_of(_exact(precision)) if layer.weight.dtype == torch.float32 else nullcontext():
        if product is nn.functional.linear:
            return _linear(layer, x)
        flat = product(x.reshape(-1, layer.in_features), layer.weight)
    if layer.bias is not None:
        flat = flat + layer.bias
    return flat.reshape(*x.shape[:-1], layer.out_features)


def _linear(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    """Compute a layer as one product of all rows.

    `F.linear` makes rows that stand apart in memory, as the last columns of a batch, a batch of products, and oneDNN copies a frozen
    weight for each of them: 32 rows of a head of 262,144 x 640 took 21 GB.
    """
    flat = nn.functional.linear(x.reshape(-1, layer.in_features), layer.weight, layer.bias)
    return flat.reshape(*x.shape[:-1], layer.out_features)


def _exact(precision: str) -> str:
    """Return the precision, or "highest" where it rounds: a kept choice can be of another processor."""
    return precision if precision == "highest" or medium_is_exact("cpu") else "highest"


def _fits(weight: Any) -> bool:
    is_plain = type(weight) is nn.Parameter and weight.device.type == "cpu"
    return is_plain and weight.dtype in (torch.float32, torch.bfloat16)


def _is_large(layers: Sequence[nn.Linear]) -> bool:
    return sum(layer.weight.numel() for layer in layers) >= _SMALL_MODEL


def to_bf16(model: nn.Module) -> None:
    """Convert a model's weights to bfloat16 in place, but not those that its architecture keeps in float32, nor its buffers."""
    kept = {*(getattr(model, "_keep_in_fp32_modules", None) or ())}
    kept |= {*(getattr(model, "_keep_in_fp32_modules_strict", None) or ())}
    for name, parameter in model.named_parameters():
        if parameter.dtype == torch.float32 and not kept & {*name.split(".")}:
            parameter.data = parameter.data.to(torch.bfloat16)


def _faster_weights(layers: Sequence[nn.Linear]) -> str:
    """Return "bf16" where the layers are clearly faster with such weights, else "fp32"; one layer of each shape is measured."""
    shapes = Counter(tuple(layer.weight.shape) for layer in layers)
    spent = dict.fromkeys(("fp32", "bf16"), 0.0)
    for shape, n in shapes.items():
        weight = next(layer.weight for layer in layers if tuple(layer.weight.shape) == shape)
        x = torch.ones(_BF16_ROWS, shape[1])
        single, half = _times(x, weight), _times(x.bfloat16(), weight.bfloat16())
        spent["fp32"] += n * min(single.values())
        spent["bf16"] += n * min(half.values())
    return "bf16" if spent["bf16"] * _BF16_GAIN < spent["fp32"] else "fp32"


def _precision() -> str:
    """Return the precision for products of many rows; see `machine.enable_fast_matmul`."""
    return "medium" if medium_is_faster("cpu") and medium_is_exact("cpu") else "highest"


def _fastest(x: torch.Tensor, weight: torch.Tensor) -> str:
    """Return the form that is fastest for this product, x [rows, in] and weight [out, in]."""
    if len(x) > _FEW_ROWS and weight.dtype != torch.float32:
        return "linear"  # the only form
    best = _times(x, weight)
    fastest = min(best, key=best.__getitem__)
    return fastest if best[fastest] < _WORTH * best["linear"] else "linear"


@torch.no_grad()
def _times(x: torch.Tensor, weight: torch.Tensor) -> dict[str, float]:
    """Return the least seconds of each possible form of a product, measured in turn."""
    names = [name for name in _FORMS if len(x) <= _FEW_ROWS or "transposed" not in name]
    if not (weight.dtype == torch.float32 and medium_is_exact("cpu")):
        names = [name for name in names if "fast" not in name]
    best = dict.fromkeys(names, math.inf)
    for trial in range(1 + _ROUNDS):
        least = min(best.values())
        for name in names if trial < 2 else [name for name in names if best[name] <= _HOPELESS * least]:
            product, precision = _FORMS[name]
            with products_of(precision):
                start = time.perf_counter()
                product(x, weight)
                best[name] = min(best[name], time.perf_counter() - start)
    return best
