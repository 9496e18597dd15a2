"""Recipes: consecutive stages of training and evaluation, each starting from the previous agent."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Annotated, Literal

from pydantic import Field

from quintain.records.agent import Agent, Sampling
from quintain.records.hyperparameters.epochs import optimizer_steps
from quintain.records.hyperparameters.methods import ROLES, Method, MethodConfig
from quintain.records.labels.judging import Endpoint
from quintain.records.labels.reward import RewardSpec
from quintain.records.record import Name, Record, Seed

Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")]
"""Name of a stage, part of file names."""


class EarlierSkill(Record):
    """The skill that EWC keeps: an agent, and runs of the tasks that it learned."""

    agent: Agent | None = Field(default=None, description="Null: the agent that the training starts from.")
    stage: str | None = Field(default=None, description="Recipes: label of the stage whose agent it is.")
    dataset_id: str
    dataset_path: str
    dataset_files: dict[str, str] = Field(description="File name -> SHA-256, verified before the first step.")
    dataset_kind: Literal["sft", "text"] = "sft"


class TrainingInputs(Record):
    """How, and on what, a model is trained."""

    kind: Literal["train"] = "train"
    method: Method
    dataset_id: str | None = Field(default=None, description="Null: the method trains online in `environment`.")
    dataset_path: str | None = None
    dataset_files: dict[str, str] = Field(
        default_factory=dict, description="File name -> SHA-256, verified before the first step."
    )
    environment: str | None = Field(default=None, description="Environment of an online method.")
    config: MethodConfig
    reward_agent: Agent | None = Field(default=None, description="grpo: the agent named by `reward_model`.")
    teacher_agent: Agent | None = Field(default=None, description="distill: the agent named by `teacher`.")
    teacher_endpoint: Endpoint | None = Field(default=None, description="Profile of a teacher behind an endpoint.")
    sampler_endpoint: Endpoint | None = Field(default=None, description="Profile of the endpoint named by `sampler`.")
    earlier: EarlierSkill | None = Field(default=None, description="ewc: what it keeps.")
    reward: RewardSpec | None = Field(
        default=None, description="What runs are worth. Null: the environment's reward, or that of the dataset."
    )


class TrainStage(TrainingInputs):
    """Train the current agent on a dataset or in an environment."""

    label: Label
    rows: int = Field(default=0, ge=0, description="Number of rows in the training split.")
    agent: Name | None = Field(
        default=None, description="Name for storing the stage's agent. Null: only the next stage uses it."
    )

    @property
    def planned_steps(self) -> int:
        """Optimizer steps, estimated before the data is rendered."""
        return optimizer_steps(self.config, self.rows, acts=self.environment is not None)


class EvaluateStage(Record):
    """Evaluate the current agent on a task suite."""

    kind: Literal["evaluate"] = "evaluate"
    label: Label
    environment: str
    split: Literal["train", "held_out", "all"] = Field(default="held_out", description="all: every task of a file.")
    n_tasks: int = Field(default=100, ge=1, le=100_000)
    repeats: int = Field(default=1, ge=1, le=256)
    seed: Seed = 0
    sampling: Sampling | None = Field(default=None, description="Null: the agent's sampling settings.")
    max_turns: int | None = Field(default=None, ge=1, le=1000, description="Null: the environment's limit.")
    opponent: Agent | None = Field(default=None, description="Plays the other role of a game. Null: not a game.")
    opponent_endpoint: Endpoint | None = Field(default=None, description="Profile of an opponent behind an endpoint.")

    @property
    def planned_steps(self) -> int:
        """Number of episodes."""
        return self.n_tasks * self.repeats


Stage = Annotated[TrainStage | EvaluateStage, Field(discriminator="kind")]


def ancestry(stages: Sequence[Stage], method: str) -> list[int]:
    """Return the places of the trainings that lead to the agent that a further stage begins with, in order.

    It is the newest agent that acts; for a method whose result does not act, that of the training before it where that one
    makes the same kind. What values runs or finds tools is no ancestor of an agent that acts.

    Args:
        stages: Before that stage.
        method: Of that stage.
    """
    trained = [(place, ROLES.get(stage.method)) for place, stage in enumerate(stages) if isinstance(stage, TrainStage)]
    role = ROLES.get(method)
    acting = [place for place, made in trained if made is None]
    alike = [] if role is None else list(takewhile(lambda one: one[1] == role, reversed(trained)))
    return [*acting, *(place for place, _ in reversed(alike))]


def trained_by(stages: Sequence[Stage], place: int) -> list[TrainStage]:
    """Return the trainings that made the agent of the training at a place, which is the last of them."""
    own = stages[place]
    assert isinstance(own, TrainStage)
    before = (stages[one] for one in ancestry(stages[:place], own.method))
    return [*(stage for stage in before if isinstance(stage, TrainStage)), own]
