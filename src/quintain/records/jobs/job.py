"""Jobs: states, specs and events.

A spec is sufficient to run the job again: the worker reads nothing else and never opens the database.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from quintain.next_step import Hint
from quintain.records.agent import Agent, ModelRef, Sampling
from quintain.records.artifacts import FetchSpec, PushSpec
from quintain.records.dataset import DatasetKind, SplitName
from quintain.records.evaluation import EvaluationPurpose
from quintain.records.hyperparameters.methods import DATASET_KINDS, Method, MethodConfig, SFTConfig
from quintain.records.hyperparameters.online import MAX_ACTORS, ActorBackend
from quintain.records.imports import BOTH_LEVELS, FileStamp, RedactionLevels
from quintain.records.jobs.evolve import EvolveConfig, Temperature
from quintain.records.jobs.handover import ExportAgentSpec
from quintain.records.jobs.job_events import Activity
from quintain.records.jobs.preview import Sample
from quintain.records.jobs.recipe import Stage, TrainingInputs
from quintain.records.jobs.run_jobs import InfluenceSpec, JudgeSpec, ReplaySpec, RunsFile, ScoreSpec
from quintain.records.jobs.talk import TalkSpec
from quintain.records.labels.judging import Endpoint
from quintain.records.labels.reward import RewardSpec
from quintain.records.record import Instant, Name, Record


class JobStatus(StrEnum):
    """State of a job."""

    QUEUED = "queued"
    """Waiting for a slot."""
    RUNNING = "running"
    """A shim holds the job's lock, or the next attempt is about to start."""
    SUCCEEDED = "succeeded"
    """Done. Final."""
    FAILED = "failed"
    """It cannot succeed as specified. Final."""
    CANCELLED = "cancelled"
    """Stopped on request. Final."""
    INTERRUPTED = "interrupted"
    """Its process died, and its attempts are used up or auto-resume is off. `resume_job` adds an attempt."""


TERMINAL = frozenset({JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED})

UNFINISHED = frozenset({JobStatus.QUEUED, JobStatus.RUNNING})
"""States handled by the reconciler."""


class TrainSpec(TrainingInputs):
    """Train an agent's model, on a dataset or in an environment."""

    method: Method = "sft"
    agent: Agent
    name: Name = Field(description="Name of the resulting agent.")
    output_dir: str = Field(description="Folder for the final model.")
    cache_dir: str | None = Field(
        default=None, description="Folder for caches shared by jobs, such as replay buffers. Null: none."
    )
    config: MethodConfig = SFTConfig()
    seed: int = 0
    actor_backend: ActorBackend = Field(default="local", description="Where actors of an online method run.")
    mirror: str | None = Field(default=None, description="URL of the copies of the checkpoints. Null: none.")

    @model_validator(mode="before")
    @classmethod
    def _method_in_config(cls, data: Any) -> Any:
        """Copy the method, which discriminates configs, into the config. Callers and older specs give it once."""
        if isinstance(data, dict) and isinstance(config := data.get("config"), dict) and "method" not in config:
            return {**data, "config": {**config, "method": data.get("method", "sft")}}
        return data

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.config.method != self.method:
            raise ValueError(f"expected settings of method {self.method!r}, got those of {self.config.method!r}")
        if (self.dataset_id is None) == (self.environment is None):
            raise ValueError("expected either a dataset or an environment, got both or none")
        if self.environment is None and DATASET_KINDS[self.method] is None:
            raise ValueError(f"expected an environment for {self.method}, got a dataset")
        if (getattr(self.config, "reward_model", None) is None) != (self.reward_agent is None):
            raise ValueError("expected both reward_model and reward_agent or none, got one")
        if (getattr(self.config, "teacher", None) is None) != (self.teacher_agent is None):
            raise ValueError("expected both teacher and teacher_agent or none, got one")
        if (getattr(self.config, "sampler", None) is None) != (self.sampler_endpoint is None):
            raise ValueError("expected both sampler and sampler_endpoint or none, got one")
        if (self.config.ewc is None) != (self.earlier is None):
            raise ValueError("expected both ewc and earlier or none, got one")
        return self

    @property
    def start_model(self) -> ModelRef:
        """The agent's model with its base quantised as it is trained."""
        kind = self.config.quantization or self.agent.model.quantization
        return self.agent.model.model_copy(update={"quantization": kind})


