"""State of a training run between its steps, shared by the loop, the other ranks and the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from quintain.records.hyperparameters import TrainingConfig
from quintain.records.protocols import Reporter
from quintain.trainers.data.streams import Example
from quintain.trainers.engine.forward import Engine
from quintain.trainers.engine.machine import Machine
from quintain.trainers.loop.ewc import WeightPenalty
from quintain.trainers.loop.meter import Meter
from quintain.trainers.loop.objectives import Objective
from quintain.trainers.loop.passes import ValidationSums
from quintain.trainers.loop.schedule import ExampleSource
from quintain.trainers.loop.sinks import Sinks
from quintain.trainers.loop.synced_reference import SyncedReference
from quintain.trainers.losses.loss_output import StepTotals

PARTS = ("held_out_sum", "held_out_count")
"""Suffixes under which the tally keeps sum and count of a validation figure of the final weights."""

Sampler = Callable[[int], dict[str, float | None]]
"""Samples from the model on its probes after a step, and returns figures of the samples."""


class OtherRanks(Protocol):
    """The other processes that share the passes (`distributed.ranks.Ranks`)."""

    def on_all_ranks(self, name: str, *arguments: Any) -> AbstractContextManager[None]:
        """Run a method of `distributed.member.Member` on the other ranks while the body runs on this one."""

    def backward(self, run: Run, examples: Sequence[Example], totals: StepTotals, meter: Meter) -> float:
        """Sum the gradients of a step over all ranks; return the loss."""

    def held_out(self, run: Run, totals: StepTotals) -> ValidationSums:
        """Return loss and figures of the validation examples, summed over all ranks."""


@dataclass
class Run:
    """A training run between its steps."""

    config: TrainingConfig
    engine: Engine
    machine: Machine
    optimizer: torch.optim.Optimizer
    scale: torch.amp.GradScaler
    """Scales the loss where training runs in float16."""
    source: ExampleSource
    objective: Objective
    validation: list[Example]
    checkpoints: Path
    identity: str
    """Hash of everything that a checkpoint must share with the run that loads it."""
    reporter: Reporter
    sinks: Sinks
    penalty: WeightPenalty | None = None
    """EWC's penalty on the weights; None: off."""
    tokenizer: Any = None
    """Saved beside the weights of checkpoints."""
    sample: Sampler | None = None
    reference: SyncedReference | None = None
    """The reference of the steps, where it follows the policy; else the examples have their reference log-probs."""
    ranks: OtherRanks | None = None
    """Other processes that share the passes; None for a run of one process."""
    step: int = 0
    tally: dict[str, float] = field(default_factory=dict)
    saved_at: int = -1
    resumed_from: int | None = None
    ended_early: str | None = None
    """Why the run ended before its last step, unless it was stopped."""

    @property
    def total(self) -> int:
        """Optimizer steps of the whole run."""
        return self.source.total_steps

    def on_all_ranks(self, name: str, *arguments: Any) -> AbstractContextManager[None]:
        """Run a method of `distributed.member.Member` on the other ranks of a sharded run while the body runs here."""
        return self.ranks.on_all_ranks(name, *arguments) if self.ranks else nullcontext()
