"""Reference of the engine's check at the start of a run: the model's own hidden states on a few short rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from quintain.trainers.data.streams import TokenRow, token_row
from quintain.trainers.engine.attention import Kernel
from quintain.trainers.engine.embeddings import gradient_at_embeddings
from quintain.trainers.engine.head import LogitShape
from quintain.trainers.engine.rotary import Rotary
from quintain.trainers.models.adapters import first_line
from quintain.trainers.models.loading import decoder_and_head

CHECK_WINDOW = 7
"""Longest sliding window in the check, in tokens: shorter than the rows, their shared prefixes and their branches."""

MISFITS = (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)
"""Exceptions of models whose forward pass is not built as the engine assumes, and of kernels that the device lacks."""

_CHECK_LOGIT_SIZE = 100.0
"""Size of the logits in the check of the head: caps show on large logits only."""

_SATURATING_LOGIT_SIZE = 1e4
"""Size of the logits that show the bound of a cap."""

_LOGIT_STRIDE = 7
"""Every so many tokens the logits are compared with the output of the head."""


def padded_inputs(rows: Sequence[TokenRow], device: torch.device) -> dict[str, Any]:
    """Return rows padded on the right with their mask; the padding id is arbitrary."""
    shape = len(rows), max(map(len, rows))
    ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)], mask[i, : len(row)] = row.token_ids, 1
    return {
        "input_ids": torch.from_numpy(ids).to(device),
        "attention_mask": torch.from_numpy(mask).to(device),
        "use_cache": False,
    }


def probes(model: Any, stretch: int = 1) -> list[TokenRow]:
    """Return rows of 17 to 48 tokens times `stretch`, with two branches and one unrelated row, supervised in runs."""
    vocabulary, x = model.get_input_embeddings().weight.shape[0], stretch
    draw = np.random.default_rng(0).integers(0, vocabulary, (4, 48 * x)).tolist()
    ids = [
        draw[0],
        draw[0][: 20 * x] + draw[1][: 20 * x],
        draw[2][: 17 * x],
        draw[0][: 20 * x] + draw[1][: 12 * x] + draw[3][: 9 * x],
    ]
    own_context = getattr(model.config.get_text_config(), "max_position_embeddings", None) or 48 * x
    context = min([own_context, *(border.tokens for border in Rotary.of(model).borders)])
    runs = {*range(5, 9), *range(28, 36), *range(44, 48), 16}
    return [token_row(row[:context], [t // x in runs for t in range(len(row[:context]))]) for row in ids]


def first_that_agrees(
    model: Any, states: Callable[[Kernel | None], torch.Tensor], kernels: Sequence[Kernel]
) -> tuple[Kernel | None, list[str]]:
    """Return the first kernel whose states and gradients agree with the reference's, and why those before it do not.

    Gradients are those of a fixed projection of the states at the embeddings.

    Args:
        model: The model.
        states: Runs a pass over the model with a kernel; None: the reference's.
        kernels: The kernels to try, in their order.

    Returns:
        None if none agrees, and the reasons.
    """
    reference = _with_gradients(model, partial(states, None))
    problems: list[str] = []
    for kernel in kernels:
        try:
            computed, gradient = _with_gradients(model, partial(states, kernel))
            gradient = gradient[:, : reference[1].shape[1]]  # some kernels have padding behind the tokens
            problem = apart(computed, reference[0]) or apart(gradient, reference[1], "gradients")
        except Exception as error:  # whatever a compiler or a driver raises
            problem = first_line(error)
        if problem is None:
            return kernel, problems
        problems.append(f"{kernel} attention is not used: {problem}")
    return None, problems


def _with_gradients(model: Any, states: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    def projection(computed: torch.Tensor) -> torch.Tensor:
        direction = torch.randn(computed.shape, generator=torch.Generator().manual_seed(0)).to(computed)
        return (computed * direction).sum()

    return gradient_at_embeddings(model, states, projection)


def own_states(model: Any, rows: Sequence[TokenRow]) -> tuple[torch.Tensor, LogitShape] | None:
    """Return the model's own hidden states [N, h] before supervised tokens, and what it does to the output of its head.

    The decoder's output is scaled up before the model's head, every other token so far that a cap leaves nothing but its bound.

    Returns:
        None if the logits are neither scaled nor capped outputs of the head.
    """
    decoder, head = decoder_and_head(model)
    batch = padded_inputs(rows, next(model.parameters()).device)
    row, column = batch["attention_mask"].nonzero()[::_LOGIT_STRIDE].T  # whole logits would be large
    states: dict[str, torch.Tensor] = {}

    def scale_up(module: Any, inputs: Any, output: Any) -> Any:
        own = output.last_hidden_state
        sizes = torch.full_like(own[:1, :, :1], _CHECK_LOGIT_SIZE)
        sizes[:, 1::2] = _SATURATING_LOGIT_SIZE
        output.last_hidden_state = own * (sizes / head(own[row, column]).abs().max().clamp_min(1e-6))
        states["own"], states["scaled"] = own, output.last_hidden_state
        return output

    hook = decoder.register_forward_hook(scale_up)
    try:
        logits = model(**batch).logits[row, column]
    finally:
        hook.remove()
    z, large = head(states["scaled"][row, column]), column % 2 == 1
    shape = _logit_shape(z[~large].double(), logits[~large].double(), z[large].double(), logits[large].double())
    if any(distance(shape.of(z[part]), logits[part]) > 1e-2 for part in (large, ~large)):
        return None
    places = [torch.from_numpy(one.places - 1).to(logits.device) for one in rows]
    return torch.cat([states["own"][i][at] for i, at in enumerate(places)]), shape


def _logit_shape(
    z: torch.Tensor, logits: torch.Tensor, large_z: torch.Tensor, large_logits: torch.Tensor
) -> LogitShape:
    """Fit scale and cap to outputs of the head and the model's logits of moderate and of saturating size, float64 each."""

    def slope(y: torch.Tensor, x: torch.Tensor) -> float:
        ratio = float((y * x).sum() / (x * x).sum().clamp_min(1e-30))
        return 1.0 if abs(ratio - 1) < 1e-4 else ratio

    linear = LogitShape(slope(large_logits, large_z))
    if distance(linear.of(large_z), large_logits) < 1e-2:
        return linear
    cap = float(large_logits.abs().max())
    fitted = logits.abs() < 0.9 * cap
    return LogitShape(slope((logits[fitted] / cap).atanh() * cap, z[fitted]), cap)


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return |a - b| / |b| in the Frobenius norm; infinity instead of NaN."""
    ratio = float((a.float() - b.float()).norm() / b.float().norm().clamp_min(1e-30))
    return ratio if ratio == ratio else float("inf")


def is_single(x: Any) -> bool:
    """Whether a tensor or a model is in float32 or wider, and no autocast narrows it."""
    return x.dtype in (torch.float32, torch.float64) and not torch.is_autocast_enabled(x.device.type)


def apart(computed: torch.Tensor, own: torch.Tensor, name: str = "hidden states") -> str | None:
    """Return by how much states differ from the model's own beyond rounding; None if they agree."""
    bound = (1e-4 if own.device.type == "cpu" else 5e-3) if is_single(own) else 0.1  # float32 may be TF32 on CUDA
    ratio = distance(computed, own) if computed.shape == own.shape else float("inf")
    return None if ratio <= bound else f"{name} differ from the model's own by {ratio:.1e} relative"
