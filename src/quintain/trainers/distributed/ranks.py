"""Data-parallel training: several processes share the forward and backward passes of a run.

Rank 0 is the worker. It alone draws examples, acts, decides, reports, takes optimizer steps and writes files. The other
ranks hold the model and execute commands: they copy rank 0's weights, compute their micro-batches and add their gradients
to rank 0's. So ranks cannot disagree, and a rank without a command waits without a time limit. Commands and answers are
Python objects in pipes; weights and gradients go through torch.distributed (`collectives`). A pipe ends with either side.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

import torch

from quintain.errors import InvalidInput, TrainingFailed
from quintain.records.hyperparameters import TrainingConfig
from quintain.records.job import TrainSpec
from quintain.records.seeds import stable_seed
from quintain.trainers.data.streams import Example
from quintain.trainers.distributed.collectives import RankPlace, join, leave, open_store, share_weights, sum_gradients
from quintain.trainers.distributed.member import Command, RankBatches, RankSetup
from quintain.trainers.distributed.rendezvous import Listener, address, key_file
from quintain.trainers.distributed.sharding import shard
from quintain.trainers.engine.forward import Engine
from quintain.trainers.engine.machine import Machine
from quintain.trainers.engine.packing import computed_tokens, micro_batches
from quintain.trainers.loop.checkpoint_weights import trainable
from quintain.trainers.loop.meter import Meter
from quintain.trainers.loop.passes import ValidationSums, backward, held_out
from quintain.trainers.loop.precision import Format
from quintain.trainers.loop.run import Run
from quintain.trainers.losses.loss_output import StepTotals
from quintain.trainers.models import pick_device

_GRACE_S = 5.0
"""Seconds that a rank has to exit before it is killed."""

_PROGRAM = """
import os, signal, sys, threading
from multiprocessing.connection import Connection
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
def end_with_rank_0():
    while os.read(0, 1):
        pass
    os._exit(1)
