"""Actors in child processes of the job.

On Linux they are forked from one process that has imported torch and no more, so that an actor starts in a fraction of a second and
shares the memory of the libraries. Elsewhere each imports them. The job and an actor are connected by a socket. Its end means that
the other one has ended, so an actor never outlives its job.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from quintain.evaluation.turn_counts import TurnCount
from quintain.worker.actors.playing import ActorSetup, Answer, Batch, BatchPlayer, failure_of

logger = logging.getLogger(__name__)

_EVERY_S = 0.5
"""Seconds between two counts of turns."""

_PRELOADED = ["quintain.trainers.acting.replica", "quintain.worker.actors.local"]


class ActorDied(Exception):
    """The process of an actor ended while it played; the message says how."""


class LocalActor:
    """An actor in a child process, in the process group of the job, with the job's log."""

    def __init__(self, setup: ActorSetup) -> None:
        """Start the process; it loads the model for its first batch."""
        context: Any = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
        context.set_forkserver_preload(_PRELOADED)
        self._connection, theirs = context.Pipe()
        self._sending = threading.Lock()
        with theirs:
            self._process = context.Process(target=_serve, args=(theirs, setup.model_dump_json()), daemon=True)
            self._process.start()

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid or 0

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended."""
        return bool(self._process.is_alive())

    def play(self, batch: Batch, on_count: Callable[[TurnCount], None]) -> Answer:
        """Return the answer to a batch.

        Raises:
            ActorDied: The process has ended.
        """
        try:
            self._send(batch.model_dump_json().encode())
            while True:
                answer = Answer.model_validate_json(self._connection.recv_bytes())
                if answer.count is None:
                    return answer
                on_count(answer.count)
        except (EOFError, OSError):
            self._process.join()
            raise ActorDied(_ending(self._process.exitcode or 0)) from None

    def ask_to_stop(self) -> None:
        """Ask the process to end after the current turn."""
        try:
            self._send(b"")
        except OSError:  # it has ended
            pass

    def stop(self, grace_s: float) -> None:
        """Wait for the end of the process, and kill it after `grace_s` seconds."""
        self._process.join(grace_s)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _send(self, content: bytes) -> None:
        with self._sending:
            self._connection.send_bytes(content)


def _ending(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _serve(connection: Connection, setup: str) -> None:
    """Answer batches until an empty message, or until the job has ended."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    stopping = threading.Event()
    batches: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, batches, stopping), daemon=True).start()
    player = BatchPlayer(ActorSetup.model_validate_json(setup), stopping.is_set)
    while content := batches.get():
        try:
            batch = Batch.model_validate_json(content)
            answer = Answer(played=player.play(batch, _CountSender(connection)))
        except Exception as error:
            logger.exception("actor failed")
            answer = Answer(failure=failure_of(error))
        _answer(connection, answer)
    os._exit(0)  # as in `worker.__main__`: exit handlers of libraries must not delay the end


def _receive(connection: Connection, batches: queue.SimpleQueue[bytes], stopping: threading.Event) -> None:
    while True:
        try:
            content = connection.recv_bytes()
        except (EOFError, OSError):
            os._exit(1)
        if not content:
            stopping.set()
        batches.put(content)


class _CountSender:
    """Sends counts of turns, at most one in `_EVERY_S` seconds."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._sent = connection, 0.0

    def __call__(self, count: TurnCount) -> None:
        if time.monotonic() - self._sent >= _EVERY_S:
            self._sent = time.monotonic()
            _answer(self._connection, Answer(count=count))


def _answer(connection: Connection, answer: Answer) -> None:
    connection.send_bytes(answer.model_dump_json().encode())
