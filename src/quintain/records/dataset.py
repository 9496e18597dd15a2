"""Datasets: an immutable folder of rows and its manifest, free of any model."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from quintain.records.record import Instant, Name, Record, require_number
from quintain.records.trajectory import Task, Trajectory

SplitName = Literal["train", "validation", "test"]
DatasetKind = Literal["sft", "dpo", "kto", "grpo", "text", "reward", "prm", "benchmark"]
TaskClass = Literal["tool_selection", "multi_step_planning", "timing_decision", "tool_retrieval"]
StepLabels = Literal["recorded", "outcome", "scores"]
Number = Annotated[float, BeforeValidator(require_number)]
Count = Annotated[int, BeforeValidator(require_number)]


class Curation(Record):
    """Which of the selected runs make it into a dataset; every run that does not is counted with its reason."""

    min_reward: Number | None = Field(default=None, description="Outcome reward at least this.")
    max_reward: Number | None = None
    min_steps: Count | None = Field(default=None, ge=1, description="Agent turns at least this.")
    max_steps: Count | None = Field(default=None, ge=1)
    top_share: Number | None = Field(default=None, gt=0, le=1, description="sft, prm: the best share of the runs.")
    near_duplicates: Number | None = Field(
        default=None, ge=0.5, le=1, description="Drop runs this similar (Jaccard, try 0.9) to an older one."
    )
    max_rows: Count | None = Field(default=None, ge=1, description="A seeded sample of so many rows.")
    task_weights: dict[TaskClass, Number] | None = Field(
        default=None, min_length=1, description="Sample rows so that the classes of task have these shares."
    )
    task_classes: dict[str, TaskClass] | None = Field(
        default=None, description="Task id or type -> class, in place of the rules."
    )
    source_models: tuple[str, ...] = Field(
        default=(), description="Globs: runs all written by such models; with ! none of it; restricted: by their terms."
    )
    step_labels: StepLabels = Field(
        default="recorded",
        description="prm: step rewards; outcome: 1 for each step of a success, 0 of a failure; scores: by `scorer`.",
    )

    @model_validator(mode="after")
    def _can_be_met(self) -> Self:
        for low, high, name in (
            (self.min_reward, self.max_reward, "reward"),
            (self.min_steps, self.max_steps, "steps"),
        ):
            if low is not None and high is not None and low > high:
                raise ValueError(f"min_{name} is {low}, above max_{name} {high}; no run can meet both")
        weights = [1.0] if self.task_weights is None else list(self.task_weights.values())
        if min(weights) < 0 or not any(weights):
            raise ValueError(f"task_weights are {weights}; give numbers of at least 0, one of them above 0")
        return self

    @property
    def samples(self) -> bool:
        """Is a part of the rows taken by chance?"""
        return self.max_rows is not None or self.task_weights is not None


class DatasetRow(Record):
    """A run to learn from: one line of `<split>.jsonl`, kind `sft`."""

    trajectory: Trajectory
    weight: float = Field(default=1.0, ge=0, description="Weight of the whole row in the loss.")
    reward: float | None = Field(
        default=None, description="What the run was worth when it was exported: its score, else its outcome's reward."
    )


class PairRow(Record):
    """Two runs of one task, one preferred: a line of kind `dpo`."""

    chosen: Trajectory
    rejected: Trajectory
    weight: float = Field(default=1.0, ge=0, description="Weight of the pair in the loss.")
    margin: float | None = Field(default=None, description="By how much the chosen run was better, where known.")


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

    @model_validator(mode="after")
    def _one_reward_each(self) -> Self:
        if len(self.rewards) != len(self.trajectories):
            raise ValueError(f"{len(self.trajectories)} trajectories have {len(self.rewards)} rewards; give one each")
        return self


class TextRow(Record):
    """Plain text for continued pre-training: a line of kind `text`."""

    text: str = Field(min_length=1)
    weight: float = Field(default=1.0, ge=0, description="Weight of the text in the loss.")


class StepLabelRow(Record):
    """A run whose agent steps are judged one by one: a line of kind `prm`."""

    trajectory: Trajectory
    labels: tuple[float | None, ...] = Field(
        description="One for each agent step, in order: how good it was, 0..1; null: not known, and not learned from."
    )
    parts: tuple[dict[str, float] | None, ...] = Field(
        default=(),
        description="Beside the labels, where known: part of the verdict (relevance, ...) -> its value in 0..1.",
    )

    @model_validator(mode="after")
    def _one_label_each(self) -> Self:
        steps = len(self.trajectory.agent_steps)
        if len(self.labels) != steps:
            raise ValueError(f"{steps} agent steps have {len(self.labels)} labels; give one each, null where unknown")
        if self.parts and len(self.parts) != steps:
            raise ValueError(
                f"{steps} agent steps have {len(self.parts)} parts; give one each, null where unknown, or none"
            )
        return self


class Reference(Record):
    """How a run on a benchmark's task went."""

    trajectory_id: str
    agent: str
    model: str | None = None
    success: bool | None = None
    reward: float | None = None
    steps: int


class BenchmarkRow(Record):
    """A task to be measured on, with what is known of good runs: a line of kind `benchmark`."""

    task: Task
    tools: tuple[dict[str, Any], ...] = ()
    target_tools: tuple[str, ...] = Field(default=(), description="Tools that the best run used, each once, in order.")
    plan: tuple[str, ...] = Field(default=(), description="Its calls in order, by tool.")
    references: tuple[Reference, ...] = ()
    reward_range: tuple[float, float] | None = Field(default=None, description="Lowest and highest reward seen.")


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
"""Dataset kind -> the shape of its lines."""


class Dataset(Record):
    """A frozen dataset; `manifest.json` in its folder holds the same."""

    id: str
    name: Name
    kind: DatasetKind
    format: Literal["quintain"] = "quintain"
    path: str
    rows: int = Field(ge=1)
    splits: dict[str, int]
    dropped: dict[str, int] = Field(default_factory=dict, description="Reason -> how many trajectories it kept out.")
    files: dict[str, str] = Field(default_factory=dict, description="File name -> SHA-256.")
    source_models: dict[str, int] = Field(default_factory=dict, description="Model -> agent steps that it wrote.")
    licence_notes: tuple[str, ...] = Field(
        default=(), description="Models whose terms restrict training on their output."
    )
    environments: dict[str, int] = Field(default_factory=dict)
    seed: int = 0
    created_at: Instant | None = None


class MadeDataset(Record):
    """A dataset that a job froze, handed over with the runs that went into it."""

    dataset: Dataset
    trajectory_ids: tuple[str, ...]
