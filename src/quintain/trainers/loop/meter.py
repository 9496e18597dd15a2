"""Metrics of an optimizer step: tokens per second, shares of tokens, memory, fraction of the machine's matmul rate."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from quintain.trainers.data.streams import TokenRow
from quintain.trainers.engine.forward import Engine
from quintain.trainers.engine.machine import Machine, peak_memory_mb


@dataclass
class Sums:
    """Sums over the forward passes of a step and over the ranks."""

    logical_tokens: int = 0
    computed_tokens: int = 0
    supervised_tokens: int = 0
    flops: float = 0.0
    means: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Metrics that are means: sum and count."""

    def add(self, name: str, total: float, count: float) -> None:
        """Add observations to a mean."""
        before, n = self.means.get(name, (0.0, 0.0))
        self.means[name] = (before + total, n + count)

    def include(self, other: Sums) -> None:
        """Add the sums of another rank."""
        self.logical_tokens += other.logical_tokens
        self.computed_tokens += other.computed_tokens
        self.supervised_tokens += other.supervised_tokens
        self.flops += other.flops
        for name, (total, count) in other.means.items():
            self.add(name, total, count)


class Meter:
    """Metrics of one optimizer step."""

    def __init__(self, engine: Engine, machine: Machine) -> None:
        self._engine, self._machine = engine, machine
        self._began = self._seconds = 0.0
        self.sums = Sums()

    def begin(self) -> None:
        """Start the clock, once the examples of the step are known."""
        self._began = time.perf_counter()

    def end(self) -> None:
        """Stop the clock, once the optimizer has taken its step."""
        self._seconds = time.perf_counter() - self._began

    def count(self, rows: Sequence[TokenRow], *, head: bool = True) -> None:
        """Count the rows of a forward pass, with the product of the head or without."""
        cost = self._engine.cost(rows, head=head)
        self.sums.include(Sums(**cost._asdict()))

    def metrics(self) -> dict[str, float | None]:
        """Return the metrics of the step.

        `observation_share` is the share of tokens without loss. `sharing_saved` is the share of tokens that were not computed:
        shared prefixes, and what follows the last supervised token. `matmul_fraction` is useful arithmetic, with shared tokens
        counted in each row, divided by the measured matmul rate.
        """
        sums, rate = self.sums, self._machine.matmul_flops
        means = {name: total / n if n else None for name, (total, n) in sums.means.items()}
        return {
            **means,
            "supervised_tokens_per_s": sums.supervised_tokens / self._seconds,
            "tokens_per_s": sums.logical_tokens / self._seconds,
            "observation_share": 1 - sums.supervised_tokens / sums.logical_tokens,
            "sharing_saved": 1 - sums.computed_tokens / sums.logical_tokens,
            "peak_memory_mb": peak_memory_mb(self._engine.model.device),
            "matmul_fraction": sums.flops / self._seconds / rate if rate else None,
        }
