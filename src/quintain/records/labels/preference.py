"""Preferences: which of two runs of a task is better, according to a rater. A tie is an answer."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from quintain.records.record import Instant, Record

PreferenceSource = Literal["person", "assistant", "endpoint", "agent", "mined", "imported"]


class Preference(Record):
    """A rater's preference between two runs of one task."""

    id: str | None = Field(default=None, description="Assigned by the store: `pref-...`.")
    a: str = Field(description="Trajectory id.")
    b: str = Field(description="Trajectory id.")
    better: Literal["a", "b", "tie"]
    source: PreferenceSource
    rater: str | None = Field(default=None, description="As in `Score.rater`. Null for mined pairs.")
    step: int | None = Field(
        default=None,
        ge=0,
        description="Index of the compared agent step; the runs are equal before it. Null: whole runs.",
    )
    margin: float | None = Field(default=None, ge=0, description="Difference in value, if known.")
    scorer: str | None = Field(default=None, description="Scorer behind a mined pair.")
    rubric: str | None = None
    reason: str = ""
    contents: tuple[str, str] | None = Field(
        default=None, description="Prefixes of the identity hashes of a and b at the time of comparison."
    )
    created_at: Instant | None = None

    @model_validator(mode="after")
    def _two_runs(self) -> Self:
        if self.a == self.b:
            raise ValueError(f"expected two different runs of one task, got {self.a!r} twice; pass another run")
        return self

    @property
    def chosen(self) -> str | None:
        """The better run, or None for a tie."""
        return {"a": self.a, "b": self.b, "tie": None}[self.better]

    @property
    def rejected(self) -> str | None:
        """The worse run, or None for a tie."""
        return {"a": self.b, "b": self.a, "tie": None}[self.better]
