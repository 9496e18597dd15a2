"""Jobs: their states, specs and events.

A spec is complete enough to run the job again: the worker reads nothing else and never opens the database.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from quintain.records.agent import MAX_TEMPERATURE, Agent, Sampling
from quintain.records.dataset import DatasetKind, SplitName
from quintain.records.evolve import EvolveConfig
from quintain.records.handover import ExportAgentSpec
from quintain.records.hyperparameters import Method, MethodConfig, SFTConfig
from quintain.records.imports import FileStamp
from quintain.records.judging import Endpoint, JudgeControl, JudgingMode, Rubric
from quintain.records.preview import Sample
from quintain.records.recipe import Stage
from quintain.records.record import Instant, Name, Record


class JobStatus(StrEnum):
    """Where a job is in its life."""

    QUEUED = "queued"
    """Waiting for a slot."""
    RUNNING = "running"
    """A shim holds the job's lock; between two attempts too."""
    SUCCEEDED = "succeeded"
    """Done; never changes again."""
    FAILED = "failed"
    """It cannot succeed as specified; never changes again."""
    CANCELLED = "cancelled"
    """Someone asked it to stop; never changes again."""
    INTERRUPTED = "interrupted"
    """Its process died and its attempts are used up, or auto-resume is off; `resume_job` gives it another."""


TERMINAL = frozenset({JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED})
"""States that never change."""

UNFINISHED = frozenset({JobStatus.QUEUED, JobStatus.RUNNING})
"""States that the reconciler looks after."""


class TrainSpec(Record):
    """Train an agent's model, on a dataset or in an environment."""

    kind: Literal["train"] = "train"
    method: Method = "sft"
    agent: Agent
    dataset_id: str | None = Field(default=None, description="Null: the method learns online, in `environment`.")
    dataset_path: str | None = None
    dataset_files: dict[str, str] = Field(
        default_factory=dict, description="File name -> SHA-256, checked before the first step."
    )
    environment: str | None = Field(default=None, description="Online methods: where the agent acts.")
    name: Name = Field(description="Name of the resulting agent.")
    output_dir: str = Field(description="Folder that receives the final model.")
    cache_dir: str | None = Field(
        default=None, description="Folder for what later jobs can use again, such as replay buffers; null: none."
    )
    config: MethodConfig = SFTConfig()
    reward_agent: Agent | None = Field(default=None, description="grpo: the agent that `reward_model` names.")
    seed: int = 0

    @model_validator(mode="before")
    @classmethod
    def _method_in_config(cls, data: Any) -> Any:
        """The method tells configs apart; callers give it once, and older specs hold it once."""
        if isinstance(data, dict) and isinstance(config := data.get("config"), dict) and "method" not in config:
            return {**data, "config": {**config, "method": data.get("method", "sft")}}
        return data

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.config.method != self.method:
            raise ValueError(f"method {self.method!r} came with the settings of {self.config.method!r}")
        if (self.dataset_id is None) == (self.environment is None):
            raise ValueError("training needs either a dataset or an environment")
        if (getattr(self.config, "reward_model", None) is None) != (self.reward_agent is None):
            raise ValueError("reward_model and reward_agent name one agent: give both, or none")
        return self


Temperature = Annotated[float, Field(ge=0, le=MAX_TEMPERATURE)]


class RolloutSpec(Record):
    """Let an agent act in an environment; every episode becomes a trajectory."""

    kind: Literal["rollout"] = "rollout"
    agent: Agent
    endpoint: Endpoint | None = Field(default=None, description="The profile of an agent that acts through one.")
    environment: str
    split: Literal["train", "held_out"] = "train"
    n_tasks: int = Field(ge=1, le=100_000)
    attempts: int = Field(default=1, ge=1, le=256, description="Episodes for each task.")
    seed: int = 0
    sampling: Sampling = Sampling(temperature=1.0)
    temperatures: tuple[Temperature, Temperature] | None = Field(
        default=None, description="Of the first and the last attempt at a task, in place of the sampling's."
    )
    diversity: float = Field(
        default=0.0, ge=0, le=4, description="Attempts after repetition are up to 1 + diversity times as hot."
    )
    scorer: str | dict[str, float] | None = Field(default=None, description="Scores each episode when it is over.")
    max_turns: int | None = Field(default=None, ge=1, le=1000, description="Null: the environment's own limit.")
    concurrency: int = Field(default=32, ge=1, le=1024, description="Episodes that act in one batch.")
    tags: tuple[str, ...] = ()


