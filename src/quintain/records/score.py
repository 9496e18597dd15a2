"""Scores of trajectories by scorers. Unscored is a status, not a number."""

from __future__ import annotations

from typing import Literal, NamedTuple, Self

from pydantic import Field, model_validator

from quintain.next_step import Hint
from quintain.records.record import Instant, Record


class CheckResult(NamedTuple):
    """The result of a check of an answer: a score in 0..1, or the reason why there is none."""

    value: float | None
    """None if the answer cannot be checked, which is not a failure."""
    reason: str
    """The finding, or why there is no score."""


class Component(Record):
    """One component of a composite score."""

    name: str
    weight: float = Field(ge=0)
    value: float | None = Field(default=None, description="In 0..1, higher is better. Null: unscored.")
    control: float | None = Field(
        default=None, description="Judges: value of the run without the agent's text, already subtracted."
    )
    noise: float | None = Field(default=None, description="Judges: difference between two values for that run.")
    feedback: str = ""


class StepScore(Record):
    """Score of one agent step."""

    step: int = Field(ge=0, description="Index of the agent step.")
    value: float | None = Field(default=None, ge=0, le=1, description="Higher is better. Null: not judged.")
    parts: dict[str, float] = Field(default_factory=dict, description="Component or criterion -> value in 0..1.")
    feedback: str = ""


RELAYED = " (relayed)"
"""Suffix of a person's name if an assistant relayed the statement."""


def rater_weight(rater: str | None) -> int:
    """Return the precedence of a rater's outcome: assistant 0, person relayed by an assistant 1, person or recorder (None) 2."""
    if rater is None:
        return 2
    return (1 if rater.endswith(RELAYED) else 2) if rater.startswith("person") else 0


TAKEN_BACK = "the rater could not judge it"
"""Prefix of the reason of a score by which a rater withdraws an earlier value."""

MOVED = "the judge was moved by text"
"""Prefix of the reason of stored scores and preferences that earlier versions withheld."""


class Score(Record):
    """A score in 0..1, higher is better, or the reason for its absence."""

    trajectory_id: str
    scorer: str
    status: Literal["scored", "unscored"]
    value: float | None = Field(default=None, ge=0, le=1)
    reason: Hint | None = Field(default=None, description="Why it is unscored.")
    components: tuple[Component, ...] = ()
    feedback: str = ""
    steps: tuple[StepScore, ...] = Field(default=(), description="Scores of single steps, in order.")
    rater: str | None = Field(
        default=None,
        description="`assistant`, `person:NAME`, `endpoint:NAME` or an agent id. Null: a rule.",
    )
    rubric: str | None = Field(default=None, description="Name of the rubric. Null: none.")
    raw: float | None = Field(default=None, description="Value before calibration, if calibrated.")
    calibration: str | None = Field(default=None, description="Id of the calibration that maps `raw` to `value`.")
    created_at: Instant | None = None

    @property
    def takes_back(self) -> bool:
        """Whether the rater withdraws an earlier value, because the run cannot be judged."""
        return self.value is None and self.rater is not None and (self.reason or "").startswith(TAKEN_BACK)

    @property
    def voids(self) -> bool:
        """Whether it invalidates older values of the rater: withdrawn, or withheld by an earlier version."""
        return self.takes_back or (
            self.value is None and self.rater is not None and (self.reason or "").startswith(MOVED)
        )

    @model_validator(mode="after")
    def _value_or_reason(self) -> Self:
        if (self.status == "scored") != (self.value is not None) or (self.status == "unscored" and not self.reason):
            raise ValueError("expected a value if scored, and a reason without value if unscored")
        return self
