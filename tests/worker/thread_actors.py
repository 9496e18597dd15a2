"""Actors in threads of the test's process, for tests of what actors play and not of their processes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ClassVar

from quintain.evaluation.turn_counts import TurnCount
from quintain.worker.actors.messages import ActorSetup, Answer, Batch
from quintain.worker.actors.playing import BatchPlayer


class ThreadActor:
    """An actor in a thread of this process: the player of a child process, with its messages as JSON."""

    batches = 0
    one_at_a_time: ClassVar = threading.Lock()
    """Held while a batch is played: transformers loads one model at a time."""

    def __init__(self, setup: ActorSetup) -> None:
        self._player = BatchPlayer(ActorSetup.model_validate_json(setup.model_dump_json()), lambda: False)
        self.pid = 0

    def play(self, batch: Batch, on_count: Callable[[TurnCount], None]) -> Answer:
        with self.one_at_a_time:
            type(self).batches += 1
            answer = Answer(played=self._player.play(Batch.model_validate_json(batch.model_dump_json()), on_count))
        return Answer.model_validate_json(answer.model_dump_json())

    def ask_to_stop(self) -> None:
        """Its batches are short."""

    def stop(self, grace_s: float) -> None:
        """Its thread ends with the pool."""
