"""Training plans: settings, estimated resources and blockers."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from quintain.next_step import Hint
from quintain.records.record import Record


class Blocker(Record):
    """Why the plan cannot be executed."""

    code: str
    message: str
    remedy: Hint = Field(description="Required call or change.")


class Branch(Record):
    """A decision of the plan."""

    question: str
    answer: str = Field(description="Answer that decided, from the request or from what is stored.")
    otherwise: str = Field(description="What another answer would have led to.")


class Estimate(Record):
    """Estimated resources of a training. Null is unknown, and `unknown` names the remedy."""

    memory_mb: float | None = Field(default=None, description="Peak memory of the job's process, or of the GPU.")
    memory_parts_mb: dict[str, float] = Field(default_factory=dict, description="Its parts.")
    available_memory_mb: float | None = Field(
        default=None, description="`memory_gb` of the request, else the free memory of the device."
    )
    memory_is_stated: bool = Field(default=False, description="Whether the request stated the available memory.")
    duration_s: float | None = Field(default=None, description="Duration of the job, without waiting.")
    duration_range_s: tuple[float, float] | None = Field(
        default=None, description="Range of the duration, if only a range of tokens is known."
    )
    steps: int | None = Field(default=None, description="Optimizer steps.")
    tokens: int | None = Field(
        default=None, description="Tokens per pass over the training split, counted by a preview."
    )
    tokens_range: tuple[int, int] | None = Field(
        default=None, description="Range estimated from the size of the rows, without a preview."
    )
    disk_mb: float | None = Field(default=None, description="Checkpoints, best weights and the final model.")
    available_disk_mb: float | None = None
    device: str = Field(description="cpu, cuda or mps: the device of a job on this machine.")
    measured_by: tuple[str, ...] = Field(default=(), description="Earlier jobs behind the estimate.")
    unknown: dict[str, Hint] = Field(default_factory=dict, description="Unknown value -> how to determine it.")


class TrainingPlan(Record):
    """Result of `plan_training`: arguments for start_training, and an estimate."""

    method: str | None = Field(description="Null: no training, or no data to learn from.")
    model: str
    dataset_id: str | None = None
    environment: str | None = None
    hyperparameters: dict[str, Any]
    reward: dict[str, Any] | None = Field(
        default=None, description="As start_training takes it. Null: the given reward."
    )
    estimate: Estimate
    blockers: tuple[Blocker, ...]
    notes: tuple[Hint, ...] = ()
    why: Hint
    branches: tuple[Branch, ...] = Field(default=(), description="Decisions that led to method and settings, in order.")
    fields: dict[str, str] = Field(
        description="Lines of the planned settings and of the method's own, as in guide://methods/METHOD, which has all."
    )
    resource_uri: str
    next_step: Hint
