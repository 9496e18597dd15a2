"""A training run between its steps: what the loop, the other ranks and the report know of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from quintain.records.hyperparameters import TrainingConfig
from quintain.records.seams import Reporter
from quintain.trainers.data.streams import Example
from quintain.trainers.engine.forward import Engine
from quintain.trainers.engine.machine import Machine
from quintain.trainers.loop.meter import Meter
from quintain.trainers.loop.objectives import Objective
from quintain.trainers.loop.passes import ValidationSums
from quintain.trainers.loop.precision import LossScale
from quintain.trainers.loop.schedule import ExampleSource
from quintain.trainers.loop.sinks import Sinks
from quintain.trainers.losses.loss_output import StepTotals

PARTS = ("held_out_sum", "held_out_count")
"""How the tally names the two numbers of a figure on the validation split, of the weights that the run ends with."""

Sampler = Callable[[int], dict[str, float | None]]
"""Lets the model write on its probes after a step and returns figures of what it wrote."""


class OtherRanks(Protocol):
    """The processes beside this one that share the passes (`parallel.ranks.Ranks`)."""

    def on_all_ranks(self, name: str, *arguments: Any) -> AbstractContextManager[None]:
        """What is done inside to a sharded model, the others do to their parts of it."""

    def backward(self, run: Run, examples: Sequence[Example], totals: StepTotals, meter: Meter) -> float:
        """Gradients of a step's loss, summed over all ranks; returns the loss."""

    def held_out(self, run: Run, totals: StepTotals) -> ValidationSums:
        """Figures of the validation examples, summed over all ranks."""


@dataclass
class Run:
    """A training run between its steps."""

    config: TrainingConfig
    engine: Engine
    machine: Machine
    optimizer: torch.optim.Optimizer
    scale: LossScale
    source: ExampleSource
    objective: Objective
    validation: list[Example]
    checkpoints: Path
    identity: str
    """Hash of all that a checkpoint must share with the run that loads it."""
    reporter: Reporter
    sinks: Sinks
    sample: Sampler | None = None
    ranks: OtherRanks | None = None
    """Other processes that share the passes; None: there are none."""
    step: int = 0
    tally: dict[str, float] = field(default_factory=dict)
    saved_at: int = -1
    resumed_from: int | None = None
    ended_early: str | None = None
    """Why the run ended before its last step, other than by a stop."""

    @property
    def total(self) -> int:
        """Optimizer steps of the whole run."""
        return self.source.total_steps

    def on_all_ranks(self, name: str, *arguments: Any) -> AbstractContextManager[None]:
        """What is done inside to a sharded model, the other ranks do to their parts of it: `parallel.member`."""
        return self.ranks.on_all_ranks(name, *arguments) if self.ranks else nullcontext()
