"""Datasets: an immutable folder of rows and its manifest, independent of any model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, model_validator

from quintain.errors import InvalidInput
from quintain.records.record import Instant, Name, Record, require_number
from quintain.records.trajectory import Task, Trajectory

SplitName = Literal["train", "validation", "test"]
DatasetKind = Literal["sft", "dpo", "kto", "grpo", "text", "reward", "prm", "benchmark"]
MEASURABLE_KINDS: tuple[DatasetKind, ...] = ("sft", "dpo", "kto", "reward", "text", "benchmark")
"""Kinds whose rows have turns or text that an agent can be compared with."""
IMITATED: tuple[DatasetKind, ...] = ("sft", "benchmark")
"""Kinds whose runs are examples or references: answers that their log rejects are left out."""
PAIRED: tuple[DatasetKind, ...] = ("dpo", "reward")
"""Kinds whose rows are pairs of a better and a worse run."""
LEARNED: tuple[SplitName, ...] = ("train", "validation")
"""Splits whose rows a training reads."""


def _require_one(value: object) -> object:
    if isinstance(value, list | tuple):
        path = "+".join(map(str, value[:5]))
        raise InvalidInput(
            f"expected one dataset, got {len(value)}; join them first: export_dataset(kind=..., name=..., path={path!r})"
        )
    return value


DatasetName = Annotated[str, BeforeValidator(_require_one)]
"""Id or name of one dataset."""
TaskClass = Literal["tool_selection", "multi_step_planning", "timing_decision", "tool_retrieval"]
StepLabels = Literal["recorded", "outcome", "scores"]
_R = TypeVar("_R")
Number = Annotated[float, BeforeValidator(require_number)]
Count = Annotated[int, BeforeValidator(require_number)]


def as_cell(value: Any) -> Any:
    """Return what cells are compared with as text: a value or a bound, or of a list `a|b`; anything else as it is."""
    values = value if isinstance(value, list) else [value]
    return "|".join(map(str, values)) if all(isinstance(one, str | int | float) for one in values or [None]) else value


CellValue = Annotated[str, BeforeValidator(as_cell)]


class Curation(Record):
    """Selection of runs for a dataset. Every rejected run is counted with a reason."""

    min_reward: Number | None = Field(default=None, description="Minimum outcome reward.")
    max_reward: Number | None = None
    min_steps: Count | None = Field(default=None, ge=1, description="Minimum number of agent turns.")
    max_steps: Count | None = Field(default=None, ge=1)
    began_since: Instant | None = Field(default=None, description="Runs that began from then on, by their log.")
    began_until: Instant | None = None
    top_share: Number | None = Field(default=None, gt=0, le=1, description="sft, prm: best share of the runs.")
    best_per_task: Count | None = Field(default=None, ge=1, description="sft: most runs of a task, the best ones.")
    best_per: dict[str, Annotated[Count, Field(ge=1)]] | None = Field(
        default=None,
        min_length=1,
        max_length=20,
        description="sft: field of the log -> most runs with the same value of it, the best ones.",
    )
    near_duplicates: Number | None = Field(
        default=None,
        ge=0.5,
        le=1,
        description="Drop runs with at least this similarity (Jaccard, try 0.9) to an older one.",
    )
    max_rows: Count | None = Field(default=None, ge=1, description="Draw a seeded sample of this many rows.")
    task_weights: dict[TaskClass, Number] | None = Field(
        default=None, min_length=1, max_length=200, description="Sample rows so that task classes have these shares."
    )
    task_classes: dict[str, TaskClass] | None = Field(
        default=None, max_length=10_000, description="Task id or type -> class, overriding the rules."
    )
    source_models: tuple[str, ...] = Field(
        default=(),
        max_length=200,
        description="Globs of models that wrote all of a run; `!` excludes; `restricted` selects by their terms.",
    )
    where: dict[str, CellValue] | None = Field(
        default=None,
        max_length=50,
        description="Rows of `path`: column -> its value, a|b, or a bound: >=4, >=2026-11-01; `!` before it excludes.",
    )
    step_labels: StepLabels = Field(
        default="recorded",
        description="prm: step rewards; outcome: 1 per step of a success, 0 per step of a failure; scores: by `scorer`, as usual with one.",
    )
    parts_of: str | None = Field(
        default=None, description="reward: scorer whose stored components become heads of the reward model."
    )

    @model_validator(mode="after")
    def _can_be_met(self) -> Self:
        for low, high, name in (
            (self.min_reward, self.max_reward, "reward"),
            (self.min_steps, self.max_steps, "steps"),
        ):
            if low is not None and high is not None and low > high:
                raise ValueError(f"expected min_{name} <= max_{name}, got {low} and {high}; no run can satisfy both")
        if self.began_since is not None and self.began_until is not None and self.began_since >= self.began_until:
            raise ValueError(
                f"expected began_since < began_until, got {self.began_since} and {self.began_until}; no run can satisfy both"
            )
        weights = [1.0] if self.task_weights is None else list(self.task_weights.values())
        if min(weights) < 0 or not any(weights):
            raise ValueError(f"expected task_weights of at least 0 with one above 0, got {weights}")
        return self

    @property
    def ranks(self) -> bool:
        """Whether the runs are compared by their values."""
        return any(one is not None for one in (self.top_share, self.best_per_task, self.best_per))

    @property
    def samples(self) -> bool:
        """Whether rows are sampled at random."""
        return self.max_rows is not None or self.task_weights is not None


StepValues = tuple[float | None, ...]
"""Value of each agent step of a run, in order. Null: unknown."""


class DatasetRow(Record):
    """A training run: one line of `<split>.jsonl`, kind `sft`."""

    trajectory: Trajectory
    weight: float = Field(default=1.0, ge=0, description="Weight of the whole row in the loss.")
    reward: float | None = Field(
        default=None, description="Value of the run at export: its score, or its outcome's reward."
    )
    step_values: StepValues = Field(
        default=(),
        description="Values of its steps by the scorer of the export. Empty: the recorded step rewards count.",
    )

    @model_validator(mode="after")
    def _one_value_each(self) -> Self:
        return _with_step_values(self, (self.step_values,), (self.trajectory,))


class PairRow(Record):
    """A preferred and a rejected run of one task: a line of kind `dpo`."""

    chosen: Trajectory
    rejected: Trajectory
    weight: float = Field(default=1.0, ge=0, description="Weight of the pair in the loss.")
    margin: float | None = Field(default=None, description="Difference in value, if known.")
    chosen_parts: dict[str, float] = Field(
        default_factory=dict, description="Part -> value in 0..1: targets of a reward model's further heads."
    )
    rejected_parts: dict[str, float] = Field(default_factory=dict)


class LabelledRow(Record):
    """A run with a thumb up or down: a line of kind `kto`."""

    trajectory: Trajectory
    desirable: bool
    weight: float = Field(default=1.0, ge=0, description="Weight of the run in the loss.")


class GroupRow(Record):
    """Runs of one task with their rewards: a line of kind `grpo`."""

    key: str = Field(description="The task that all runs share.")
    trajectories: tuple[Trajectory, ...] = Field(min_length=1)
    rewards: tuple[float, ...] = Field(min_length=1)
    step_values: tuple[StepValues, ...] = Field(
        default=(), description="Per trajectory, as in `DatasetRow`. Empty: the recorded step rewards count."
    )

    @model_validator(mode="after")
    def _one_reward_each(self) -> Self:
        if len(self.rewards) != len(self.trajectories):
            raise ValueError(f"expected {len(self.trajectories)} rewards, one per trajectory, got {len(self.rewards)}")
        if self.step_values and len(self.step_values) != len(self.trajectories):
            raise ValueError(
                f"expected {len(self.trajectories)} step_values, one per trajectory, got {len(self.step_values)}"
            )
        return _with_step_values(self, self.step_values, self.trajectories)


def _with_step_values(row: _R, values: Sequence[StepValues], runs: Sequence[Trajectory]) -> _R:
    """Return the row if each run has one value per agent step, or none."""
    for of_run, run in zip(values, runs, strict=False):
        if of_run and len(of_run) != (steps := len(run.agent_steps)):
            raise ValueError(
                f"expected {steps} step_values, one per agent step, got {len(of_run)}; use null for unknown"
            )
    return row


class TextRow(Record):
    """Plain text for continued pre-training: a line of kind `text`."""

    text: str = Field(min_length=1)
    weight: float = Field(default=1.0, ge=0, description="Weight of the text in the loss.")


class StepLabelRow(Record):
    """A run with a label for each agent step: a line of kind `prm`."""

    trajectory: Trajectory
    labels: tuple[float | None, ...] = Field(
        description="Quality in 0..1 per agent step, in order. Null is unknown and not trained on."
    )
    parts: tuple[dict[str, float] | None, ...] = Field(
        default=(),
        description="Per agent step, if known: part of the verdict (relevance, ...) -> value in 0..1.",
    )

    @model_validator(mode="after")
    def _one_label_each(self) -> Self:
        steps = len(self.trajectory.agent_steps)
        if len(self.labels) != steps:
            raise ValueError(
                f"expected {steps} labels, one per agent step, got {len(self.labels)}; use null for unknown"
            )
        if self.parts and len(self.parts) != steps:
            raise ValueError(
                f"expected {steps} parts, one per agent step, got {len(self.parts)}; use null for unknown, or omit all"
            )
        return self


class Reference(Record):
    """Result of a run on a benchmark's task."""

    trajectory_id: str
    agent: str
    model: str | None = None
    success: bool | None = None
    reward: float | None = None
    steps: int


