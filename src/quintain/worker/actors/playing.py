"""Players of the episodes of a job, in its own process or in an actor, and the messages between both, as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from quintain import errors
from quintain.environments.registry import open_source, task_source
from quintain.environments.scripted_policy import expert_of
from quintain.errors import QuintainError, Unavailable
from quintain.evaluation.episode_state import EpisodePlan, EpisodeSettings
from quintain.evaluation.episodes import Episode, run_episodes
from quintain.evaluation.turn_counts import TurnCount
from quintain.records.jobs.job import EvaluateSpec, RolloutSpec, TrainSpec
from quintain.records.protocols import Policy, TaskSource
from quintain.records.record import Record
from quintain.worker.policies.creation import JobSignals, policy_of_job, router
from quintain.worker.processes.attempt import configure
from quintain.worker.rollouts.self_play import self_play_of


class ActorSetup(Record):
    """All that an actor needs to play for a job."""

    spec: Annotated[RolloutSpec | EvaluateSpec | TrainSpec, Field(discriminator="kind")]
    folder: str = Field(description="Folder of the job, or of its stage.")
    home: str | None = Field(default=None, description="Home folder with the operator's files. Null: not configured.")
    processes: int = Field(default=1, ge=1, description="Actors that share the threads and GPUs of a machine.")
    place: int = Field(default=0, ge=0, description="Number of the actor among them.")


class Weights(Record):
    """Weights with which a batch is played."""

    path: str = Field(description="File of `trainers.acting.replica.save_version`.")
    version: int = Field(ge=0, description="Optimizer steps behind them.")


class Batch(Record):
    """Episodes that one actor plays together. The tokens of a batch do not depend on who plays it, or when."""

    plans: tuple[EpisodePlan, ...]
    settings: EpisodeSettings
    weights: Weights | None = Field(default=None, description="Null: those of the spec's agent.")
    rollout: int = Field(default=0, ge=0, description="Number of the rollout in online training.")


class PlayedBatch(Record):
    """A batch after its last turn."""

    episodes: tuple[Episode, ...]
    precision: str | None = Field(default=None, description="Number format of a local model's weights.")
    warnings: tuple[tuple[str, str], ...] = Field(default=(), description="Codes and messages, not sent before.")


class Failure(Record):
    """An exception in an actor, which ends the job."""

    kind: str = Field(description="Name of its class.")
    code: str | None = Field(default=None, description="Code of a `QuintainError`. Null: another exception.")
    message: str


class Answer(Record):
    """A message of an actor: a count of turns, and at the end either the batch or a failure."""

    count: TurnCount | None = None
    played: PlayedBatch | None = None
    failure: Failure | None = None


OnTurn = Callable[[TurnCount], None]


class ActingPlayer:
    """Plays the episodes of a job `rollout` or `evaluate` in this process."""

    def __init__(
        self, spec: RolloutSpec | EvaluateSpec, folder: Path, signals: JobSignals, source: TaskSource | None = None
    ) -> None:
        """Set up without loading the agent, which the first episodes need.

        Args:
            spec: Spec of the job.
            folder: Folder of the job, or of its stage.
            signals: Receives warnings, and requests a stop.
            source: The environment, if it is open already.
        """
        self._spec, self._folder, self._signals = spec, folder, signals
        self._source = open_source(spec.environment) if source is None else source
        self._policy: Policy | None = None
        self.precision: str | None = None
        """Number format of a local model's weights, once it is loaded."""

    def play(self, plans: Sequence[EpisodePlan], settings: EpisodeSettings, on_turn: OnTurn) -> Iterator[Episode]:
        """Run the planned episodes, as `run_episodes` does."""
        return run_episodes(self._source, self.open(plans), plans, settings, self._signals.should_stop, on_turn=on_turn)

    def play_batch(self, batch: Batch, on_turn: OnTurn) -> tuple[Episode, ...]:
        """Return the episodes of a batch; fewer than planned if the job was asked to stop."""
        if self._spec.agent.model.source == "expert":
            self._policy = None  # it knows the tasks of one batch
        return tuple(self.play(batch.plans, batch.settings, on_turn))

    def close(self) -> None:
        """Free nothing: the process ends with the job."""

    def open(self, plans: Sequence[EpisodePlan]) -> Policy:
        """Return the policy of the agent, or of both players; load it first, if necessary."""
        spec = self._spec
        if self._policy is None:
            own = policy_of_job(
                spec, self._folder, self._signals, lambda: expert_policy(spec.environment, self._source, plans)
            )
            self.precision = getattr(own, "precision", None)
            self._policy = own
            if spec.opponent is not None:
                self._policy = router(spec, own, self._folder, self._signals, self._source)
        return self._policy


