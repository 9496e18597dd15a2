"""What a step cost and how it went: tokens a second, shares, memory, and the fraction of the machine's matmul rate."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from quintain.trainers.engine.forward import Engine
from quintain.trainers.engine.machine import Machine, peak_memory_mb
from quintain.trainers.losses.grpo import k3
from quintain.trainers.streams import TokenRow


class Meter:
    """Figures of one optimizer step, added up over its forward passes."""

    def __init__(self, engine: Engine, machine: Machine) -> None:
        self._engine, self._machine = engine, machine
        self._sums: dict[str, tuple[float, float]] = {}
        self._began = self._seconds = 0.0
        self.logical_tokens = self.supervised_tokens = self._computed = 0
        self._flops = 0.0

    def begin(self) -> None:
        """The examples are there; what follows is training."""
        self._began = time.perf_counter()

    def end(self) -> None:
        """The optimizer has taken its step."""
        self._seconds = time.perf_counter() - self._began

    def count(self, rows: Sequence[TokenRow]) -> None:
        """Add the rows of a forward pass."""
        cost = self._engine.cost(rows)
        self.logical_tokens += cost.logical_tokens
        self.supervised_tokens += cost.supervised_tokens
        self._computed += cost.computed_tokens
        self._flops += cost.flops

    def add(self, name: str, total: float, count: float) -> None:
        """Add to a figure that is a mean."""
        before, n = self._sums.get(name, (0.0, 0.0))
        self._sums[name] = (before + total, n + count)

    def metrics(self) -> dict[str, float | None]:
        """The figures of the step.

        `observation_share`: tokens that carry no loss; `sharing_saved`: tokens of shared prefixes that were not computed
        again; `matmul_fraction`: useful arithmetic (shared tokens counted in each row) against the measured rate.
        """
        rate = self._machine.matmul_flops
        means = {name: total / n if n else None for name, (total, n) in self._sums.items()}
        return {
            **means,
            "supervised_tokens_per_s": self.supervised_tokens / self._seconds,
            "tokens_per_s": self.logical_tokens / self._seconds,
            "observation_share": 1 - self.supervised_tokens / self.logical_tokens,
            "sharing_saved": 1 - self._computed / self.logical_tokens,
            "peak_memory_mb": peak_memory_mb(self._engine.model.device),
            "matmul_fraction": self._flops / self._seconds / rate if rate else None,
        }


def kl_to_reference(logprobs: torch.Tensor, reference: torch.Tensor) -> tuple[float, int]:
    """Sum and count of the k3 estimate of the KL divergence to the reference; see `losses.grpo.k3`.

    On tokens that the model did not sample itself it tells how far the model has moved there, not the KL divergence.

    Args:
        logprobs: float32 [N], of the model.
        reference: float32 [N], of the reference model.
    """
    return float(k3(logprobs, reference).sum()), len(logprobs)
