"""Lines that a worker writes while it runs: events of the job, and records for the store."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from quintain.records.record import Instant, Record

Count = Annotated[int, Field(ge=0, lt=2**31)]
"""A number that every database stores as an integer."""


class Activity(Record):
    """Progress of the episodes that a job plays, by turn."""

    episodes: int = Field(description="Finished episodes.")
    planned: int = Field(description="Episodes to play.")
    turns: int = Field(description="Turns taken.")
    expected_turns: int = Field(
        description="Turns of all planned episodes, by the mean of the finished ones; before, by the limit of turns."
    )
    current_turn: float | None = Field(default=None, description="Share of the current turns answered, at least.")
    tokens: int | None = Field(default=None, description="Tokens written, as far as known.")
    left_s: float | None = Field(default=None, description="Seconds left at this rate.")

    def __str__(self) -> str:
        parts = [
            f"{self.episodes} of {self.planned} episodes finished",
            f"{self.turns} of about {self.expected_turns} turns",
        ]
        parts += [] if self.current_turn is None else [f"{self.current_turn:.0%} of the current one"]
        parts += [] if self.tokens is None else [f"{self.tokens} tokens written"]
        parts += [] if self.left_s is None else [f"about {self.left_s:.0f} s left"]
        return ", ".join(parts)


class JobEvent(Record):
    """One line of `events.jsonl`. (attempt, seq) is unique within a job, so ingestion is idempotent."""

    attempt: Count
    seq: Count
    time: Instant
    type: Literal["phase", "progress", "activity", "checkpoint", "warning", "result", "failed", "cancelled"]
    name: str | None = None
    step: Count | None = None
    total_steps: Count | None = None
    metrics: dict[str, float | None] | None = None
    totals: dict[str, float | None] | None = Field(
        default=None, description="Figures of all steps so far, which are not points of a curve."
    )
    activity: Activity | None = None
    path: str | None = None
    code: str | None = None
    message: str | None = None
    hint: str | None = None
    result: dict[str, Any] | None = None


class Envelope(Record):
    """One line of `outputs/<kind>.jsonl`: a record for the store."""

    kind: str
    record: dict[str, Any]
