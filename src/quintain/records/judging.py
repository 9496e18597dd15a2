"""Rubrics, verdicts and batches of judges. A judgement that failed has a reason and no number."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from quintain.records.record import Instant, Name, Record, require_number

Judge = Literal["assistant", "person"]
"""Who takes a batch: the assistant that is connected, or the person in front of it."""

JudgingMode = Literal["score", "steps", "pairwise", "group"]
"""score: a run by a rubric; steps: its steps one by one; pairwise: which of two; group: several runs of a task in order."""

JudgeControl = Literal["task", "run", "off"]
"""Which run without the agent's words a judge is asked about too: one a task, one for each run, or none."""

Vote = Literal["a", "b", "tie"]
"""Which of two runs is better, by the place in which it was shown: `a` is the first."""

Share = Annotated[float, Field(ge=0, le=1), BeforeValidator(require_number)]


class Criterion(Record):
    """One question of a rubric, answered in 0..1."""

    name: Name
    description: str = Field(min_length=1, max_length=1000)
    weight: float = Field(default=1.0, gt=0, le=1000, description="Relative to the other criteria.")
    anchors: dict[str, str] = Field(
        default_factory=dict, description='What a value means, such as {"0": "wrong tool", "1": "the right tool"}.'
    )


class Rubric(Record):
    """Criteria of a judge; the value is their weighted mean."""

    name: Name
    description: str = ""
    criteria: tuple[Criterion, ...] = Field(min_length=1, max_length=20)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = [criterion.name for criterion in self.criteria]
        if len(set(names)) < len(names):
            raise ValueError(f"criteria {names} are not distinct; give each a name of its own")
        return self


class Verdict(Record):
    """A judge's answer on one run, read and checked; the criteria that it left out are missing, not 0."""

    scores: dict[str, Share] = Field(default_factory=dict, description="Criterion -> value in 0..1.")
    quotes: dict[str, tuple[str, ...]] = Field(default_factory=dict, description="Criterion -> quotes from the run.")
    rationale: str = ""
    steps: dict[int, dict[str, Share]] = Field(
        default_factory=dict, description="Agent step, from 0 -> criterion -> value; only steps that were shown."
    )
    step_quotes: dict[int, tuple[str, ...]] = Field(default_factory=dict, description="Step -> quotes from it.")
    unproven: tuple[str, ...] = Field(
        default=(), description="Criteria whose value was dropped: no quote is in the run."
    )
    unproven_steps: tuple[int, ...] = Field(
        default=(), description="Steps whose values were dropped: no quote is in them."
    )
    failed: str | None = Field(default=None, description="Why there is no verdict; then nothing else is set.")


class BatchItem(Record):
    """One thing to judge of a batch, by the ids of its runs, without their text."""

    item_id: str = Field(description="What the judge sees in place of ids.")
    trajectory_ids: tuple[str, ...] = Field(min_length=1, description="In the order in which they are shown.")
    repeats: str | None = Field(default=None, description="Item whose runs it shows again in the other order.")
    shown: str | None = Field(default=None, description="Start of the SHA-256 of the text that the judge was given.")

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_versions(cls, given: Any) -> Any:
        return _without(given, "twin", "bare")


class JudgingBatch(Record):
    """Items that were given to a judge, so that its answers find their runs again."""

    id: str
    judge: Judge
    rater: str = Field(description="As `Score.rater`.")
    mode: JudgingMode
    rubric: Rubric
    items: tuple[BatchItem, ...]
    answered: tuple[str, ...] = Field(default=(), description="Items that were answered.")
    votes: dict[str, tuple[Vote, ...]] = Field(
        default_factory=dict, description="Of pairs: item -> every answer to it, as it was shown, oldest first."
    )
    corrections: dict[str, str] = Field(default_factory=dict, description="Item -> the run that its correction became.")
    forms: tuple[str, ...] = Field(
        default=(), description="Items that the person was asked in a form: nobody else answers them."
    )
    created_at: Instant | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_versions(cls, given: Any) -> Any:
        return _without(given, "halves")


def _without(given: Any, *names: str) -> Any:
    """Drop fields that stored batches of earlier versions have."""
    return {name: value for name, value in given.items() if name not in names} if isinstance(given, dict) else given


class Endpoint(Record):
    """A model behind an HTTP interface, as the operator set it up; its key is never part of a record."""

    name: Name
    protocol: Literal["openai", "anthropic"]
    base_url: str
    model: str
    api_key_env: str | None = Field(default=None, description="Environment variable with the key; null: no key.")
    concurrency: int = Field(default=4, ge=1, le=256, description="Requests under way at once.")
    timeout_s: float = Field(default=60.0, gt=0, le=3600)
    max_attempts: int = Field(default=4, ge=1, le=20, description="Tries of a request, with growing pauses.")
    input_usd_per_mtok: float | None = Field(default=None, ge=0, description="Price of a million tokens read.")
    output_usd_per_mtok: float | None = Field(default=None, ge=0, description="Price of a million tokens written.")
    extra: dict[str, Any] = Field(default_factory=dict, description="Further fields of each request's body.")
    omit: tuple[str, ...] = Field(
        default=(), description="Fields of the body that the model refuses, such as `temperature`."
    )
    max_tokens: int = Field(default=4096, ge=16, le=1_000_000, description="Tokens of one answer.")
    allow_http: bool = Field(default=False, description="May requests go unencrypted to another machine?")
