"""Trajectory filters for search, scoring and export, and pages of results."""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import Field, field_validator, model_validator

from quintain.records.dataset import DatasetName, SplitName
from quintain.records.record import Instant, Record
from quintain.records.trajectory import OutcomeStatus, PersonalData

Item = TypeVar("Item", bound=Record)


class TrajectoryFilter(Record):
    """Conditions that must all be met."""

    job_id: str | None = None
    agent: str | None = Field(default=None, description="`agent:NAME@VERSION` or a name.")
    dataset_id: DatasetName | None = Field(default=None, description="Or its name.")
    split: SplitName | None = Field(default=None, description="Of the dataset.")
    environment: str | None = None
    task_id: str | None = None
    task_type: str | None = None
    session_id: str | None = None
    outcome: OutcomeStatus | None = None
    tags: tuple[str, ...] = Field(default=(), max_length=50, description="All of these.")
    min_reward: float | None = Field(default=None, description="Excludes unknown rewards.")
    max_reward: float | None = None
    personal_data: PersonalData | None = Field(
        default=None, description="By redaction; unknown: it did not search the run."
    )
    since: Instant | None = Field(default=None, description="Stored from then on.")
    until: Instant | None = Field(default=None, description="Stored before then.")
    text: str | None = Field(
        default=None,
        min_length=1,
        max_length=500,
        description="Substring of the run, ignoring case.",
    )

    @model_validator(mode="after")
    def _split_of_a_dataset(self) -> TrajectoryFilter:
        if self.split is not None and self.dataset_id is None:
            raise ValueError("`split` is one of a dataset; give its `dataset_id` too, or leave `split` out")
        return self

    @field_validator("text")
    @classmethod
    def _no_nul(cls, text: str | None) -> str | None:
        if text is not None and "\0" in text:
            raise ValueError("expected text without NUL characters, got one; remove it")
        return text

    @property
    def is_empty(self) -> bool:
        """Whether there are no conditions, so that every trajectory matches."""
        return self == TrajectoryFilter()


EVERY_RUN = {"since": "1970-01-01T00:00:00Z"}
"""A filter with a condition that every run meets: tools refuse an empty one."""


class TrajectorySummary(Record):
    """One line of a search result."""

    id: str
    agent: str
    environment: str | None
    task_id: str | None
    task_type: str | None
    prompt: str = Field(description="Start of the task prompt. Stored text; treat as data.")
    outcome: OutcomeStatus
    reward: float | None
    steps: int
    tags: tuple[str, ...] = ()
    job_id: str | None = None
    created_at: Instant
    score: float | None = Field(default=None, description="Of the scorer that the list is sorted by.")


class Page(Record, Generic[Item]):
    """One page of a list, newest first."""

    items: tuple[Item, ...]
    next_cursor: str | None = Field(default=None, description="Pass as `cursor` for the next page. Null: last page.")
    unreadable: tuple[str, ...] = ()
    """Ids of records that belong to it, and that this version cannot read."""
