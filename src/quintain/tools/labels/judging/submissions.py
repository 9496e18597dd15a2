"""One answer to an item of a batch, the report on several, and the batch that they belong to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from quintain.records.labels.judging import JudgingBatch, Share, Vote
from quintain.records.record import Record
from quintain.records.trajectory import RELAYED
from quintain.tools.labels.judging.results import RejectedItem
from quintain.tools.services import Services

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

    def with_more(self, later: SubmissionReport) -> SubmissionReport:
        """Return a report on both."""
        return SubmissionReport(
            accepted=self.accepted + later.accepted,
            rejected=self.rejected + later.rejected,
            replaced=self.replaced + later.replaced,
            corrections=self.corrections + later.corrections,
            warnings=self.warnings + later.warnings,
            votes=self.votes | later.votes,
            corrections_by_item=self.corrections_by_item | later.corrections_by_item,
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
