"""Data-parallel training: several processes of one machine share the forward and backward passes of a run.

Rank 0 is the worker itself and the only one that has the run: it draws the examples, plays, decides, reports, takes the
optimizer steps and writes. The other ranks hold the model and serve: for each order they take over rank 0's weights, pass
through the micro-batches dealt to them and add their gradients to rank 0's. So ranks cannot disagree, and one without an
order waits as long as it takes. Orders and answers are Python objects in pipes; weights and gradients go through
torch.distributed (trainers/collectives.py). A pipe is closed by the end of either side.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, NamedTuple

import torch

from quintain.errors import InvalidInput, QuintainError, TrainingFailed
from quintain.records.job import TrainSpec
from quintain.records.seeds import stable_seed
from quintain.records.training import TrainingConfig
from quintain.trainers.checkpoints import trainable
from quintain.trainers.collectives import join, leave, share_weights, sum_gradients
from quintain.trainers.engine.forward import Engine
from quintain.trainers.engine.machine import Machine, tune_allocator
from quintain.trainers.engine.packing import computed_tokens, micro_batches
from quintain.trainers.loop import HeldOut, Run, backward, held_out
from quintain.trainers.losses.share import Totals
from quintain.trainers.meter import Meter, Sums
from quintain.trainers.models import load_model, pick_device
from quintain.trainers.objectives import objective_of
from quintain.trainers.precision import LossScale, choose
from quintain.trainers.streams import Example

logger = logging.getLogger(__name__)

_GRACE_S = 5.0
"""What a rank that was told to end may take before it is killed."""

_PROGRAM = """
import signal, sys
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
from quintain.trainers.parallel import serve
serve(int(sys.argv[1]))
"""
"""Of a rank. Rank 0 says when to stop: a signal to the whole group must not end a step half way."""


@dataclass(frozen=True)
class Seat:
    """What a rank needs to take its part."""

    spec: TrainSpec
    objective: TrainingConfig
    """The settings of the objective, where they depend on the data."""
    rank: int
    size: int
    store: Path
    """File over which the ranks find each other."""
    threads: int
    matmul_precision: str


@dataclass(frozen=True)
class Order:
    """What a rank is to do: gradients of a step's share, or without `scale` the loss of held-out examples."""

    batches: list[list[Example]]
    totals: Totals
    settings: dict[str, Any]
    """Of the objective, as they are in this step."""
    scale: dict[str, float] | None = None
    """State of the loss scale."""
    seed: int = 0
    """Of dropout."""


class Gradients(NamedTuple):
    """What a rank answers when its gradients are there."""

    loss: float
    sums: Sums
    touched: list[bool]
    """Which parameters have a gradient: one that none has must stay without, or AdamW would move it."""


