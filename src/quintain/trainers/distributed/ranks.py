"""Data-parallel training: several processes of one machine share the forward and backward passes of a run.

Rank 0 is the worker itself and the only one that has the run: it draws the examples, plays, decides, reports, takes the
optimizer steps and writes. The other ranks hold the model and serve: for each order they take over rank 0's weights, pass
through the micro-batches dealt to them and add their gradients to rank 0's. So ranks cannot disagree, and one without an
order waits as long as it takes. Orders and answers are Python objects in pipes; weights and gradients go through
torch.distributed (trainers/distributed/collectives.py). A pipe is closed by the end of either side.
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
from quintain.trainers.loop.checkpoints import trainable
from quintain.trainers.loop.meter import Meter
from quintain.trainers.loop.passes import ValidationSums, backward, held_out
from quintain.trainers.loop.run import Run
from quintain.trainers.losses.loss_output import StepTotals
from quintain.trainers.models import pick_device

_GRACE_S = 5.0
"""What a rank that was told to end may take before it is killed."""

_PROGRAM = """
import signal, sys
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
from quintain.trainers.distributed.member import serve_beside
serve_beside(int(sys.argv[1]))
"""
"""Of a rank. Rank 0 says when to stop: a signal to the whole group must not end a step half way."""


class Ranks:
    """The other ranks, as rank 0 sees them; a context manager that leaves no process behind."""

    def __init__(self, spec: TrainSpec, directory: Path) -> None:
        """Start the processes; they import while rank 0 loads its model.

        Args:
            spec: The job.
            directory: The job's folder.

        Raises:
            InvalidInput: more processes than GPUs, or more than one on MPS (`too_many_processes`); a sharded model that
                is to act (`no_whole_model`).
            Unavailable: the address is taken.
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
        """Those of this machine; the first of the pipes are theirs."""
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
        """CPU threads of each rank: an equal share of what one process would take."""
        return max(self._threads * self._machines // self.size, 1) if self._cpu else self._threads

    def machine(self, machine: Machine) -> Machine:
        """The same machine with the rate that all ranks have together, as far as one process could measure it."""
        if machine.matmul_flops is None:
            return machine
        return machine._replace(matmul_flops=machine.matmul_flops * self.size * self.threads / self._threads)

    def initialize_ranks(self, objective: TrainingConfig) -> None:
        """Let the ranks load their model, those of other machines when they are there; they do it while rank 0 goes on.

        Raises:
            TrainingFailed: a process has ended (`process_lost`), or some of other machines have not come (`machines_missing`).
        """
        self._threads = torch.get_num_threads()
        place = RankPlace(0, self.size, self._machines, self._file)
        if self._listener is not None:
            self._pipes += self._listener.accept(self.size - 1 - len(self._processes))
            place = place._replace(store=(self._listener.host, 0))
        self._store = open_store(place)
        self._place = place._replace(store=(self._listener.host, self._store.port)) if self._listener else place
        shared = self.threads, torch.get_float32_matmul_precision()
        self._send(
            [RankSetup(self._spec, objective, self._place._replace(rank=rank), *shared) for rank in range(1, self.size)]
        )

    def join(self, engine: Engine) -> Engine:
        """Wait until every rank has its model, and connect them; returns the engine, over a part of its model if sharded.

        Raises:
            TrainingFailed: a process has ended (`process_lost`), or could not do its part.
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
        """What is done inside to a sharded model, the others do to their parts of it; unsharded they have no part in it.

        Args:
            name: Of the method of `Member` that the others carry out.
            arguments: Of the method.

        Raises:
            TrainingFailed: a process has ended (`process_lost`), or could not do its part.
        """
        return self._on_all(name, *arguments) if self._sharded else nullcontext()

    def backward(self, run: Run, examples: Sequence[Example], totals: StepTotals, meter: Meter) -> float:
        """Gradients of a step's loss, summed over all ranks in rank 0's parameters; returns the loss.

        Dropout draws from a stream of its own in each (seed, step, rank).

        Raises:
            TrainingFailed: a process has ended (`process_lost`), or could not do its part.
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
        """Loss of the validation examples under the weights as they are, summed over all ranks."""
        own, *others = self._batches_by_rank(run, run.validation, totals)
        self._share_weights(list(trainable(run.engine.model).values()))
        with self._passes("held_out", others) as answers:
            seen = held_out(run.engine, run.objective, own.batches, totals)
        for answer in answers:
            seen = seen.plus(answer)
        return seen

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """End every rank: by closing its pipe, and at once where the run has failed."""
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
        """What each rank has to pass through; over a sharded model all make the same number of passes."""
        dealt = deal(examples, run.config.batch_tokens, self.size, share=run.engine.shares)
        if self._sharded:
            most = max(map(len, dealt))
            dealt = [[*batches, *[[]] * (most - len(batches))] for batches in dealt]
        settings, scale = dict(run.objective.settings), run.scale.state()
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
        """Every rank makes its passes; afterwards the answers are in the list."""
        answers: list[Any] = []
        self._send([Command(name, (work,)) for work in others])
        with self._together() if self._sharded else nullcontext():
            yield answers
        answers += self._answers()

    @contextmanager
    def _on_all(self, name: str, *arguments: Any) -> Iterator[None]:
        """What is done inside, the others do too."""
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
            ended = [rank for rank in range(1, self.size) if self._ended(rank) is not None or self._has_answered(rank)]
            if not ended:
                raise TrainingFailed(
                    f"the {self.size} processes lost each other: {error}; resume_job goes on from the newest "
                    "checkpoint; if it happens again, start the training anew with processes=1",
                    code="process_lost",
                ) from error
            raise self._lost(min(ended, key=lambda rank: self._ended(rank) or 0)) from error  # first who was killed

    def _has_answered(self, rank: int) -> bool:
        """Has a rank said something, or closed its pipe, while it should compute?"""
        try:
            return self._pipes[rank - 1].poll(1.0)
        except OSError:
            return True

    def _ended(self, rank: int) -> int | None:
        """The exit status of a rank of this machine that is ending or has ended."""
        if rank > len(self._processes):
            return None
        try:
            return self._processes[rank - 1].wait(1.0)
        except subprocess.TimeoutExpired:
            return None

    def _lost(self, rank: int) -> Exception:
        """Why a rank does not answer any more: the error that it told, or how it ended."""
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
            f"sharding is 'full' and the agent is to act in {spec.environment!r}: no process holds the model whole, so it "
            "cannot act while it is trained; set sharding to 'none', or record rollouts first and train on them",
            code="no_whole_model",
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
