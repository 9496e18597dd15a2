"""A pool of actors: processes of this machine, or actors of a Ray cluster, that play the episodes of a job.

The unit of work is a batch: episodes that are decoded together. Batches follow from the plans alone, each is played by one actor
from its first turn to its last, and results come in the order of the plans. So the number of actors changes neither the batches
nor their rounding. An actor that dies costs the batch that it played: another process plays it again, and only a finished batch
counts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from quintain.errors import Unavailable
from quintain.evaluation.episode_state import EpisodePlan, EpisodeSettings
from quintain.evaluation.episodes import Episode
from quintain.evaluation.turn_counts import TurnCount
from quintain.records.hyperparameters.methods import OnlineConfig
from quintain.records.jobs.job import EvaluateSpec, RolloutSpec, TrainSpec
from quintain.records.protocols import TaskSource
from quintain.worker.actors.local import ActorDied, LocalActor
from quintain.worker.actors.playing import ActorSetup, Batch, OnTurn, PlayedBatch, Weights, error_of
from quintain.worker.policies.creation import JobSignals
from quintain.worker.processes.attempt import configured_home

if TYPE_CHECKING:
    from quintain.trainers.models.loading import LoadedModel
    from quintain.worker.actors.ray_actors import RayActor


_DEATHS = 5
"""Actors that may die of one batch in a row."""

_GRACE_S = 10.0
"""Seconds that an actor has to end its current turn."""

_POLL_S = 0.2


Actor: TypeAlias = "LocalActor | RayActor"
"""A process that plays batches, one at a time."""


@dataclass(eq=False)
class SubmittedBatch:
    """A batch that waits, is played, or is finished."""

    batch: Batch
    result: Future[PlayedBatch] = field(init=False)
    count: TurnCount | None = None
    """Newest count of its turns."""


class ActorPool:
    """Actors of one job. A death is replaced when the next batch needs an actor."""

    precision: str | None = None
    """Number format of a local model's weights, once a batch is finished."""

    def __init__(
        self,
        spec: RolloutSpec | EvaluateSpec | TrainSpec,
        folder: Path,
        signals: JobSignals,
        n: int,
        backend: Literal["local", "ray"] = "local",
    ) -> None:
        """Set up; an actor starts with its first batch.

        Args:
            spec: Spec of the job.
            folder: Folder of the job, or of its stage.
            signals: Receives warnings, and requests a stop.
            n: Number of actors.
            backend: Where they run.
        """
        self._setup = ActorSetup(spec=spec, folder=str(folder.absolute()), home=configured_home(), processes=n)
        self._signals, self.size, self.deaths = signals, n, 0
        self._start: Callable[[ActorSetup], Actor] = LocalActor
        if backend == "ray":
            from quintain.worker.actors.ray_actors import RayActor, connect  # the package is optional

            connect()
            self._start = RayActor
        self._threads = ThreadPoolExecutor(n, thread_name_prefix="actor")
        self._own = threading.local()
        self._lock = threading.Lock()
        self._n_places = 0
        self._is_closed = False
        self._actors = list[Actor]()
        self._endings = list[str]()
        self._warned = set[tuple[str, str]]()

    @property
    def pids(self) -> list[int]:
        """Ids of the processes of the actors that have started."""
        with self._lock:
            actors = list(self._actors)
        return [actor.pid for actor in actors]

    def submit(
        self, plans: Sequence[EpisodePlan], settings: EpisodeSettings, weights: Weights | None = None, rollout: int = 0
    ) -> list[SubmittedBatch]:
        """Queue episodes in batches of `settings.concurrency` and return at once. Earlier batches are played first."""
        starts = range(0, len(plans), settings.concurrency)
        submitted = list[SubmittedBatch]()
        for start in starts:
            chosen = tuple(plans[start : start + settings.concurrency])
            item = SubmittedBatch(Batch(plans=chosen, settings=settings, weights=weights, rollout=rollout))
            item.result = self._threads.submit(self._play, item)
            submitted.append(item)
        return submitted

    def results(self, submitted: Sequence[SubmittedBatch], on_turn: OnTurn) -> Iterator[Episode]:
        """Yield the episodes of batches in their order, until the job is asked to stop."""
        for item in submitted:
            while not item.result.done():
                if self._signals.should_stop():
                    return
                wait([item.result], _POLL_S)
                self._warn_of_deaths()
                if (count := _total(submitted)) is not None:
                    on_turn(count)
            if self._signals.should_stop():
                return
            self._warn_of_deaths()
            played = item.result.result()
            self.precision = played.precision
            for code, message in played.warnings:
                self._warn_once(code, message)
            yield from played.episodes

    def play(self, plans: Sequence[EpisodePlan], settings: EpisodeSettings, on_turn: OnTurn) -> Iterator[Episode]:
        """Play episodes, as `run_episodes` does."""
        return self.results(self.submit(plans, settings), on_turn)

    def close(self) -> None:
        """End all actors; batches that are not finished are dropped."""
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            actors, self._actors = self._actors, []
        for actor in actors:
            actor.ask_to_stop()
        for actor in actors:
            actor.stop(_GRACE_S)
        self._threads.shutdown()

    def _play(self, item: SubmittedBatch) -> PlayedBatch:
        """Play a batch on the actor of this thread, and again on another one where an actor dies."""
        ending = ""
        for _ in range(_DEATHS):
            actor = self._actor()
            try:
                answer = actor.play(item.batch, lambda count: setattr(item, "count", count))
            except ActorDied as death:
                ending = str(death)
                item.count = None
                self._drop(actor, ending)
                continue
            if answer.failure is not None:
                raise error_of(answer.failure)
            assert answer.played is not None
            return answer.played
        raise Unavailable(
            f"expected an actor that plays a batch of {len(item.batch.plans)} episodes, got {_DEATHS} that died of it (last: "
            f"{ending}); lower `actors` where memory is short, and see the job's log",
            code="actor_died",
        )

    def _actor(self) -> Actor:
        """Return the actor of this thread, a new one where it has none."""
        actor: Actor | None = getattr(self._own, "actor", None)
        if actor is None:
            with self._lock:
                if self._is_closed:
                    raise CancelledError
                if not hasattr(self._own, "place"):
                    self._own.place, self._n_places = self._n_places, self._n_places + 1
                setup = self._setup.model_copy(update={"place": self._own.place})
                actor = self._own.actor = self._start(setup)
                self._actors.append(actor)
        return actor

    def _drop(self, actor: Actor, ending: str) -> None:
        self._own.actor = None
        with self._lock:
            if self._is_closed:
                raise CancelledError
            self._actors.remove(actor)
            self._endings.append(ending)

    def _warn_of_deaths(self) -> None:
        """Warn of the first death, and each time that the count has doubled."""
        with self._lock:
            endings, self._endings = self._endings, []
        if not endings:
            return
        before, self.deaths = self.deaths, self.deaths + len(endings)
        if before.bit_length() < self.deaths.bit_length():
            self._signals.warn(
                "actor_died",
                f"{self.deaths} actors died while they played (last: {endings[-1]}); others play their episodes again",
            )

    def _warn_once(self, code: str, message: str) -> None:
        if (code, message) not in self._warned:
            self._warned.add((code, message))
            self._signals.warn(code, message)


