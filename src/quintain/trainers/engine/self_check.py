"""Reference of the engine's check at the start of a run: the model's own hidden states on a few short rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from quintain.trainers.data.streams import TokenRow, token_row
from quintain.trainers.engine.rotary import Rotary
from quintain.trainers.models import decoder_and_head

_CHECK_LOGIT_SIZE = 100.0
"""Size of the logits in the check of the head: caps show on large logits only."""


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


def probes(model: Any) -> list[TokenRow]:
    """Return short rows with two branches and one unrelated row, supervised in runs."""
    vocabulary = model.get_input_embeddings().weight.shape[0]
    draw = np.random.default_rng(0).integers(0, vocabulary, (4, 48)).tolist()
    ids = [draw[0], draw[0][:20] + draw[1][:20], draw[2][:17], draw[0][:20] + draw[1][:12] + draw[3][:9]]
    own_context = getattr(model.config.get_text_config(), "max_position_embeddings", None) or 48
    context = min([own_context, *(border.tokens for border in Rotary.of(model).borders)])
    runs = {*range(5, 9), *range(28, 36), *range(44, 48), 16}
    return [token_row(row[:context], [t in runs for t in range(len(row[:context]))]) for row in ids]


def own_states(model: Any, rows: Sequence[TokenRow]) -> torch.Tensor | None:
    """Return the model's own hidden states [N, h] before supervised tokens; None if its logits are not head(hidden states).

    The decoder's output is scaled up before the model's head, so that a cap on logits shows even if the logits are small.
    """
    decoder, head = decoder_and_head(model)
    states: dict[str, torch.Tensor] = {}

    def scale_up(module: Any, inputs: Any, output: Any) -> Any:
        own = output.last_hidden_state
        output.last_hidden_state = own * (_CHECK_LOGIT_SIZE / head(own).abs().max().clamp_min(1e-6))
        states["own"], states["scaled"] = own, output.last_hidden_state
        return output

    hook = decoder.register_forward_hook(scale_up)
    try:
        batch = padded_inputs(rows, next(model.parameters()).device)
        logits = model(**batch).logits
    finally:
        hook.remove()
    kept = batch["attention_mask"].bool()
    if distance(head(states["scaled"])[kept], logits[kept]) > 1e-2:
        return None
    places = [torch.from_numpy(row.places - 1).to(logits.device) for row in rows]
    return torch.cat([states["own"][i][at] for i, at in enumerate(places)])


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return |a - b| / |b| in the Frobenius norm; infinity instead of NaN."""
    ratio = float((a.float() - b.float()).norm() / b.float().norm().clamp_min(1e-30))
    return ratio if ratio == ratio else float("inf")
