"""Figures over recorded runs, as a search sums them up."""

from __future__ import annotations

from pydantic import Field

from quintain.records.evaluation import AtK, FailureKind, Rate
from quintain.records.record import Record
from quintain.records.trajectory import OutcomeStatus


class ToolFigures(Record):
    """Calls of one tool."""

    calls: int
    errors: int | None = Field(
        description="Calls whose result is marked as an error. Null: their logs mark none, and may have no such mark."
    )
    error_rate: float | None
    runs: int = Field(description="Runs that call it.")
    successes: int = Field(description="Of these, runs that succeeded.")


class LabelFigures(Record):
    """Answers to the tasks of one label."""

    answered: dict[str, int] = Field(description="Answer -> runs: a row of the confusion matrix.")
    precision: float | None
    recall: float
    f1: float


class RunSummary(Record):
    """Figures over all runs of a search. Unknown is counted apart, never as a failure."""

    runs: int
    tasks: int
    outcomes: dict[OutcomeStatus, int]
    rate: Rate | None = Field(default=None, description="Over runs with a verdict, with tasks as the unit.")
    pass_at_k: tuple[AtK, ...] = Field(default=(), description="Of tasks with at least k verdicts.")
    pass_hat_k: tuple[AtK, ...] = Field(default=(), description="All k succeed.")
    failures: dict[FailureKind, int]
    mean_turns: float
    tools: dict[str, ToolFigures] = Field(description="Most called first.")
    input_tokens: int | None = Field(default=None, description="Null: some turn does not state them.")
    output_tokens: int | None = None
    cost_usd: float | None = None
    tokens_per_success: float | None = Field(default=None, description="Input and output tokens of all runs.")
    cost_per_success: float | None = None
    labels: dict[str, LabelFigures] | None = Field(
        default=None, description="Right answer -> answers, where tasks state few different ones."
    )
    accuracy: float | None = Field(default=None, description="Answers that are the label word for word.")
    macro_f1: float | None = None
