"""Messages between a job and its actors, as JSON."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from quintain.evaluation.episode_plans import EpisodePlan, EpisodeSettings
from quintain.evaluation.episodes import Episode
from quintain.evaluation.turn_counts import TurnCount
from quintain.records.jobs.job import EvaluateSpec, RolloutSpec, TrainSpec
from quintain.records.record import Record


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
