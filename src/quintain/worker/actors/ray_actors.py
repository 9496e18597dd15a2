"""Actors on a Ray cluster, each a Ray actor with its share of the processors and GPUs that are free.

The job's folder and the model must be on a path that all machines share, and this package must be installed on them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from quintain.errors import Unavailable
from quintain.evaluation.turn_counts import TurnCount
from quintain.worker.actors.local import ActorDied
from quintain.worker.actors.playing import ActorSetup, Answer, Batch, BatchPlayer, failure_of

_START_S = 300.0
"""Seconds in which the cluster must find room for an actor."""


def connect() -> None:
    """Connect this process to the cluster that `RAY_ADDRESS` names, or to the one of this machine.

    Raises:
        Unavailable: Ray is not installed, or there is no cluster.
    """
    ray = _ray()
    if ray.is_initialized():
        return
    try:
        ray.init(address="auto", log_to_driver=True, logging_level="WARNING")
    except (ConnectionError, ValueError, RuntimeError) as error:  # the last one has a traceback
        reason = " ".join(str(error).split())[-400:]
        raise Unavailable(
            f"expected a Ray cluster for actors, got none ({reason}); start one with `ray start --head`, set RAY_ADDRESS, or set "
            "QUINTAIN_ACTOR_BACKEND to local",
            code="no_ray_cluster",
        ) from None


class RayActor:
    """An actor in a process of the cluster."""

    def __init__(self, setup: ActorSetup) -> None:
        """Ask the cluster for an actor; it loads the model for its first batch."""
        ray = _ray()
        free = ray.available_resources()
        share = {"num_cpus": max(int(free.get("CPU", 0)) // setup.processes, 1)}
        if free.get("GPU"):
            share["num_gpus"] = min(free["GPU"] / setup.processes, 1)
        alone = setup.model_copy(update={"processes": 1, "place": 0})  # Ray limits an actor to its processors and GPUs
        kind = ray.remote(max_restarts=0, **share)(_RayPlayer)
        self._actor: Any = kind.remote(alone.model_dump_json())
        self._is_ready = False

    @property
    def pid(self) -> int:
        """Id of the process on its machine."""
        return int(_ray().get(self._actor.pid.remote()))

    def play(self, batch: Batch, on_count: Callable[[TurnCount], None]) -> Answer:
        """Return the answer to a batch.

        Raises:
            ActorDied: The actor or its machine has ended.
            Unavailable: The cluster has no room for the actor.
        """
        ray = _ray()
        try:
            if not self._is_ready:
                ray.get(self._actor.pid.remote(), timeout=_START_S)
                self._is_ready = True
            return Answer.model_validate_json(ray.get(self._actor.play.remote(batch.model_dump_json())))
        except ray.exceptions.GetTimeoutError:
            raise Unavailable(
                f"expected room for an actor on the Ray cluster within {_START_S:g} s, got none; lower `actors`, or add machines",
                code="no_room_for_actor",
            ) from None
        except ray.exceptions.RayActorError as error:
            raise ActorDied(str(error).strip().splitlines()[0]) from None

    def ask_to_stop(self) -> None:
        """Do nothing: `stop` ends the process at once, and what it played is played again."""

    def stop(self, grace_s: float) -> None:
        """End the process."""
        _ray().kill(self._actor)


class _RayPlayer:
    """The part of a `RayActor` in the cluster."""

    def __init__(self, setup: str) -> None:
        self._player = BatchPlayer(ActorSetup.model_validate_json(setup), lambda: False)

    def pid(self) -> int:
        return os.getpid()

    def play(self, batch: str) -> str:
        try:
            answer = Answer(played=self._player.play(Batch.model_validate_json(batch), lambda count: None))
        except Exception as error:
            answer = Answer(failure=failure_of(error))
        return answer.model_dump_json()


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise Unavailable(
            "expected the package ray for actors on a cluster, got none; install it with `pip install 'quintain[cluster]'`, or set "
            "QUINTAIN_ACTOR_BACKEND to local",
            code="no_ray",
        ) from None
    return ray