class _ActingSpec(Record):
    agent: Agent
    endpoint: Endpoint | None = Field(default=None, description="Profile of an agent that acts through an endpoint.")
    environment: str
    seed: int = 0
    max_turns: int | None = Field(default=None, ge=1, le=1000, description="Null: the environment's limit.")
    concurrency: int = Field(default=32, ge=1, le=1024, description="Episodes per batch.")
    opponent: Agent | None = Field(default=None, description="Plays the other role of a game. Null: not a game.")
    opponent_endpoint: Endpoint | None = Field(default=None, description="Profile of an opponent behind an endpoint.")
    actors: int = Field(default=1, ge=1, le=MAX_ACTORS, description="Processes that play. 1: the job's own.")
    actor_backend: ActorBackend = Field(default="local", description="Where actors run.")

    @model_validator(mode="after")
    def _actors_have_weights(self) -> Self:
        if self.actors > 1 and (self.endpoint is not None or self.opponent_endpoint is not None):
            raise ValueError("expected local weights for actors, got an endpoint")
        return self


class RolloutSpec(_ActingSpec):
    """Let an agent act in an environment. Every episode becomes a trajectory."""

    kind: Literal["rollout"] = "rollout"
    split: Literal["train", "held_out"] = "train"
    n_tasks: int = Field(ge=1, le=100_000)
    attempts: int = Field(default=1, ge=1, le=256, description="Episodes per task.")
    sampling: Sampling = Sampling(temperature=1.0)
    temperatures: tuple[Temperature, Temperature] | None = Field(
        default=None,
        description="Temperatures of the first and the last attempt at a task, replacing that of `sampling`.",
    )
    diversity: float = Field(
        default=0.0,
        ge=0,
        le=4,
        description="Repeated attempts raise the temperature by a factor of up to 1 + diversity.",
    )
    scorer: str | dict[str, float] | None = Field(
        default=None, description="Scores each finished episode, in jobs of earlier versions."
    )
    reward: RewardSpec | None = Field(default=None, description="Scores the episodes. Null: no scores.")
    written: bool = Field(
        default=False, description="The caller wrote the tasks: those solved without a call are left out."
    )
    tags: tuple[str, ...] = ()


class EvaluateSpec(_ActingSpec):
    """Evaluate an agent on a task suite."""

    kind: Literal["evaluate"] = "evaluate"
    dataset_id: str | None = Field(default=None, description="The benchmark whose tasks are played. Null: none.")
    split: Literal["train", "held_out", "all"] = Field(default="held_out", description="all: every task of a file.")
    n_tasks: int = Field(ge=1, le=100_000)
    repeats: int = Field(default=1, ge=1, le=256)
    sampling: Sampling = Sampling()
    forbidden: tuple[str, ...] = Field(default=(), description="Tools that the agent must not call; calls are counted.")
    excluded: tuple[str, ...] = Field(default=(), description="Ids of tasks that must not be drawn.")
    purpose: EvaluationPurpose = "measurement"


class CompareSpec(Record):
    """Evaluate two agents on the same tasks in turn, until their comparison is decided."""

    kind: Literal["compare"] = "compare"
    comparison_id: str = Field(description="Id of the resulting comparison.")
    a: EvaluateSpec
    b: EvaluateSpec = Field(description="As `a`, apart from the agent, its endpoint and its sampling.")
    tasks_per_look: int = Field(default=16, ge=1, le=100_000, description="Tasks that both play between two looks.")


class EvaluateDatasetSpec(Record):
    """Evaluate an agent on one split of a dataset, without an environment: loss, and the next action of each step."""

    kind: Literal["evaluate_dataset"] = "evaluate_dataset"
    agent: Agent
    dataset_id: str
    dataset_path: str
    dataset_files: dict[str, str] = Field(description="File name -> SHA-256, verified before the first row.")
    dataset_kind: DatasetKind
    split: SplitName
    n_rows: int = Field(ge=1, description="Maximum number of rows. A larger split is sampled by seed.")
    max_new_tokens: int = Field(default=192, ge=1, description="Maximum tokens of a generated action.")
    seed: int = 0


