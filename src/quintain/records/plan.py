"""Plans: how an agent would be trained, what that takes, and what stands in the way."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from quintain.hints import Hint
from quintain.records.record import Record


class Blocker(Record):
    """Why the plan cannot be carried out as it stands."""

    code: str
    message: str
    remedy: Hint = Field(description="What to call or change.")


class Estimate(Record):
    """What a training takes; null is not known, and `unknown` says how to find out."""

    memory_mb: float | None = Field(default=None, description="Peak of the job's process, or of its GPU's memory.")
    memory_parts_mb: dict[str, float] = Field(default_factory=dict, description="What that is made of.")
    available_memory_mb: float | None = Field(default=None, description="What the device has left now.")
    duration_s: float | None = Field(default=None, description="From the job's start to its end, waiting not counted.")
    duration_range_s: tuple[float, float] | None = Field(
        default=None, description="Where tokens are known as a range only: the duration of its two ends."
    )
    steps: int | None = Field(default=None, description="Optimizer steps.")
    tokens: int | None = Field(default=None, description="Of one pass over the training split, as a preview counted.")
    tokens_range: tuple[int, int] | None = Field(
        default=None, description="Where nobody has counted: from the bytes of its rows."
    )
    disk_mb: float | None = Field(default=None, description="Checkpoints, best weights and the final model.")
    available_disk_mb: float | None = None
    device: str = Field(description="cpu, cuda or mps: what a job would take here.")
    measured_by: tuple[str, ...] = Field(default=(), description="Earlier jobs whose figures went in.")
    unknown: dict[str, Hint] = Field(default_factory=dict, description="What is not known -> how to find out.")


class TrainingPlan(Record):
    """`plan_training`: what start_training would be called with, and what to expect of it."""

    method: str | None = Field(description="Null: nothing that there is can be learned from.")
    model: str
    dataset_id: str | None = None
    environment: str | None = None
    hyperparameters: dict[str, Any]
    estimate: Estimate
    blockers: tuple[Blocker, ...]
    notes: tuple[Hint, ...] = ()
    why: Hint
    fields: dict[str, str] = Field(description="Every setting of the method, as at guide://methods/METHOD.")
    resource_uri: str
    next_step: Hint
