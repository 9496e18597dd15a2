"""A rank beside rank 0: it holds the model, or a part of it, and carries out what rank 0 orders (trainers/distributed/ranks.py)."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch

from quintain.errors import QuintainError, TrainingFailed
from quintain.records.hyperparameters import TrainingConfig
from quintain.records.job import TrainSpec
from quintain.trainers.data.streams import Example
from quintain.trainers.distributed.collectives import RankPlace, join, leave, open_store, share_weights, sum_gradients
from quintain.trainers.distributed.sharding import gather_full_params, shard
from quintain.trainers.engine.forward import Engine
from quintain.trainers.engine.machine import Machine, tune_allocator
from quintain.trainers.loop.checkpoints import load_best, load_checkpoint, optimizer_state, trainable, weights_of
from quintain.trainers.loop.meter import Meter, Sums
from quintain.trainers.loop.objectives import objective_of
from quintain.trainers.loop.optimizer import adamw, clip, update
from quintain.trainers.loop.passes import ValidationSums, backward, held_out
from quintain.trainers.loop.precision import LossScale, choose
from quintain.trainers.losses.loss_output import StepTotals
from quintain.trainers.models import load_model
from quintain.trainers.value_head import heads_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RankSetup:
    """What a rank needs to take its part."""

    spec: TrainSpec
    objective: TrainingConfig
    """The settings of the objective, where they depend on the data."""
    place: RankPlace
    threads: int
    matmul_precision: str


@dataclass(frozen=True)
class RankBatches:
    """A rank's passes of a step or of a validation."""

    batches: list[list[Example]]
    totals: StepTotals
    settings: dict[str, Any]
    """Of the objective, as they are in this step."""
    scale: dict[str, float]
    """State of the loss scale."""
    seed: int
    """Of dropout."""


class Gradients(NamedTuple):
    """What a rank answers when its gradients are there."""

    loss: float
    sums: Sums
    touched: list[bool]
    """Which parameters have a gradient: one that none has must stay without, or AdamW would move it."""


class Command(NamedTuple):
    """What a rank is to do: a method of `Member` and its arguments; it answers with what that returns."""

    name: str
    arguments: tuple[Any, ...] = ()


def serve_local(descriptor: int) -> None:
    """The life of a process that rank 0 has started: orders come in on `descriptor`; it ends with its stdin."""
    threading.Thread(target=_end_with_rank_0, daemon=True).start()
    serve(Connection(descriptor))


def serve(pipe: Connection) -> None:
    """The life of a rank: orders come in on `pipe`, until the other end is closed."""
    try:
        member = Member(pipe.recv())
        pipe.send(None)
        while True:
            order: Command = pipe.recv()
            pipe.send(getattr(member, order.name)(*order.arguments))
    except (EOFError, ConnectionError):
        leave()
    except Exception as error:  # rank 0 tells the user
        logger.exception("a process of the run failed")
        with suppress(OSError):
            pipe.send(_portable(error))


class Member:
    """The model, and how the method learns; its public methods are what can be ordered."""

    def __init__(self, initialize_ranks: RankSetup) -> None:
        self._setup, self._config = initialize_ranks, initialize_ranks.spec.config
        tune_allocator(keep=self._config.sharding == "none")
        torch.set_float32_matmul_precision(initialize_ranks.matmul_precision)
        if torch.cuda.is_available():
            torch.cuda.set_device(initialize_ranks.place.rank % initialize_ranks.place.local_size)
        lora, heads = self._config.lora, heads_of(self._config)
        self._model = load_model(initialize_ranks.spec.agent.model, lora=lora, train=True, heads=heads).model
        torch.set_num_threads(initialize_ranks.threads)
        number_format = choose(self._config.precision, self._model.device)
        self._engine = Engine.of(
            self._model,
            share_prefixes=self._config.share_prefixes,
            gradient_checkpointing=self._config.gradient_checkpointing,
            autocast=number_format.autocast,
        )
        self._objective = objective_of(initialize_ranks.objective)
        self._scale = LossScale(self._model.device, enabled=number_format.scales_loss)

    def join(self) -> None:
        """Connect to the other ranks, and keep a part of the model where it is sharded."""
        join(self._setup.place, open_store(self._setup.place), cpu=self._model.device.type == "cpu")
        if self._config.sharding == "full":
            share_weights(list(trainable(self._model).values()))
            self._engine = shard(self._engine)
            self._optimizer = adamw(self._model, self._config)
        self._parameters = list(trainable(self._model).values())

    def take_weights(self) -> None:
        """Take over rank 0's weights."""
        share_weights(self._parameters)

    def backward(self, work: RankBatches) -> Gradients:
        """Gradients of the passes."""
        self._objective.settings |= work.settings
        torch.manual_seed(work.seed)
        self._scale.restore(work.scale)
        meter = Meter(self._engine, Machine(None, False, ()))
        loss = backward(self._engine, self._objective, self._scale, work.batches, work.totals, meter)
        return Gradients(loss, meter.sums, [parameter.grad is not None for parameter in self._parameters])

    def give_gradients(self) -> None:
        """Add the gradients to rank 0's."""
        sum_gradients(self._parameters)
        for parameter in self._parameters:
            parameter.grad = None

    def held_out(self, work: RankBatches) -> ValidationSums:
        """Loss of the passes."""
        self._objective.settings |= work.settings
        return held_out(self._engine, self._objective, work.batches, work.totals)

    def prepare(self, mismatched: Sequence[Example]) -> None:
        """Sharded: make the passes that the objective makes before a step."""
        self._objective.before_step(self._engine, mismatched)

    def clip(self) -> None:
        """Sharded: bound the norm that the gradients have over all ranks."""
        clip(self._model, self._optimizer, self._scale, self._config.grad_clip)

    def update(self, rate: float) -> None:
        """Sharded: take the optimizer step."""
        update(self._optimizer, self._scale, rate)

    def gather_weights(self) -> None:
        """Sharded: let rank 0 have the trained weights."""
        weights_of(self._model)

    def gather_state(self) -> None:
        """Sharded: let rank 0 have what a checkpoint holds."""
        weights_of(self._model)
        optimizer_state(self._optimizer)

    def gather_full_params(self) -> None:
        """Sharded: let rank 0 have the model; there is none here any more."""
        gather_full_params(self._model)

    def load(self, path: Path, identity: str) -> None:
        """Sharded: go back to where a checkpoint stands."""
        load_checkpoint(path, self._model, self._optimizer, identity=identity)

    def load_best(self, folder: Path, identity: str) -> None:
        """Sharded: take the weights of the lowest validation loss."""
        load_best(folder, self._model, identity=identity)


def _end_with_rank_0() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


def _portable(error: Exception) -> Exception:
    if isinstance(error, QuintainError | MemoryError | torch.OutOfMemoryError):
        return error
    return TrainingFailed(
        f"a process of the run failed: {type(error).__name__}: {error}; the job's log holds the traceback",
        code="process_failed",
    )