class Ranks:
    """The other ranks, as rank 0 sees them; a context manager that leaves no process behind."""

    def __init__(self, spec: TrainSpec, directory: Path) -> None:
        """Start the processes; they import while rank 0 loads its model.

        Args:
            spec: The job.
            directory: The job's folder.

        Raises:
            InvalidInput: more processes than GPUs, or more than one on MPS (`too_many_processes`).
        """
        self.size = spec.config.processes
        device = pick_device()
        _require_devices(self.size, device)
        self._spec = spec
        self._cpu = device.type == "cpu"
        self._store = directory / f".ranks-{os.getpid()}"
        self._threads = torch.get_num_threads()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._pipes: list[Connection] = []
        directory.mkdir(parents=True, exist_ok=True)
        self._store.unlink(missing_ok=True)
        for _ in range(1, self.size):
            process, pipe = _start(directory)
            self._processes.append(process)
            self._pipes.append(pipe)

    @property
    def threads(self) -> int:
        """CPU threads of each rank: an equal share of what one process would take."""
        return max(self._threads // self.size, 1) if self._cpu else self._threads

    def machine(self, machine: Machine) -> Machine:
        """The same machine with the rate that all ranks have together, as far as one process could measure it."""
        if machine.matmul_flops is None:
            return machine
        return machine._replace(matmul_flops=machine.matmul_flops * self.size * self.threads / self._threads)

    def seat(self, objective: TrainingConfig) -> None:
        """Let the ranks load their model; they do it while rank 0 goes on."""
        self._threads = torch.get_num_threads()
        shared = self._store, self.threads, torch.get_float32_matmul_precision()
        self._send([Seat(self._spec, objective, rank, self.size, *shared) for rank in range(1, self.size)])

    def join(self) -> None:
        """Wait until every rank has its model, and connect them.

        Raises:
            TrainingFailed: a process has ended (`process_lost`), or could not do its part.
        """
        self._answers()
        torch.set_num_threads(self.threads)
        self._send([None] * (self.size - 1))
        with self._together():
            join(0, self.size, self._store, cpu=self._cpu)

    def backward(self, run: Run, examples: Sequence[Example], totals: Totals, meter: Meter) -> float:
        """Gradients of a step's loss, summed over all ranks in rank 0's parameters; returns the loss.

        Dropout draws from a stream of its own in each (seed, step, rank).

        Raises:
            TrainingFailed: a process has ended (`process_lost`), or could not do its part.
        """
        dealt = deal(examples, run.config.batch_tokens, self.size, share=run.engine.shares)
        seeds = [stable_seed(self._spec.seed, "dropout", run.step, rank) for rank in range(self.size)]
        settings, scale = dict(run.objective.settings), run.scale.state()
        parameters = list(trainable(run.engine.model).values())
        others = range(1, self.size)
        self._order(parameters, [Order(dealt[rank], totals, settings, scale, seeds[rank]) for rank in others])
        torch.manual_seed(seeds[0])
        loss = backward(run.engine, run.objective, run.scale, dealt[0], totals, meter)
        touched = _touched(parameters)
        for answer in self._answers():
            loss += answer.loss
            meter.sums.include(answer.sums)
            touched = [a or b for a, b in zip(touched, answer.touched, strict=True)]
        self._send([None] * (self.size - 1))
        with self._together():
            sum_gradients(parameters)
        for parameter, is_touched in zip(parameters, touched, strict=True):
            parameter.grad = parameter.grad if is_touched else None
        return loss

    def held_out(self, run: Run, totals: Totals) -> HeldOut:
        """Loss of the validation examples under the weights as they are, summed over all ranks."""
        dealt = deal(run.validation, run.config.batch_tokens, self.size, share=run.engine.shares)
        settings = dict(run.objective.settings)
        parameters = list(trainable(run.engine.model).values())
        self._order(parameters, [Order(batches, totals, settings) for batches in dealt[1:]])
        parts = [held_out(run.engine, run.objective, dealt[0], totals), *self._answers()]
        loss, entropy, count = (sum(figures) for figures in zip(*parts, strict=True))
        return HeldOut(loss, entropy, int(count))

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """End every rank: by closing its pipe, and at once where the run has failed."""
        for process, pipe in zip(self._processes, self._pipes, strict=True):
            pipe.close()
            if kind is not None:
                process.kill()
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_S)
            process.kill()
            process.wait()
            if process.stdin:
                process.stdin.close()
        leave()
        torch.set_num_threads(self._threads)
        self._store.unlink(missing_ok=True)

    def _order(self, parameters: Sequence[torch.nn.Parameter], orders: Sequence[Order]) -> None:
        """Send the orders and then the weights that they are for."""
        self._send(orders)
        with self._together():
            share_weights(parameters)

    def _send(self, messages: Sequence[object]) -> None:
        for rank, (pipe, message) in enumerate(zip(self._pipes, messages, strict=True), start=1):
            if self._processes[rank - 1].poll() is not None:
                raise self._lost(rank)
            try:
                pipe.send(message)
            except OSError:
                raise self._lost(rank) from None

    def _answers(self) -> list[Any]:
        """One answer of every rank."""
        answers = []
        for rank, pipe in enumerate(self._pipes, start=1):
            try:
                answer = pipe.recv()
            except (EOFError, OSError):
                raise self._lost(rank) from None
            if isinstance(answer, Exception):
                raise answer
            answers.append(answer)
        return answers

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Something that all ranks do at once; it fails in all of them when one is gone."""
        try:
            yield
        except RuntimeError as error:
            gone = [rank for rank in range(1, self.size) if (self._ended(rank) or 0) < 0]
            if not gone:
                raise TrainingFailed(
                    f"the {self.size} processes lost each other: {error}; resume_job goes on from the newest "
                    "checkpoint; if it happens again, start the training anew with processes=1",
                    code="process_lost",
                ) from error
            raise self._lost(gone[0]) from error

    def _ended(self, rank: int) -> int | None:
        """The exit status of a rank that is ending or has ended."""
        try:
            return self._processes[rank - 1].wait(1.0)
        except subprocess.TimeoutExpired:
            return None

    def _lost(self, rank: int) -> Exception:
        """Why a rank does not answer any more: the error that it told, or how it ended."""
        with suppress(EOFError, OSError):
            while self._pipes[rank - 1].poll():
                if isinstance(told := self._pipes[rank - 1].recv(), Exception):
                    return told
        status = self._ended(rank)
        if status is None:
            how = "has closed its pipe"
        else:
            how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return TrainingFailed(
            f"process {rank + 1} of {self.size} {how}; resume_job goes on from the newest checkpoint; where memory ran "
            f"out, start the training anew with fewer than {self.size} processes or a smaller batch_tokens",
            code="process_lost",
        )


def deal(examples: Sequence[Example], batch_tokens: int, size: int, *, share: bool) -> list[list[list[Example]]]:
    """For each of `size` ranks micro-batches of the examples, of about equal computed tokens in all.

    The budget of a micro-batch falls to an equal share of the step where that is less, so that small steps are shared too.
    The largest goes first, each to the rank with the least so far (Graham 1969, longest processing time first).
    """
    total = sum(computed_tokens(example.rows, share=share) for example in examples)
    batches = micro_batches(examples, max(min(batch_tokens, math.ceil(total / size)), 1), share=share)
    costs = [computed_tokens([row for e in batch for row in e.rows], share=share) for batch in batches]
    places: list[list[int]] = [[] for _ in range(size)]
    load = [0] * size
    for i in sorted(range(len(batches)), key=lambda i: -costs[i]):
        rank = load.index(min(load))
        places[rank].append(i)
        load[rank] += costs[i]
    return [[batches[i] for i in sorted(mine)] for mine in places]


def serve(descriptor: int) -> None:
    """The life of a rank beside rank 0: orders come in on `descriptor`, until the other end is closed."""
    threading.Thread(target=_end_with_rank_0, daemon=True).start()
    pipe = Connection(descriptor)
    try:
        seat: Seat = pipe.recv()
        member = _Member(seat)
        pipe.send(None)
        pipe.recv()
        join(seat.rank, seat.size, seat.store, cpu=member.engine.model.device.type == "cpu")
        while True:
            member.carry_out(pipe.recv(), pipe)
    except EOFError:
        leave()
    except Exception as error:  # rank 0 tells the user
        logger.exception("a process of the run failed")
        with suppress(OSError):
            pipe.send(_portable(error))


class _Member:
    """A rank beside rank 0: the model, and how the method learns."""

    def __init__(self, seat: Seat) -> None:
        config = seat.spec.config
        tune_allocator()
        torch.set_float32_matmul_precision(seat.matmul_precision)
        if torch.cuda.is_available():
            torch.cuda.set_device(seat.rank)
        model = load_model(seat.spec.agent.model, lora=config.lora, train=True).model
        torch.set_num_threads(seat.threads)
        number_format = choose(config.precision, model.device)
        self.engine = Engine.of(
            model,
            share_prefixes=config.share_prefixes,
            gradient_checkpointing=config.gradient_checkpointing,
            autocast=number_format.autocast,
        )
        self.objective = objective_of(seat.objective)
        self.scale = LossScale(model.device, enabled=number_format.scales_loss)
        self.parameters = list(trainable(model).values())

    def carry_out(self, order: Order, pipe: Connection) -> None:
        share_weights(self.parameters)
        self.objective.settings |= order.settings
        if order.scale is None:
            pipe.send(held_out(self.engine, self.objective, order.batches, order.totals))
            return
        torch.manual_seed(order.seed)
        self.scale.restore(order.scale)
        meter = Meter(self.engine, Machine(None, False, ()))
        loss = backward(self.engine, self.objective, self.scale, order.batches, order.totals, meter)
        pipe.send(Gradients(loss, meter.sums, _touched(self.parameters)))
        pipe.recv()  # every rank has its gradients
        sum_gradients(self.parameters)
        for parameter in self.parameters:
            parameter.grad = None


def _require_devices(processes: int, device: torch.device) -> None:
    bound = {"cuda": torch.cuda.device_count(), "mps": 1}.get(device.type, processes)
    if processes > bound:
        raise InvalidInput(
            f"processes is {processes}, but each needs a device of its own and this machine has {bound} of {device.type}; "
            f"set processes to {bound} or less",
            code="too_many_processes",
        )


def _start(directory: Path) -> tuple[subprocess.Popen[bytes], Connection]:
    """A process in this one's group, and the pipe to it. Its stdin is its lifeline: only we hold the other end."""
    ours, theirs = Pipe()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, str(theirs.fileno()), str(directory)],
            stdin=subprocess.PIPE,
            pass_fds=(theirs.fileno(),),
        )
    return process, ours


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


def _touched(parameters: Sequence[torch.nn.Parameter]) -> list[bool]:
    return [parameter.grad is not None for parameter in parameters]