class EvaluateSpec(Record):
    """Run a task suite with one agent."""

    kind: Literal["evaluate"] = "evaluate"
    agent: Agent
    endpoint: Endpoint | None = Field(default=None, description="The profile of an agent that acts through one.")
    environment: str
    split: Literal["train", "held_out"] = "held_out"
    n_tasks: int = Field(ge=1, le=100_000)
    repeats: int = Field(default=1, ge=1, le=256)
    seed: int = 0
    sampling: Sampling = Sampling()
    max_turns: int | None = Field(default=None, ge=1, le=1000)
    concurrency: int = Field(default=32, ge=1, le=1024)
    forbidden: tuple[str, ...] = Field(default=(), description="Tools that the agent must not call; counted.")
    excluded: tuple[str, ...] = Field(default=(), description="Ids of tasks that are not drawn.")


class EvaluateDatasetSpec(Record):
    """Measure an agent on one split of a dataset, without any environment: loss, and the next action of each step."""

    kind: Literal["evaluate_dataset"] = "evaluate_dataset"
    agent: Agent
    dataset_id: str
    dataset_path: str
    dataset_files: dict[str, str] = Field(description="File name -> SHA-256, checked before the first row.")
    dataset_kind: DatasetKind
    split: SplitName
    n_rows: int = Field(ge=1, description="Where the split has more, a seeded sample of so many.")
    max_new_tokens: int = Field(default=192, ge=1, description="Of an action that the agent writes.")
    seed: int = 0


class ImportSpec(Record):
    """Read agent logs; every run becomes a trajectory."""

    kind: Literal["import"] = "import"
    path: str
    format: str = "auto"
    redact: bool = True
    tags: tuple[str, ...] = ()
    dry_run: bool = False
    unchanged: tuple[FileStamp, ...] = Field(
        default=(), description="Files that an earlier import has read; skipped while they look like this."
    )


class RecipeSpec(Record):
    """Train and measure in stages, each from the agent of the stage before; the last trained agent is the result."""

    kind: Literal["recipe"] = "recipe"
    name: Name = Field(description="Name of the resulting agent.")
    agent: Agent
    endpoint: Endpoint | None = Field(default=None, description="The profile of an agent that acts through one.")
    stages: tuple[Stage, ...] = Field(min_length=1, max_length=50)
    output_dir: str = Field(description="Folder that receives the stages' models, one folder each.")
    cache_dir: str | None = Field(default=None, description="As of `TrainSpec`.")
    seed: int = 0


class EvolveSpec(Record):
    """Let an agent explore, learn from its best runs and be measured, round after round; the best agent is the result."""

    kind: Literal["evolve"] = "evolve"
    name: Name = Field(description="Name of the resulting agent.")
    agent: Agent
    environment: str = Field(description="Where the agent is measured, and where it explores unless there are levels.")
    config: EvolveConfig
    training: MethodConfig = Field(description="Hyperparameters of a round's training.")
    reward_agent: Agent | None = Field(default=None, description="As of `TrainSpec`.")
    output_dir: str = Field(description="Folder that receives the rounds' models, one folder each.")
    datasets_dir: str = Field(description="Folder that receives the rounds' datasets, one folder each.")
    seed: int = 0

    @model_validator(mode="after")
    def _one_method(self) -> Self:
        if self.training.method != self.config.train:
            raise ValueError(f"train is {self.config.train!r} and came with the settings of {self.training.method!r}")
        return self


class PreviewSpec(Record):
    """Look at a dataset as training will see it: the tokens of its rows, what is masked, what falls off, what is wrong."""

    kind: Literal["preview"] = "preview"
    agent: Agent
    dataset_id: str
    dataset_path: str
    dataset_files: dict[str, str] = Field(description="File name -> SHA-256, checked before the first row.")
    dataset_kind: DatasetKind
    dataset_rows: int = Field(ge=1, description="Rows of all splits.")
    dataset_notes: tuple[str, ...] = Field(default=(), description="What its export warned of, for people.")
    config: MethodConfig = Field(description="Settings that the training would have.")
    sample: Sample = Sample()
    cache_dir: str = Field(description="Folder for what is remembered of dataset and tokenizer, and for the answer.")
    key: str = Field(description="Hash of dataset, tokenizer and settings: names what is remembered.")

    @property
    def answer(self) -> Path:
        """Where the whole report will stand."""
        return Path(self.cache_dir) / f"{self.key}-{self.sample.name}.json"


class RunsFile(Record):
    """Runs that a job works on, as lines of JSON, written when it was started."""

    path: str
    sha256: str
    n: int = Field(ge=1, description="Runs in the file.")


class JudgeSpec(Record):
    """Let a model behind an endpoint judge runs."""

    kind: Literal["judge"] = "judge"
    endpoint: Endpoint
    rubric: Rubric
    mode: JudgingMode = "score"
    control: JudgeControl = "task"
    runs: RunsFile
    cache_dir: str = Field(description="Folder of judgements that were paid for already.")
    seed: int = 0


class ScoreSpec(Record):
    """Score runs with a local model: as a judge, or with the head that it was trained to score with."""

    kind: Literal["score"] = "score"
    agent: Agent
    rubric: Rubric | None = Field(default=None, description="Of a judge; null: the agent is a reward model.")
    mode: JudgingMode = "score"
    control: JudgeControl = "task"
    runs: RunsFile
    cache_dir: str = Field(description="Folder of judgements that were made already.")
    seed: int = 0