def actors_for(source: TaskSource, asked: int, at_once: int, episodes: int, signals: JobSignals) -> int:
    """Return how many actors have work: at most one for each batch, and together at most the environment's `at_once` episodes.

    Args:
        source: The environment.
        asked: Number of actors that the job asks for.
        at_once: Episodes of a batch.
        episodes: Episodes that can be played side by side.
        signals: Receives a warning if it is less than asked.
    """
    batches, bound = -(-episodes // at_once), getattr(source, "at_once", None)
    allowed = asked if bound is None else max(bound // at_once, 1)
    n = min(asked, max(batches, 1), allowed)
    if n < asked and allowed < batches:
        signals.warn(
            "fewer_actors",
            f"{source.id} allows {bound} episodes at once, so {n} of {asked} actors play, {at_once} each",
        )
    elif n < asked:
        signals.warn(
            "fewer_actors",
            f"{episodes} episodes are {batches} batches of {at_once}, so {n} of {asked} actors play; in a training, lower "
            "episodes_at_once",
        )
    return n


def _total(submitted: Sequence[SubmittedBatch]) -> TurnCount | None:
    """Return the sum of the counts; batches that nobody has begun are expected to be like the others."""
    counts = [item.count for item in submitted if item.count is not None]
    if not counts:
        return None
    sums = TurnCount(*(sum(column) for column in zip(*counts, strict=True)))
    planned = sum(len(item.batch.plans) for item in submitted)
    running = sum(count.share * count.running for count in counts)
    return sums._replace(
        planned=planned,
        expected_turns=sums.expected_turns * planned / sums.planned,
        share=running / sums.running if sums.running else 0.0,
    )


class TrainingActors:
    """Actors of a job that trains online."""

    def __init__(
        self,
        spec: TrainSpec,
        config: OnlineConfig,
        folder: Path,
        signals: JobSignals,
        n: int,
        plan: Callable[[int, int], tuple[Sequence[EpisodePlan], EpisodeSettings]],
    ) -> None:
        """Set up; actors start with the first rollout.

        Args:
            spec: Spec of the job.
            config: Its settings.
            folder: The job's folder. Weights are in `checkpoints/weights`, which a resumed job inherits.
            signals: Receives warnings, and requests a stop.
            n: Number of actors.
            plan: Returns the episodes of a rollout that are not played yet, and their settings, by the number of the rollout and of
                the rollout before which its weights are taken.
        """
        self._pool = ActorPool(spec, folder, signals, n, spec.actor_backend)
        self._plan, self._staleness, self._rollouts = plan, config.staleness, config.rollouts
        self._updates = config.updates_per_rollout
        self._folder = folder / "checkpoints" / "weights"
        self._submitted = dict[int, list[SubmittedBatch]]()
        self._saved = set[int]()
        # A resumed run goes back to the newest checkpoint, and needs the weights that its rollouts were played with.
        since_checkpoint = -(-spec.config.checkpoint_every_steps // self._updates) + 1
        self._kept = self._staleness + since_checkpoint if self._staleness else 0

    def play(self, iteration: int, loaded: LoadedModel, on_turn: OnTurn) -> Iterator[Episode]:
        """Yield the episodes of a rollout that are not played yet, and queue the rollouts that the current weights play.

        Args:
            iteration: Number of the rollout; each is asked for once, in order.
            loaded: The live model.
            on_turn: Receives counts of turns.
        """
        for ahead in range(iteration, min(iteration + self._staleness, self._rollouts - 1) + 1):
            if ahead not in self._submitted:
                self._submitted[ahead] = self._submit(ahead, iteration, loaded)
        for old in self._folder.glob("*.safetensors"):
            if int(old.stem) < iteration - self._kept:
                old.unlink()
        yield from self._pool.results(self._submitted.pop(iteration), on_turn)

    def close(self) -> None:
        """End all actors."""
        self._pool.close()

    def _submit(self, rollout: int, current: int, loaded: LoadedModel) -> list[SubmittedBatch]:
        from quintain.trainers.acting.replica import save_version

        version = max(rollout - self._staleness, 0)
        if version < current and not self._file(version).exists():  # a resumed job may lack it
            version = current
        plans, settings = self._plan(rollout, version)
        if not plans:
            return []
        file = self._file(version)
        if version == current and version not in self._saved:
            file.unlink(missing_ok=True)  # of an earlier attempt
            save_version(loaded.model, file)
            self._saved.add(version)
        return self._pool.submit(plans, settings, Weights(path=str(file), version=version * self._updates), rollout)

    def _file(self, version: int) -> Path:
        return self._folder / f"{version:06d}.safetensors"