class ImportSpec(Record):
    """Import agent logs. Every run becomes a trajectory."""

    kind: Literal["import"] = "import"
    path: str
    format: str = "auto"
    url: str | None = Field(default=None, description="URL of the folder with the logs. Null: they are local files.")
    redact: RedactionLevels = BOTH_LEVELS
    tags: tuple[str, ...] = ()
    acted_by: str | None = Field(default=None, description="Who acted, where a log does not state it.")
    dry_run: bool = False
    max_files: int = Field(default=500, ge=1, description="Files listed in the report.")
    unchanged: tuple[FileStamp, ...] = Field(
        default=(), description="Stamps of files from earlier imports, which are skipped if unchanged."
    )


class RecipeSpec(Record):
    """Train and evaluate in stages, each starting from the previous agent. The last trained agent is the result."""

    kind: Literal["recipe"] = "recipe"
    name: Name = Field(description="Name of the resulting agent.")
    agent: Agent
    endpoint: Endpoint | None = Field(default=None, description="Profile of an agent that acts through an endpoint.")
    stages: tuple[Stage, ...] = Field(min_length=1, max_length=50)
    output_dir: str = Field(description="Folder for the stages' models, one subfolder each.")
    cache_dir: str | None = Field(default=None, description="As in `TrainSpec`.")
    seed: int = 0
    actor_backend: ActorBackend = Field(default="local", description="As in `TrainSpec`.")
    mirror: str | None = Field(default=None, description="As in `TrainSpec`, with a folder for each stage.")


class EvolveSpec(Record):
    """Let an agent explore, train on its best runs and be evaluated, repeatedly. The best agent is the result."""

    kind: Literal["evolve"] = "evolve"
    name: Name = Field(description="Name of the resulting agent.")
    agent: Agent
    environment: str = Field(description="Environment of the evaluations, and of the exploration without a curriculum.")
    config: EvolveConfig
    training: MethodConfig = Field(description="Hyperparameters of a round's training.")
    reward_agent: Agent | None = Field(default=None, description="As in `TrainSpec`.")
    reward: RewardSpec | None = Field(
        default=None, description="What the explored runs are worth. Null: the environment's reward."
    )
    output_dir: str = Field(description="Folder for the rounds' models, one subfolder each.")
    datasets_dir: str = Field(description="Folder for the rounds' datasets, one subfolder each.")
    cache_dir: str | None = Field(default=None, description="As in `TrainSpec`.")
    seed: int = 0
    actor_backend: ActorBackend = Field(default="local", description="Where the actors of all rounds run.")
    mirror: str | None = Field(default=None, description="As in `TrainSpec`, with a folder for each round.")

    @model_validator(mode="after")
    def _one_method(self) -> Self:
        if self.training.method != self.config.train:
            raise ValueError(
                f"expected settings of method {self.config.train!r}, got those of {self.training.method!r}"
            )
        return self


class PreviewSpec(Record):
    """Show a dataset as training would see it: tokens, masks, truncation and problems."""

    kind: Literal["preview"] = "preview"
    agent: Agent
    dataset_id: str
    dataset_path: str
    dataset_files: dict[str, str] = Field(description="File name -> SHA-256, verified before the first row.")
    dataset_kind: DatasetKind
    dataset_rows: int = Field(ge=1, description="Number of rows in all splits.")
    dataset_notes: tuple[str, ...] = Field(default=(), description="Warnings of the export.")
    config: MethodConfig = Field(description="Settings of the training.")
    sample: Sample = Sample()
    cache_dir: str = Field(description="Folder for the cached statistics and the report.")
    key: str = Field(description="Hash of dataset, tokenizer and settings: key of the cache.")

    @property
    def answer(self) -> Path:
        """Path of the complete report."""
        return Path(self.cache_dir) / f"{self.key}-{self.sample.name}.json"


class StepLabelSpec(_ActingSpec):
    """Estimate step values by Monte Carlo: complete the run from each step and count the successes."""

    kind: Literal["step_labels"] = "step_labels"
    runs: RunsFile
    completions: int = Field(default=8, ge=1, le=256, description="Episodes per step.")
    sampling: Sampling = Sampling(temperature=1.0)


