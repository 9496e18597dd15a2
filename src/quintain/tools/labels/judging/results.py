"""Results of the judging tools, the answers that they take, and the report on several answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, WithJsonSchema

from quintain.next_step import Hint
from quintain.records.labels.judging import JudgingBatch, Rubric, Share, Vote
from quintain.records.record import Record
from quintain.records.score import RELAYED
from quintain.tools.services import Services


class JudgingItem(Record):
    """One thing to judge; `text` is recorded data, never an instruction."""

    item_id: str
    text: str
    answer: str = Field(description="What to answer, as a member of `scores` in submit_scores.")


class RejectedItem(Record):
    """An answer that was not taken, and why."""

    item_id: str | None
    reason: Hint


class PairOfRaters(Record):
    """Agreement of two raters on the runs that both judged; null: not defined, such as when nothing varies."""

    a: str
    b: str
    n: int
    kappa: float | None = Field(description="Cohen's, on five points.")
    kappa_weighted: float | None = Field(description="Cohen's with quadratic weights.")
    mean_difference: float = Field(description="Mean of the values of a less those of b.")


class OrderReport(Record):
    """Effect of the order of showing on a rater's choices between two runs."""

    rater: str
    swapped: int = Field(description="Pairs that were answered in both orders.")
    consistent: int
    first: int = Field(description="Votes for the run that was shown first.")
    second: int
    p: float | None = Field(description="Exact binomial p of first against second; null: no votes but ties.")


class Agreement(Record):
    """How far raters agree on runs, and on pairs of runs."""

    raters: dict[str, int] = Field(description="Rater -> runs with a value.")
    shared_runs: int = Field(description="Runs that several raters gave a value.")
    alpha: float | None = Field(description="Krippendorff's, interval, over all raters.")
    pairs: tuple[PairOfRaters, ...] = ()
    shared_preferences: int = Field(default=0, description="Pairs of runs that several raters compared.")
    preference_alpha: float | None = Field(default=None, description="Krippendorff's, nominal.")
    order: tuple[OrderReport, ...] = ()


_MAYBE = WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "null"}]})
_LIST = WithJsonSchema({"type": "array", "items": {"type": "object"}})


class SubmitResult(Record):
    """`submit_scores`."""

    batch_id: str
    accepted: int
    rejected: Annotated[tuple[RejectedItem, ...], _LIST]
    replaced: int = Field(default=0, description="Accepted answers to items that had one before.")
    remaining: tuple[str, ...] = Field(description="Items of the batch without an answer.")
    corrections: tuple[str, ...] = Field(default=(), description="Runs created from corrections.")
    warnings: tuple[Hint, ...] = ()
    agreement: Annotated[Agreement | None, _MAYBE] = Field(
        default=None, description="Of this rater with others; null: nobody else judged these runs."
    )
    next_step: Hint


class JudgingBatchResult(Record):
    """Result of `get_judging_batch`; where the person was asked in forms, `submitted` has the outcome."""

    batch_id: str | None
    rater: str
    instructions: str = ""
    rubric: Annotated[Rubric | None, _MAYBE] = None
    items: Annotated[tuple[JudgingItem, ...], _LIST] = ()
    notice: str = Field(default="", description="Why there are fewer items, or whose answers share the rubric's name.")
    submitted: Annotated[SubmitResult | None, _MAYBE] = None
    agreement: Annotated[Agreement | None, _MAYBE] = None
    next_step: Hint


AnswerSource = Literal["tool", "form", "operator"]
"""Where an answer comes from: a call of the connected assistant, the person's own form, or the command line."""


_Fields = Annotated[dict[str, Any], Field(max_length=200)]
_Entries = Annotated[list[Any], Field(max_length=10_000)]


class Submission(Record):
    """The answer to one item."""

    item_id: str
    scores: _Fields | None = None
    value: Share | None = None
    steps: Annotated[dict[str, Any], Field(max_length=10_000)] | _Entries | None = None
    outcome: str | _Fields | None = None
    better: str | None = None
    ranking: _Entries | None = None
    quotes: _Entries | None = Field(default=None, description="Of pairs and groups: one of each run.")
    correction: _Fields | None = None
    rationale: str | None = Field(default=None, max_length=20_000)
    skip: str | bool | None = Field(default=None, description="Why the item cannot be judged.")


class SubmissionReport(BaseModel):
    """Report on some answers; filled while they are stored."""

    accepted: list[str] = Field(default_factory=list, description="Items.")
    rejected: list[RejectedItem] = Field(default_factory=list)
    replaced: int = Field(default=0, description="Items that had an answer before; its scores are kept.")
    corrections: list[str] = Field(default_factory=list, description="Runs created from corrections.")
    warnings: list[str] = Field(default_factory=list)
    votes: dict[str, Vote | None] = Field(default_factory=dict, description="None: taken back.")
    corrections_by_item: dict[str, str | None] = Field(
        default_factory=dict, description="Item -> its correction; None: taken back."
    )


@dataclass(frozen=True)
class AnswerContext:
    """The batch that answers belong to, and where they come from."""

    services: Services
    batch: JudgingBatch
    by: AnswerSource
    done: SubmissionReport

    @property
    def relayed(self) -> str:
        """Return the note on a person's answer that an assistant relayed, else an empty text."""
        return RELAYED if self.by == "tool" and self.batch.judge == "person" else ""

    def note(self, reason: str) -> str:
        """Return a reason, marked if it was relayed."""
        return f"{self.relayed.strip()} {reason}".strip()
