"""Previews of datasets: rows as a model will see them, and statistics over all rows."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from quintain.records.record import Record, Seed

Author = Literal["system", "user", "agent", "observation", "template", "text"]
"""Author of a piece of text. `template` is text added by the chat template, including tool schemas."""

Show = Literal["first", "longest", "shortest", "truncated", "random"]

MAX_SHOWN = 50
"""Maximum number of dataset rows in a preview."""


class Sample(Record):
    """Selection of rows of the training split."""

    rows: int = Field(default=3, ge=0, le=MAX_SHOWN)
    show: Show = "first"
    seed: Seed = 0

    @property
    def name(self) -> str:
        """Name as part of a file name."""
        return f"{self.show}-{self.rows}-{self.seed}"


class Span(Record):
    """Adjacent text of one author with equal training weight."""

    text: str
    by: Author
    trained: bool = Field(description="Whether it is part of the loss.")
    weight: float = Field(description="Weight of its tokens in the loss, or 0.")
    step: int | None = Field(default=None, description="Index of its step, if any.")
    advantage: float | None = None
    cut: bool = Field(default=False, description="Whether it is truncated, so that the model never sees it.")


class PreviewRow(Record):
    """One token row. A pair, a group or a chunked run has several."""

    row: int = Field(description="Line number in train.jsonl.")
    part: str = Field(default="", description="Run within a pair or group, and chunk. Empty if there is only one.")
    id: str | None = Field(default=None, description="Id of the run.")
    tokens: int = 0
    trained_tokens: int = 0
    stop_tokens: str = Field(default="0/0", description="Trained turns with a stop token in the loss / trained turns.")
    digest: str = Field(default="", description="Hash of token ids, mask and weights.")
    dropped: str | None = Field(default=None, description="Why the row is not used in training.")
    lost_steps: tuple[int, ...] = Field(default=(), description="Trainable steps that are truncated.")
    spans: tuple[Span, ...] = ()


class SplitCounts(Record):
    """Statistics of one split."""

    rows: int = 0
    token_rows: int = 0
    total_tokens: int = 0
    trained_tokens: int = 0
    truncated_rows: int = Field(default=0, description="Number of truncated dataset rows.")
    lost_steps: int = Field(default=0, description="Number of truncated trainable steps.")
    lost_tokens: int = Field(default=0, description="Number of their tokens in the loss.")
    dropped: dict[str, int] = Field(default_factory=dict, description="Reason -> number of unused dataset rows.")
    left_out_members: dict[str, int] = Field(
        default_factory=dict, description="Reason -> number of runs left out of groups."
    )
    unweighted: dict[str, int] = Field(
        default_factory=dict, description="Reason -> number of runs whose steps all weigh alike despite step weights."
    )
    trained_turns: int = 0
    turns_with_stop: int = Field(default=0, description="Number of trained turns with a stop token in the loss.")


class Histogram(Record):
    """Lengths of the runs (or texts) of the training split in tokens, before truncation."""

    n: int = 0
    bin_tokens: int = Field(default=1, ge=1, description="Bin width: bin i contains lengths in [i, i + 1) times this.")
    counts: tuple[int, ...] = ()
    median: int = 0
    p90: int = 0
    p99: int = 0
    longest: int = 0


class Statistics(Record):
    """Statistics of a dataset for one tokenizer and one set of training settings."""

    fingerprint: str = Field(description="Fingerprint of tokenizer, chat template and style.")
    style: str = Field(description="Format of turns: `tools` or `react`.")
    kind: str
    method: str
    max_length: int = Field(description="Maximum tokens per row.")
    context_tokens: int
    splits: dict[str, SplitCounts]
    lengths: Histogram
    checks: dict[str, Any] = Field(description="Finding -> count and details.")
    warnings: tuple[str, ...]
    verdict: str
    places: dict[str, tuple[int, ...]] = Field(description="Order -> indices of rows to show.")


class PreviewReport(Record):
    """Complete result of a preview."""

    dataset_id: str
    agent: str
    job_id: str
    statistics: Statistics
    rows: tuple[PreviewRow, ...]
    more_parts: int = Field(default=0, description="Omitted token rows of the shown dataset rows.")