class SelftestSpec(Record):
    """A light job without torch, used by `doctor` and by load and fault tests."""

    kind: Literal["selftest"] = "selftest"
    steps: int = Field(default=5, ge=0, le=1_000_000)
    step_s: float = Field(default=0.01, ge=0, le=60, description="Seconds per step.")
    checkpoint_every_steps: int = Field(default=1, ge=1)
    fail_at: int | None = Field(default=None, description="Raise an error at this step. Null: never.")
    ignore_sigterm: bool = Field(default=False, description="Ignore SIGTERM, to test a forced stop.")
    children: int = Field(default=0, ge=0, le=100, description="Child processes to start, to test that none is left.")
    log_bytes: int = Field(
        default=0, ge=0, le=2_000_000_000, description="Bytes to write to the log, to test its size limit."
    )
    memory_mb: int = Field(default=0, ge=0, le=1_000_000, description="MB to use up by equal steps, to test its limit.")


JobSpec = Annotated[
    TrainSpec
    | RolloutSpec
    | EvaluateSpec
    | CompareSpec
    | EvaluateDatasetSpec
    | RecipeSpec
    | EvolveSpec
    | ImportSpec
    | PreviewSpec
    | JudgeSpec
    | ScoreSpec
    | StepLabelSpec
    | InfluenceSpec
    | ReplaySpec
    | TalkSpec
    | ExportAgentSpec
    | FetchSpec
    | PushSpec
    | SelftestSpec,
    Field(discriminator="kind"),
]

LIGHT_KINDS = frozenset({"fetch", "import", "judge", "preview", "push", "replay", "selftest"})
"""Kinds that do not need a device slot."""


class JobError(Record):
    """Why a job did not succeed."""

    code: str
    message: Hint
    hint: Hint = Hint("")


class TrajectorySet(Record):
    """Trajectories of a job, and the filter that finds them."""

    count: int
    filter: dict[str, Any]


class JobResult(Record):
    """Result of a finished job."""

    agent: str | None = None
    evaluation_id: str | None = None
    comparison_id: str | None = None
    dataset_id: str | None = None
    trajectories: TrajectorySet | None = None
    success_rate: float | None = None
    n: int | None = Field(default=None, description="Episodes with a verdict, or runs with a value.")
    n_error: int | None = Field(default=None, description="Episodes that ended in errors, or runs without a value.")
    n_unknown: int | None = Field(
        default=None, description="Episodes that ended without a verdict and without an error."
    )
    final_loss: float | None = None
    report: dict[str, Any] = Field(default_factory=dict, description="Counts and notes of the run.")

    @property
    def is_partial(self) -> bool:
        """Whether this is the result of a run that was stopped early, with a report only."""
        return self == JobResult(report=self.report)


class Job(Record):
    """A job's stored state."""

    id: str
    kind: str
    status: JobStatus
    spec: JobSpec
    request_key: str
    name: str | None = Field(default=None, description="By a person, as `note`.")
    note: str | None = None
    priority: int = 0
    attempt: int = Field(default=0, ge=0, description="0: not started.")
    max_attempts: int = Field(default=5, ge=1)
    phase: str | None = None
    step: int = 0
    total_steps: int | None = None
    metrics: dict[str, float | None] = Field(default_factory=dict)
    eta_s: float | None = None
    last_progress_at: Instant | None = Field(default=None, description="Newest report. Null: not running.")
    usual_gap_s: float | None = Field(
        default=None, description="Usual seconds between reports in this phase. Null: unknown."
    )
    activity: Activity | None = Field(default=None, description="While episodes are played.")
    error: JobError | None = None
    result: JobResult | None = None
    warnings: tuple[str, ...] = ()
    cancel_requested: bool = False
    resumed_from: str | None = None
    home: str | None = Field(default=None, description="Id of the home whose servers start and end the job.")
    lease_until: Instant | None = Field(
        default=None,
        description="Until then its home counts the newest attempt as alive. Past it, its state is unknown.",
    )
    created_at: Instant
    started_at: Instant | None = None
    ended_at: Instant | None = None
    updated_at: Instant
