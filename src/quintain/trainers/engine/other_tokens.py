"""Log-probs of other tokens than the recorded ones at the supervised places: draws from the model."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from quintain.trainers.data.streams import TokenRow
from quintain.trainers.engine import head as output
from quintain.trainers.engine.forward import Engine


def drawn_nll(engine: Engine, rows: Sequence[TokenRow], generator: torch.Generator) -> torch.Tensor:
    """Return -sum(log p) of tokens drawn from the model at the supervised places, each behind the recorded text; a scalar."""

    def work() -> torch.Tensor:
        head, states, source, _ = engine._hidden(rows)
        target = output.drawn(head, states.detach(), source, generator)
        return output.nll(head, states, source, target, torch.ones_like(target, dtype=torch.float32))[0]

    drawn: torch.Tensor = engine._run(work)
    return drawn
