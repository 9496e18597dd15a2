"""Processes of a run, forked from the test process: they start in milliseconds and run what a launcher's would run."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, NamedTuple

import torch

from quintain.records.dataset import Row
from quintain.records.jobs.job import TrainSpec
from quintain.trainers.distributed.process_group import LOST, ProcessGroup, initialize
from quintain.trainers.loop.report import TrainingReport
from quintain.trainers.run_setup import Collect, Data
from quintain.trainers.train import follow, train
from quintain.worker.rank import SilentReporter
from quintain.worker.rollouts.concurrent_rollouts import playing_partner
from trainers.runs import Recorder


class Outcome(NamedTuple):
    """What a process returned, or the error that it raised, or the signal that killed it."""

    value: Any = None
    error: Exception | None = None
    signal: int = 0


def on_processes(work: Sequence[Callable[[ProcessGroup], Any]], *, timeout: float = 60) -> list[Outcome]:
    """Run each piece of work in a process of one group."""
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    children: list[tuple[int, Connection]] = []
    for rank, piece in reversed(list(enumerate(work))):  # the first process can signal the others
        ours, theirs = Pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads, which hold no lock here
            pid = os.fork()
        if not pid:
            _run(piece, rank, len(work), port, theirs, [pid for pid, _ in reversed(children)])
        theirs.close()
        children.append((pid, ours))
    return [_outcome(pid, pipe, timeout) for pid, pipe in reversed(children)]


def _run(
    piece: Callable[[ProcessGroup], Any], rank: int, size: int, port: int, pipe: Connection, others: list[int]
) -> None:
    status = 1
    try:
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
        torch.set_num_threads(1)
        OTHERS[:] = others
        pipe.send(pickle.dumps(Outcome(piece(initialize()))))
        status = 0
    except Exception as error:
        traceback.print_exc()
        pipe.send(pickle.dumps(Outcome(error=error)))
    finally:
        os._exit(status)


OTHERS: list[int] = []
"""Process ids of the higher ranks, in the first process."""


def _outcome(pid: int, pipe: Connection, timeout: float) -> Outcome:
    found = Outcome()
    try:
        if pipe.poll(timeout):
            found = pickle.loads(pipe.recv())
        else:
            os.kill(pid, signal.SIGKILL)
    except EOFError:
        pass
    _, status = os.waitpid(pid, 0)
    return found._replace(signal=os.WTERMSIG(status)) if os.WIFSIGNALED(status) else found


class KillsARank(Recorder):
    """Freezes the other process after a step, and kills it when this one has waited for it for a while."""

    def __init__(self, *, at: int = 2) -> None:
        super().__init__()
        self.at = at

    def progress(self, step: int, total_steps: int, metrics: dict[str, float | None]) -> None:
        super().progress(step, total_steps, metrics)
        if step == self.at:
            (other,) = OTHERS
            os.kill(other, signal.SIGSTOP)
            threading.Timer(0.3, os.kill, (other, signal.SIGKILL)).start()


def run_on(
    processes: int,
    job: TrainSpec,
    folder: Path,
    rows: Sequence[Row],
    reporter: Recorder | None = None,
    validation: Sequence[Row] = (),
    collect: Collect | None = None,
) -> tuple[TrainingReport, Recorder]:
    """Train in several processes; return the report of the first one, and its reporter."""
    heard = reporter or Recorder()

    def lead(group: ProcessGroup) -> tuple[TrainingReport | None, Recorder, Exception | None]:
        report, failure = None, None
        try:
            all_collect = getattr(collect, "is_shared", False)
            report = train(job, Data(rows, validation), folder, heard, collect, all_collect=all_collect)
        except Exception as error:
            failure = error
        group.dismiss(failed=failure is not None)
        return report, heard, failure

    def take_part(group: ProcessGroup) -> None:
        follow(group, SilentReporter(), playing_partner)

    outcomes = on_processes([lead, *[take_part] * (processes - 1)])
    report, remote, failure = outcomes[0].value
    if reporter is not None:
        vars(reporter).update(vars(remote))
    faults = [error for error in (failure, *(other.error for other in outcomes[1:])) if error is not None]
    if faults:
        raise min(faults, key=lambda error: getattr(error, "code", "") == LOST)  # the others have only noticed
    return report, remote