class BenchmarkRow(Record):
    """An evaluation task with references from good runs: a line of kind `benchmark`."""

    task: Task
    tools: tuple[dict[str, Any], ...] = ()
    target_tools: tuple[str, ...] = Field(default=(), description="Distinct tools of the best run, in order.")
    plan: tuple[str, ...] = Field(default=(), description="Tools called by the best run, in order.")
    references: tuple[Reference, ...] = ()
    reward_range: tuple[float, float] | None = Field(default=None, description="Lowest and highest reward.")


Row = DatasetRow | PairRow | LabelledRow | GroupRow | TextRow | StepLabelRow | BenchmarkRow

ROW_OF_KIND: dict[str, type[Row]] = {
    "sft": DatasetRow,
    "dpo": PairRow,
    "kto": LabelledRow,
    "grpo": GroupRow,
    "text": TextRow,
    "reward": PairRow,
    "prm": StepLabelRow,
    "benchmark": BenchmarkRow,
}


class Dataset(Record):
    """A frozen dataset, also stored as `manifest.json` in its folder."""

    id: str
    name: Name
    kind: DatasetKind
    format: Literal["quintain"] = "quintain"
    path: str
    rows: int = Field(ge=1)
    splits: dict[str, int]
    dropped: dict[str, int] = Field(default_factory=dict, description="Reason -> number of excluded trajectories.")
    files: dict[str, str] = Field(default_factory=dict, description="File name -> SHA-256.")
    source_models: dict[str, int] = Field(default_factory=dict, description="Model -> number of its agent steps.")
    licence_notes: tuple[str, ...] = Field(
        default=(), description="Models whose terms restrict training on their output."
    )
    environments: dict[str, int] = Field(default_factory=dict)
    seed: int = 0
    created_at: Instant | None = None


class DatasetOutput(Record):
    """A dataset that a job has frozen, with the ids of its runs."""

    dataset: Dataset
    trajectory_ids: tuple[str, ...]
