"""Results of the judging tools."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, WithJsonSchema

from quintain.next_step import Hint
from quintain.records.labels.judging import Rubric
from quintain.records.record import Record


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
    """What the order of showing does to a rater's choices between two runs."""

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