class TrainingPlayer:
    """Plays the episodes of a job that trains online, with a copy of the model under training."""

    precision: str | None = None

    def __init__(self, spec: TrainSpec, folder: Path, signals: JobSignals) -> None:
        """Load the start model."""
        from quintain.trainers.acting.replica import Replica

        assert spec.environment is not None
        self._source, self._signals = open_source(spec.environment), signals
        self._replica = Replica(spec, folder)
        self._self_play = self_play_of(spec, self._source, folder)

    def play_batch(self, batch: Batch, on_turn: OnTurn) -> tuple[Episode, ...]:
        """Return the episodes of a batch, played with its weights; fewer than planned if the job was asked to stop."""
        assert batch.weights is not None
        replica, weights = self._replica, batch.weights
        replica.load(Path(weights.path))

        def new_policy() -> Policy:
            return replica.policy(weights.version)

        policy: Policy = new_policy()
        for warning in getattr(policy, "warnings", ())[len(replica.loaded.warnings) :]:  # others are reported
            self._signals.warn("acting", warning)
        if self._self_play is not None:
            policy = self._self_play.router(replica.loaded, batch.rollout, new_policy)
        with replica.number_format():
            return tuple(
                run_episodes(
                    self._source, policy, batch.plans, batch.settings, self._signals.should_stop, on_turn=on_turn
                )
            )


class _Signals:
    """Warnings that were not sent yet, and whether the actor has to stop."""

    def __init__(self, should_stop: Callable[[], bool]) -> None:
        self.should_stop = should_stop
        self.warnings: list[tuple[str, str]] = []

    def warn(self, code: str, message: str) -> None:
        self.warnings.append((code, message))


class BatchPlayer:
    """Plays batches in the process of an actor, whatever the job is."""

    def __init__(self, setup: ActorSetup, should_stop: Callable[[], bool]) -> None:
        """Set up; the model is loaded for the first batch.

        Args:
            setup: The job.
            should_stop: Checked before every turn.
        """
        self._setup, self._signals = setup, _Signals(should_stop)
        self._player: ActingPlayer | TrainingPlayer | None = None

    def play(self, batch: Batch, on_turn: OnTurn) -> PlayedBatch:
        """Play a batch.

        Raises:
            Unavailable: The actor was asked to stop.
        """
        if self._player is None:
            self._player = self._open()
        episodes = self._player.play_batch(batch, on_turn)
        if self._signals.should_stop():
            raise Unavailable("the actor was asked to stop", code="stopped")
        warnings, self._signals.warnings = tuple(self._signals.warnings), []
        return PlayedBatch(episodes=episodes, precision=self._player.precision, warnings=warnings)

    def _open(self) -> ActingPlayer | TrainingPlayer:
        from quintain.trainers.acting.replica import share_machine

        setup = self._setup
        if setup.home is not None:
            configure(Path(setup.home))
        share_machine(setup.place, setup.processes)
        if isinstance(setup.spec, TrainSpec):
            return TrainingPlayer(setup.spec, Path(setup.folder), self._signals)
        return ActingPlayer(setup.spec, Path(setup.folder), self._signals)


def failure_of(error: Exception) -> Failure:
    """Return an exception of an actor as a message."""
    if isinstance(error, QuintainError):
        return Failure(kind=type(error).__name__, code=error.code, message=error.message)
    return Failure(kind=type(error).__name__, message=str(error))


def error_of(failure: Failure) -> Exception:
    """Return the exception that an actor reported. Of exceptions that are not our own, the class is in the message."""
    if failure.code is None:
        return RuntimeError(f"an actor failed: {failure.kind}: {failure.message}")
    kind = getattr(errors, failure.kind, QuintainError)
    return kind(failure.message, code=failure.code)


def expert_policy(reference: str, source: TaskSource, plans: Sequence[EpisodePlan]) -> Policy:
    """Return the scripted expert of the planned tasks. An isolated source has none, so its package is loaded here."""
    inside = source if hasattr(source, "expert") else task_source(reference)
    return expert_of(inside, [plan.task for plan in plans])