threading.Thread(target=end_with_rank_0, daemon=True).start()
from quintain.trainers.distributed.member import serve
serve(Connection(int(sys.argv[1])))
"""
"""Code of a rank process. Only rank 0 stops it: a signal to the process group must not end a step half way."""


class Ranks:
    """Rank 0's handle on the other ranks; as a context manager it leaves no process behind."""

    def __init__(self, spec: TrainSpec, directory: Path) -> None:
        """Start the processes of this machine, which import while rank 0 loads its model.

        Args:
            spec: The job.
            directory: The job's folder.

        Raises:
            InvalidInput: More processes than GPUs, or more than one on MPS (`too_many_processes`); a sharded model in an
                environment (`no_whole_model`).
            Unavailable: The rendezvous address is in use.
        """
        self.size = spec.config.processes
        self._sharded = spec.config.sharding == "full"
        device = pick_device()
        self._machines = spec.config.machines
        _require_devices(self.size // self._machines, device)
        if self._sharded:
            _require_offline(spec)
        self._spec = spec
        self._cpu = device.type == "cpu"
        self._file = directory / f".ranks-{os.getpid()}"
        self._threads = torch.get_num_threads()
        self._processes: list[subprocess.Popen[bytes]] = []
        """Ranks of this machine; the first pipes belong to them, in order."""
        self._pipes: list[Connection] = []
        directory.mkdir(parents=True, exist_ok=True)
        self._file.unlink(missing_ok=True)
        self._listener = None
        if self._machines > 1:
            key = key_file(Path(spec.cache_dir) if spec.cache_dir else directory)
            self._listener = Listener(address(str(spec.config.rendezvous), key))
        for _ in range(1, self.size // self._machines):
            process, pipe = _start(directory)
            self._processes.append(process)
            self._pipes.append(pipe)

    @property
    def threads(self) -> int:
        """CPU threads of each rank: an equal share of those of a single process."""
        return max(self._threads * self._machines // self.size, 1) if self._cpu else self._threads

    def machine(self, machine: Machine) -> Machine:
        """Return the machine with the matmul rate of all ranks together, scaled from that of one process."""
        if machine.matmul_flops is None:
            return machine
        return machine._replace(matmul_flops=machine.matmul_flops * self.size * self.threads / self._threads)

    def initialize_ranks(self, objective: TrainingConfig, number_format: Format) -> None:
        """Send every rank its setup; ranks load their model while rank 0 goes on.

        Args:
            objective: Settings of the objective, completed from the data.
            number_format: Number format of the passes, as rank 0 chose it.

        Raises:
            TrainingFailed: A process has ended (`process_lost`), or one of another machine has not connected in time
                (`machines_missing`).
        """
        self._threads = torch.get_num_threads()
        place = RankPlace(0, self.size, self._machines, self._file)
        if self._listener is not None:
            self._pipes += self._listener.accept(self.size - 1 - len(self._processes))
            place = place._replace(store=(self._listener.host, 0))
        self._store = open_store(place)
        self._place = place._replace(store=(self._listener.host, self._store.port)) if self._listener else place
        shared = self.threads, torch.get_float32_matmul_precision(), number_format
        self._send(
            [RankSetup(self._spec, objective, self._place._replace(rank=rank), *shared) for rank in range(1, self.size)]
        )

    def join(self, engine: Engine) -> Engine:
        """Wait until every rank has loaded its model, and connect them.

        Returns:
            The engine; with sharding, over this rank's shard of the model.

        Raises:
            TrainingFailed: A process has ended (`process_lost`) or failed.
        """
        self._answers()
        torch.set_num_threads(self.threads)
        with self._on_all("join"):
            join(self._place, self._store, cpu=self._cpu)
            if self._sharded:
                share_weights(list(trainable(engine.model).values()))  # new adapters begin at random
                engine = shard(engine)
        return engine

    def on_all_ranks(self, name: str, *arguments: Any) -> AbstractContextManager[None]:
        """Run a method of `Member` on the other ranks while the body runs on this one; without sharding, the body alone.

        Args:
            name: Method of `Member`.
            arguments: Arguments of the method.

        Raises:
            TrainingFailed: A process has ended (`process_lost`) or failed.
        """
        return self._on_all(name, *arguments) if self._sharded else nullcontext()

    def backward(self, run: Run, examples: Sequence[Example], totals: StepTotals, meter: Meter) -> float:
        """Sum the gradients of a step over all ranks into rank 0's parameters; return the loss.

        Dropout is seeded by (seed, step, rank).

        Raises:
            TrainingFailed: A process has ended (`process_lost`) or failed.
        """
        own, *others = self._batches_by_rank(run, examples, totals)
        parameters = list(trainable(run.engine.model).values())
        self._share_weights(parameters)
        with self._passes("backward", others) as answers:
            torch.manual_seed(own.seed)
            loss = backward(run.engine, run.objective, run.scale, own.batches, totals, meter)
        touched = [parameter.grad is not None for parameter in parameters]
        for answer in answers:
            loss += answer.loss
            meter.sums.include(answer.sums)
            touched = [a or b for a, b in zip(touched, answer.touched, strict=True)]
        if not self._sharded:
            with self._on_all("give_gradients"):
                sum_gradients(parameters)
            for parameter, is_touched in zip(parameters, touched, strict=True):
                parameter.grad = parameter.grad if is_touched else None
        return loss

    def held_out(self, run: Run, totals: StepTotals) -> ValidationSums:
        """Return loss and figures of the validation examples under the current weights, summed over all ranks."""
        own, *others = self._batches_by_rank(run, run.validation, totals)
        self._share_weights(list(trainable(run.engine.model).values()))
        with self._passes("held_out", others) as answers:
            sums = held_out(run.engine, run.objective, own.batches, totals)
        for answer in answers:
            sums = sums.plus(answer)
        return sums

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """End every rank: by closing its pipe, or by killing it where the run has failed."""
        if self._listener is not None:
            self._listener.close()
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
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
        self._store = None
        self._file.unlink(missing_ok=True)

    def _batches_by_rank(self, run: Run, examples: Sequence[Example], totals: StepTotals) -> list[RankBatches]:
        """Assign micro-batches to ranks; with sharding, every rank gets the same number of passes."""
        dealt = deal(examples, run.config.batch_tokens, self.size, share=run.engine.shares)
        if self._sharded:
            most = max(map(len, dealt))
            dealt = [[*batches, *[[]] * (most - len(batches))] for batches in dealt]
        settings, scale = dict(run.objective.settings), run.scale.state_dict()
        return [
            RankBatches(batches, totals, settings, scale, stable_seed(self._spec.seed, "dropout", run.step, rank))
            for rank, batches in enumerate(dealt)
        ]

    def _share_weights(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        if not self._sharded:
            with self._on_all("take_weights"):
                share_weights(parameters)

    @contextmanager
    def _passes(self, name: str, others: Sequence[RankBatches]) -> Iterator[list[Any]]:
        """Run passes on the other ranks while the body runs here; the yielded list contains their answers afterwards."""
        answers: list[Any] = []
        self._send([Command(name, (work,)) for work in others])
        with self._together() if self._sharded else nullcontext():
            yield answers
        answers += self._answers()

    @contextmanager
    def _on_all(self, name: str, *arguments: Any) -> Iterator[None]:
        """Run a method of `Member` on the other ranks while the body runs here."""
        self._send([Command(name, arguments)] * (self.size - 1))
        with self._together():
            yield
        self._answers()

    def _send(self, messages: Sequence[object]) -> None:
        for rank, (pipe, message) in enumerate(zip(self._pipes, messages, strict=True), start=1):
            if rank <= len(self._processes) and self._processes[rank - 1].poll() is not None:
                raise self._lost(rank)
            try:
                pipe.send(message)
            except OSError:
                raise self._lost(rank) from None

    def _answers(self) -> list[Any]:
        """Receive one answer from every other rank."""
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
        """Translate the failure of a collective, which fails on all ranks when one is gone."""
        try:
            yield
        except RuntimeError as error:
            ended = [rank for rank in range(1, self.size) if self._ended(rank) is not None or self._has_answered(rank)]
            if not ended:
                raise TrainingFailed(
                    f"the {self.size} processes lost their connection: {error}; resume the job from the newest "
                    "checkpoint; if it happens again, train with processes=1",
                    code="process_lost",
                ) from error
            raise self._lost(min(ended, key=lambda rank: self._ended(rank) or 0)) from error  # a killed rank first

    def _has_answered(self, rank: int) -> bool:
        """Whether a rank has answered, or closed its pipe, while it should compute."""
        try:
            return self._pipes[rank - 1].poll(1.0)
        except OSError:
            return True

    def _ended(self, rank: int) -> int | None:
        """Return the exit status of a rank of this machine, waiting for a second; None while it runs."""
        if rank > len(self._processes):
            return None
        try:
            return self._processes[rank - 1].wait(1.0)
        except subprocess.TimeoutExpired:
            return None

    def _lost(self, rank: int) -> Exception:
        """Return why a rank no longer answers: the error that it sent, or how its process ended."""
        with suppress(EOFError, OSError):
            while self._pipes[rank - 1].poll():
                if isinstance(answer := self._pipes[rank - 1].recv(), Exception):
                    return answer
        status = self._ended(rank)
        if status is None:
            how = "has closed its connection"
        else:
            how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return TrainingFailed(
            f"process {rank + 1} of {self.size} {how}; resume the job from the newest checkpoint; if memory ran "
            f"out, train with fewer than {self.size} processes or a smaller batch_tokens",
            code="process_lost",
        )


def deal(examples: Sequence[Example], batch_tokens: int, size: int, *, share: bool) -> list[list[list[Example]]]:
    """Assign micro-batches of the examples to `size` ranks, balanced by computed tokens.

    The budget of a micro-batch is at most an equal share of the step, so that small steps are shared too. The largest
    micro-batch goes first, each to the rank with the fewest tokens (Graham 1969, longest processing time first).
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


def _require_devices(processes: int, device: torch.device) -> None:
    bound = {"cuda": torch.cuda.device_count(), "mps": 1}.get(device.type, processes)
    if processes > bound:
        raise InvalidInput(
            f"processes is {processes}, but each needs a device of its own and this machine has {bound} of {device.type}; "
            f"set processes to {bound} or less",
            code="too_many_processes",
        )


def _require_offline(spec: TrainSpec) -> None:
    if spec.environment is not None:
        raise InvalidInput(
            f"expected sharding 'none' for an agent that is to act in {spec.environment!r}, got 'full': no process has the "
            "whole model; set sharding to 'none', or record rollouts first and train on them",
            code="no_whole_model",
        )


def _start(directory: Path) -> tuple[subprocess.Popen[bytes], Connection]:
    """Start a rank in this process group; return it with its pipe. The rank exits when its stdin closes."""
    ours, theirs = Pipe()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, str(theirs.fileno()), str(directory)],
            stdin=subprocess.PIPE,
            pass_fds=(theirs.fileno(),),
        )
    return process, ours
