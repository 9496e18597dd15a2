"""A rank other than 0: it keeps the model, or a shard of it, and executes rank 0's commands (`ranks`)."""

from __future__ import annotations

import logging
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
from quintain.trainers.engine.embedding_noise import noise_of
from quintain.trainers.engine.forward import Engine
from quintain.trainers.engine.machine import Machine, tune_allocator
from quintain.trainers.freezing import freeze_layers
from quintain.trainers.gguf_copies import keep_copies
from quintain.trainers.loop.checkpoint_weights import trainable
from quintain.trainers.loop.checkpoints import load_best, load_checkpoint, optimizer_state, weights_of
from quintain.trainers.loop.meter import Meter, Sums
from quintain.trainers.loop.objectives import objective_of
from quintain.trainers.loop.optimizer import adamw, clip, update
from quintain.trainers.loop.passes import ValidationSums, backward, held_out
from quintain.trainers.loop.precision import Format, hold_base, loss_scale
from quintain.trainers.losses.loss_output import StepTotals
from quintain.trainers.models import load_model
from quintain.trainers.value_head import has_own_critic, heads_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RankSetup:
    """Everything that a rank needs to start."""

    spec: TrainSpec
    objective: TrainingConfig
    """Settings of the objective, completed from the data."""
    place: RankPlace
    threads: int
    matmul_precision: str
    number_format: Format


@dataclass(frozen=True)
class RankBatches:
    """Micro-batches of one rank in a step or a validation."""

    batches: list[list[Example]]
    totals: StepTotals
    settings: dict[str, Any]
    """Settings of the objective in this step."""
    scale: dict[str, float]
    """State of the loss scale."""
    seed: int
    """Seed of dropout."""


class Gradients(NamedTuple):
    """Answer of a rank to `backward`."""

    loss: float
    sums: Sums
    touched: list[bool]
    """Which parameters have a gradient. One without a gradient on any rank must stay so, or AdamW would move it."""


class Command(NamedTuple):
    """A method of `Member` and its arguments; the rank answers with its return value."""

    name: str
    arguments: tuple[Any, ...] = ()


def serve(pipe: Connection) -> None:
    """Execute commands from `pipe` until its other end is closed."""
    try:
        member = Member(pipe.recv())
        pipe.send(None)
        while True:
            order: Command = pipe.recv()
            pipe.send(getattr(member, order.name)(*order.arguments))
    except (EOFError, ConnectionError):
        leave()
    except Exception as error:  # rank 0 reports it
        logger.exception("a process of the run failed")
        with suppress(OSError):
            pipe.send(_portable(error))


class Member:
    """Model, engine and objective of a rank; rank 0 calls its public methods by name."""

    def __init__(self, setup: RankSetup) -> None:
        self._setup, self._config = setup, setup.spec.config
        tune_allocator(keep=self._config.sharding == "none")
        torch.set_float32_matmul_precision(setup.matmul_precision)
        if torch.cuda.is_available():
            torch.cuda.set_device(setup.place.rank % setup.place.local_size)
        if (cache := setup.spec.cache_dir) is not None and Path(cache).is_dir():  # of this machine, or shared with it
            keep_copies(Path(cache) / "models")
        lora, heads = self._config.lora, heads_of(self._config)
        own = has_own_critic(self._config)
        self._model = load_model(setup.spec.start_model, lora=lora, train=True, heads=heads, own_critic=own).model
        freeze_layers(self._model, self._config.frozen_layers)
        torch.set_num_threads(setup.threads)
        number_format = setup.number_format
        hold_base(self._model, self._config, number_format)
        self._engine = Engine.of(
            self._model,
            share_prefixes=self._config.share_prefixes,
            gradient_checkpointing=self._config.gradient_checkpointing,
            autocast=number_format.autocast,
            noise=noise_of(self._config),
        )
        self._objective = objective_of(setup.objective)
        self._scale = loss_scale(self._model.device, enabled=number_format.scales_loss)

    def join(self) -> None:
        """Connect to the other ranks, and keep one shard of the model where it is sharded."""
        join(self._setup.place, open_store(self._setup.place), cpu=self._model.device.type == "cpu")
        if self._config.sharding == "full":
            share_weights(list(trainable(self._model).values()))
            self._engine = shard(self._engine)
            self._optimizer = adamw(self._model, self._config)
        self._parameters = list(trainable(self._model).values())

    def take_weights(self) -> None:
        """Copy rank 0's weights."""
        share_weights(self._parameters)

    def backward(self, work: RankBatches) -> Gradients:
        """Compute the gradients of some micro-batches."""
        self._objective.settings |= work.settings
        torch.manual_seed(work.seed)
        self._scale.load_state_dict(work.scale)
        meter = Meter(self._engine, Machine(None, False, ()))
        loss = backward(self._engine, self._objective, self._scale, work.batches, work.totals, meter)
        return Gradients(loss, meter.sums, [parameter.grad is not None for parameter in self._parameters])

    def give_gradients(self) -> None:
        """Add the gradients to rank 0's."""
        sum_gradients(self._parameters)
        for parameter in self._parameters:
            parameter.grad = None

    def held_out(self, work: RankBatches) -> ValidationSums:
        """Compute loss and figures of some validation micro-batches."""
        self._objective.settings |= work.settings
        return held_out(self._engine, self._objective, work.batches, work.totals)

    def prepare(self, mismatched: Sequence[Example]) -> None:
        """With sharding: run the passes that the objective needs before a step."""
        self._objective.before_step(self._engine, mismatched)

    def clip(self) -> None:
        """With sharding: clip the gradient norm over all ranks."""
        clip(self._model, self._optimizer, self._scale, self._config.grad_clip)

    def update(self, rate: float) -> None:
        """With sharding: take the optimizer step."""
        update(self._optimizer, self._scale, rate)

    def gather_weights(self) -> None:
        """With sharding: send the trained weights to rank 0."""
        weights_of(self._model)

    def gather_state(self) -> None:
        """With sharding: send weights and optimizer state to rank 0, for a checkpoint."""
        weights_of(self._model)
        optimizer_state(self._optimizer)

    def gather_full_params(self) -> None:
        """With sharding: send the whole model to rank 0; this rank's model is unusable afterwards."""
        gather_full_params(self._model)

    def load(self, path: Path, identity: str) -> None:
        """With sharding: restore a checkpoint."""
        load_checkpoint(path, self._model, self._optimizer, identity=identity)

    def load_best(self, folder: Path, identity: str) -> None:
        """With sharding: load the weights of the lowest validation loss."""
        load_best(folder, self._model, identity=identity)


def _portable(error: Exception) -> Exception:
    if isinstance(error, QuintainError | MemoryError | torch.OutOfMemoryError):
        return error
    return TrainingFailed(
        f"a process of the run failed: {type(error).__name__}: {error}; read the traceback in the job's log",
        code="process_failed",
    )