class StepLabelSpec(Record):
    """Value the steps of runs by Monte Carlo: play on from each and count how often that succeeds."""

    kind: Literal["step_labels"] = "step_labels"
    agent: Agent
    endpoint: Endpoint | None = Field(default=None, description="The profile of an agent that acts through one.")
    environment: str
    runs: RunsFile
    completions: int = Field(default=8, ge=1, le=256, description="Episodes from each step's prefix.")
    sampling: Sampling = Sampling(temperature=1.0)
    max_turns: int | None = Field(default=None, ge=1, le=1000, description="Null: the environment's own limit.")
    concurrency: int = Field(default=32, ge=1, le=1024)
    seed: int = 0


class ReplaySpec(Record):
    """Carry recorded runs out again, each in a fresh environment, and compare what it answers."""

    kind: Literal["replay"] = "replay"
    runs: RunsFile = Field(description="The environment of each run's task is the one that it is carried out in.")
    unusable: dict[str, str] = Field(default_factory=dict, description="Environment -> why it cannot be had.")


class SelftestSpec(Record):
    """A real, light job without torch: used by `doctor` and by load and fault tests."""

    kind: Literal["selftest"] = "selftest"
    steps: int = Field(default=5, ge=0, le=1_000_000)
    step_s: float = Field(default=0.01, ge=0, le=60, description="Seconds of one step.")
    checkpoint_every_steps: int = Field(default=1, ge=1)
    fail_at: int | None = Field(default=None, description="Raise an error at this step; null: off.")
    ignore_sigterm: bool = Field(
        default=False, description="Do not react to SIGTERM, so that a forced stop can be tested."
    )
    log_bytes: int = Field(
        default=0, ge=0, le=2_000_000_000, description="Bytes to write to the log, to test its bound."
    )


JobSpec = Annotated[
    TrainSpec
    | RolloutSpec
    | EvaluateSpec
    | EvaluateDatasetSpec
    | RecipeSpec
    | EvolveSpec
    | ImportSpec
    | PreviewSpec
    | JudgeSpec
    | ScoreSpec
    | StepLabelSpec
    | ReplaySpec
    | ExportAgentSpec
    | SelftestSpec,
    Field(discriminator="kind"),
]

LIGHT_KINDS = frozenset({"import", "judge", "preview", "replay", "selftest"})
"""Kinds that take no device slot."""


class JobError(Record):
    """Why a job did not succeed."""

    code: str
    message: str
    hint: str = ""


class TrajectorySet(Record):
    """Trajectories that a job made, by the filter that finds them."""

    count: int
    filter: dict[str, Any]


class JobResult(Record):
    """What a finished job made."""

    agent: str | None = None
    evaluation_id: str | None = None
    dataset_id: str | None = None
    trajectories: TrajectorySet | None = None
    success_rate: float | None = None
    n: int | None = None
    n_error: int | None = None
    final_loss: float | None = None
    report: dict[str, Any] = Field(
        default_factory=dict, description="Counts and notes of the run: drops, truncations, ..."
    )

    @property
    def is_partial(self) -> bool:
        """Is this what a run hands over that stopped early: nothing but a report?"""
        return self == JobResult(report=self.report)


class Job(Record):
    """One job."""

    id: str
    kind: str
    status: JobStatus
    spec: JobSpec
    request_key: str
    priority: int = 0
    attempt: int = Field(default=0, ge=0, description="0: not started yet.")
    max_attempts: int = Field(default=5, ge=1)
    phase: str | None = None
    step: int = 0
    total_steps: int | None = None
    metrics: dict[str, float | None] = Field(default_factory=dict)
    eta_s: float | None = None
    error: JobError | None = None
    result: JobResult | None = None
    warnings: tuple[str, ...] = ()
    cancel_requested: bool = False
    resumed_from: str | None = None
    created_at: Instant
    started_at: Instant | None = None
    ended_at: Instant | None = None
    updated_at: Instant


class JobEvent(Record):
    """One line of `events.jsonl`. (attempt, seq) is unique in a job, so that reading it twice changes nothing."""

    attempt: int
    seq: int
    time: Instant
    type: Literal["phase", "progress", "checkpoint", "warning", "result", "failed", "cancelled"]
    name: str | None = None
    step: int | None = None
    total_steps: int | None = None
    metrics: dict[str, float | None] | None = None
    path: str | None = None
    code: str | None = None
    message: str | None = None
    hint: str | None = None
    result: dict[str, Any] | None = None


class Envelope(Record):
    """One line of `outputs/<kind>.jsonl`: a record for the store."""

    kind: Literal["trajectory", "dataset", "agent", "evaluation", "link", "stamp", "score", "preference"]
    record: dict[str, Any]
