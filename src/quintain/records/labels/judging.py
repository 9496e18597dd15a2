"""Judging: rubrics, batches and verdicts. A failed judgement has a reason and no value."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from quintain.records.record import Instant, Name, Record, require_number

Judge = Literal["assistant", "person"]
"""Judge of a batch: the connected assistant, or its user."""

JudgingMode = Literal["score", "steps", "pairwise", "group"]
"""score: rate a run by a rubric; steps: rate its steps; pairwise: prefer one of two runs; group: rank runs of a task."""

JudgeControl = Literal["task", "run", "off"]
"""Control runs without the agent's text: one per task, one per run, or none."""

Vote = Literal["a", "b", "tie"]
"""Preferred run of a pair by position: `a` was shown first."""

Share = Annotated[float, Field(ge=0, le=1), BeforeValidator(require_number)]


class Criterion(Record):
    """A criterion of a rubric, with values in 0..1."""

    name: Name
    description: str = Field(min_length=1, max_length=1000)
    weight: float = Field(default=1.0, gt=0, le=1000, description="Weight relative to the other criteria.")
    anchors: dict[str, str] = Field(
        default_factory=dict,
        max_length=20,
        description='Meaning of values, such as {"0": "wrong tool", "1": "the right tool"}.',
    )


class Rubric(Record):
    """Criteria of a judgement. Its value is their weighted mean."""

    name: Name
    description: str = ""
    criteria: tuple[Criterion, ...] = Field(min_length=1, max_length=20)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = [criterion.name for criterion in self.criteria]
        if len(set(names)) < len(names):
            raise ValueError(f"expected distinct names of criteria, got {names}; rename one")
        return self


class Verdict(Record):
    """A parsed and validated judgement of one run. Omitted criteria are missing, not 0."""

    scores: dict[str, Share] = Field(default_factory=dict, description="Criterion -> value in 0..1.")
    quotes: dict[str, tuple[str, ...]] = Field(default_factory=dict, description="Criterion -> quotes from the run.")
    rationale: str = ""
    steps: dict[int, dict[str, Share]] = Field(
        default_factory=dict, description="Index of a shown agent step -> criterion -> value."
    )
    step_quotes: dict[int, tuple[str, ...]] = Field(default_factory=dict, description="Step -> quotes from it.")
    unproven: tuple[str, ...] = Field(
        default=(), description="Criteria whose value was dropped: no quote is in the run."
    )
    unproven_steps: tuple[int, ...] = Field(
        default=(), description="Steps whose values were dropped: no quote is in them."
    )
    failed: str | None = Field(default=None, description="Why there is no verdict. If set, all other fields are empty.")


class BatchItem(Record):
    """An item of a batch. It contains ids of runs, never their text."""

    item_id: str = Field(description="Id shown to the judge instead of trajectory ids.")
    trajectory_ids: tuple[str, ...] = Field(min_length=1, description="In the order shown.")
    repeats: str | None = Field(default=None, description="Item with the same runs in the other order.")
    shown: str | None = Field(default=None, description="Prefix of the SHA-256 of the text shown to the judge.")

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_versions(cls, fields: Any) -> Any:
        return _without(fields, "twin", "bare")


class JudgingBatch(Record):
    """A batch given to a judge, which maps answers to runs."""

    id: str
    judge: Judge
    rater: str = Field(description="As in `Score.rater`.")
    mode: JudgingMode
    rubric: Rubric
    items: tuple[BatchItem, ...]
    answered: tuple[str, ...] = Field(default=(), description="Answered items.")
    votes: dict[str, tuple[Vote, ...]] = Field(
        default_factory=dict, description="Pair item -> all votes by position, oldest first."
    )
    corrections: dict[str, str] = Field(
        default_factory=dict, description="Item -> id of the run created from its correction."
    )
    forms: tuple[str, ...] = Field(default=(), description="Items asked in a form, which only the user can answer.")
    longer: tuple[str, ...] = Field(default=(), description="Items that the person asked to see more of.")
    created_at: Instant | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_versions(cls, fields: Any) -> Any:
        return _without(fields, "halves")


def _without(fields: Any, *names: str) -> Any:
    """Drop fields that stored batches of earlier versions have."""
    return {name: value for name, value in fields.items() if name not in names} if isinstance(fields, dict) else fields


class Endpoint(Record):
    """Operator profile of a model behind HTTP. The API key is never part of a record."""

    name: Name
    protocol: Literal["openai", "anthropic"]
    base_url: str
    model: str
    api_key_env: str | None = Field(default=None, description="Environment variable with the API key. Null: none.")
    concurrency: int = Field(default=4, ge=1, le=256, description="Maximum number of concurrent requests.")
    timeout_s: float = Field(default=60.0, gt=0, le=3600)
    max_attempts: int = Field(default=4, ge=1, le=20, description="Attempts per request, with increasing delays.")
    input_usd_per_mtok: float | None = Field(default=None, ge=0, description="Price per million input tokens.")
    output_usd_per_mtok: float | None = Field(default=None, ge=0, description="Price per million output tokens.")
    max_usd: float | None = Field(
        default=None, gt=0, description="Most that a job may spend here, over all its attempts. Null: no limit."
    )
    extra: dict[str, Any] = Field(default_factory=dict, description="Additional fields of the request body.")
    omit: tuple[str, ...] = Field(
        default=(), description="Fields of the body that the model rejects, such as `temperature`."
    )
    max_tokens: int = Field(default=4096, ge=16, le=1_000_000, description="Maximum tokens per answer.")
    tokenizer: str | None = Field(
        default=None,
        description="Folder with the model's tokenizer.json, for distillation and `token_ids`.",
    )
    token_ids: bool = Field(
        default=False,
        description="Let agents act by token ids, with log-probs, instead of messages; needs openai and `tokenizer`.",
    )
    adapters: str | None = Field(
        default=None,
        description="Folder for adapters under training, which the server reads under the same path. Null: the job's folder.",
    )
    allow_http: bool = Field(default=False, description="Allow unencrypted requests to other machines.")

    @model_validator(mode="after")
    def _has_prices(self) -> Self:
        if self.max_usd is not None and None in (self.input_usd_per_mtok, self.output_usd_per_mtok):
            raise ValueError(
                "expected input_usd_per_mtok and output_usd_per_mtok beside max_usd, by which costs are known; set both, or "
                "leave max_usd out"
            )
        return self

    @model_validator(mode="after")
    def _has_a_tokenizer(self) -> Self:
        if self.token_ids and (self.tokenizer is None or self.protocol != "openai"):
            raise ValueError(
                "expected protocol 'openai' and a tokenizer beside token_ids = true, got "
                f"protocol {self.protocol!r} and tokenizer {self.tokenizer!r}; set both, or leave token_ids out"
            )
        return self
