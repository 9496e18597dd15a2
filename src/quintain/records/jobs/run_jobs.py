"""Specs of jobs that score recorded runs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from quintain.records.agent import Agent
from quintain.records.labels.judging import Endpoint, JudgeControl, JudgingMode, Rubric
from quintain.records.record import Record


class RunsFile(Record):
    """The runs that a job works on, as JSON lines written when it was created."""

    path: str
    sha256: str
    n: int = Field(ge=1, description="Number of runs.")


class _JudgingSpec(Record):
    mode: JudgingMode = "score"
    control: JudgeControl = "task"
    runs: RunsFile
    cache_dir: str = Field(description="Folder of earlier judgements, which are paid for already.")
    seed: int = 0


class JudgeSpec(_JudgingSpec):
    """Let a model behind an endpoint judge runs."""

    kind: Literal["judge"] = "judge"
    endpoint: Endpoint
    rubric: Rubric


class ScoreSpec(_JudgingSpec):
    """Score runs with a local model, as a judge or with its scoring head."""

    kind: Literal["score"] = "score"
    agent: Agent
    rubric: Rubric | None = Field(default=None, description="Rubric of a judge. Null: the agent is a reward model.")


class InfluenceSpec(Record):
    """Score runs by the similarity of their gradients to those of target runs."""

    kind: Literal["influence"] = "influence"
    agent: Agent
    runs: RunsFile
    targets: RunsFile = Field(description="Runs that the agent should do well on.")
    dims: int = Field(default=8192, ge=16, le=1_000_000, description="Numbers kept of each gradient.")
    seed: int = 0


class ReplaySpec(Record):
    """Execute recorded runs again, each in a new environment, and compare its responses."""

    kind: Literal["replay"] = "replay"
    runs: RunsFile = Field(description="Runs to replay, each in the environment of its task.")
    unusable: dict[str, str] = Field(default_factory=dict, description="Environment -> why it is not available.")
