"""Settings of self-improvement: an agent explores, is trained on its best runs, is evaluated, and continues."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from quintain.records.agent import MAX_TEMPERATURE
from quintain.records.hyperparameters.online import MAX_ACTORS
from quintain.records.hyperparameters.setting_groups import Settings
from quintain.records.record import Record

Rule = Literal["top_k", "threshold", "rejection"]
"""Selection rule for training runs (`scoring.selection`)."""

EvolveMethod = Literal["sft", "bc", "dpo", "grpo", "ppo"]

Temperature = Annotated[float, Field(ge=0, le=MAX_TEMPERATURE)]


class LevelsConfig(Settings):
    """Environments ordered by difficulty, explored one after another."""

    levels: tuple[Annotated[str, Field(min_length=1, max_length=1000)], ...] = Field(
        min_length=1,
        max_length=50,
        description="References, easiest first. `?difficulty=easy` alone means the environment with this option.",
    )
    advance_at: float = Field(default=0.8, gt=0, le=1, description="Success rate of exploration that ends a level.")
    max_iterations: int = Field(default=3, ge=1, le=100, description="Maximum number of iterations per level.")


class EvolveConfig(Settings):
    """Explore, select, train, evaluate, repeat (AgentEvol and related methods), with a final comparison on new tasks."""

    method: Literal["evolve"] = "evolve"
    iterations: int = Field(default=5, ge=1, le=100, description="Maximum number of rounds.")
    tasks_per_iteration: int = Field(default=250, ge=1, le=100_000, description="Training tasks explored per round.")
    attempts: int = Field(default=4, ge=1, le=256, description="Episodes per task.")
    temperature: Temperature | tuple[Temperature, Temperature] = Field(
        default=0.8,
        description="Exploration temperature; 0 is greedy. A pair runs from first to second over the attempts at a task.",
    )
    max_turns: int | None = Field(
        default=None, ge=1, le=1000, description="Maximum turns per episode. Null: the environment's limit."
    )
    select: Rule = Field(
        default="top_k",
        description="top_k: best `ratio` of the runs with at least `threshold`; threshold: all runs with at least `threshold`; "
        "rejection: each run with probability equal to its reward, clipped to 0..1.",
    )
    ratio: float = Field(default=0.3, gt=0, le=1, description="top_k: share of the runs with a verdict; 1 keeps all.")
    threshold: float | None = Field(
        default=0.5, description="top_k, threshold: minimum reward of a training run, any number. Null: no minimum."
    )
    train: EvolveMethod = Field(
        default="sft",
        description="Training method of a round. dpo: best against worst run of a task, if the best is selected; grpo: all "
        "runs of the tasks whose runs differ in reward; ppo: all runs, which it plays itself while it learns.",
    )
    training: dict[str, Any] = Field(default={}, description="Hyperparameters of that method (guide://methods/METHOD).")
    start_from: Literal["best", "last", "base"] = Field(
        default="best",
        description="Starting point of a round's training: the best agent so far, the newest, or the first.",
    )
    accumulate: bool | None = Field(
        default=None, description="Also train on the selections of earlier rounds. Null: only if start_from is base."
    )
    evaluation_tasks: int = Field(
        default=100, ge=1, le=100_000, description="Held-out tasks for selecting rounds, the same for all."
    )
    final_tasks: int = Field(
        default=200, ge=1, le=100_000, description="Other held-out tasks for comparing start and result."
    )
    repeats: int = Field(default=1, ge=1, le=256, description="Episodes per held-out task.")
    patience: int | None = Field(
        default=2,
        ge=1,
        le=100,
        description="Stop after this many consecutive rounds without a significant gain (95 % interval). Null: never.",
    )
    actors: int = Field(
        default=1,
        ge=1,
        le=MAX_ACTORS,
        description="Processes that play, each with a copy of the model; 1: the job's own.",
    )
    reflect: int = Field(
        default=0,
        ge=0,
        le=16,
        description="Retries of a task that always failed, after a reflection; 0 disables them.",
    )
    curriculum: LevelsConfig | None = Field(
        default=None, description="Environments to explore, ordered by difficulty (a list is accepted). Null: none."
    )

    @model_validator(mode="before")
    @classmethod
    def _in_other_words(cls, data: Any) -> Any:
        """Take a list of levels, and AgentEvol's number of episodes, which is tasks times attempts."""
        if not isinstance(data, Mapping):
            return data
        levels, episodes = data.get("curriculum"), data.get("trajectories_per_iter")
        attempts = data.get("attempts", cls.model_fields["attempts"].default)
        data = {**data, "curriculum": {"levels": levels}} if isinstance(levels, list | tuple) else dict(data)
        if isinstance(episodes, int) and isinstance(attempts, int) and attempts and "tasks_per_iteration" not in data:
            data["tasks_per_iteration"] = math.ceil(data.pop("trajectories_per_iter") / attempts)
        return data

    @property
    def explores(self) -> bool:
        """Whether a round plays before it trains, and freezes what it selects as a dataset."""
        return self.train != "ppo"

    @property
    def accumulates(self) -> bool:
        """Whether a round also trains on the selections of earlier ones."""
        return self.start_from == "base" if self.accumulate is None else self.accumulate

    @property
    def temperatures(self) -> tuple[float, float]:
        """Temperatures of the first and the last attempt at a task."""
        return self.temperature if isinstance(self.temperature, tuple) else (self.temperature, self.temperature)

    def conflicts(self) -> Iterator[str]:
        """See `Settings`; also settings without effect, because the caller expects one."""
        yield from super().conflicts()
        low, high = self.temperatures
        if low > high:
            yield f"expected temperature from low to high, got {low:g}..{high:g}; swap them, or pass one number"
        if self.attempts > 1 and high == 0:
            yield (
                f"expected a temperature above 0 for attempts {self.attempts}, got 0, which makes all attempts equal; raise it, or "
                "set attempts to 1"
            )
        if self.attempts == 1 and low != high:
            yield "expected one temperature for attempts 1, got a pair; pass one number, or raise attempts"
        if self.train in {"dpo", "grpo"} and self.attempts < 2:
            yield (
                f"expected attempts of 2 or more for train {self.train!r}, which compares runs of a task, got 1; raise attempts"
            )
        yield from self._conflicts_of_selection()
        if not self.explores and (low != high or not low):
            yield f"expected one temperature above 0 with train 'ppo', got {low:g}..{high:g}; pass one number"
        if not self.explores and self.accumulate:
            yield "expected no accumulate with train 'ppo', which learns from what it has just played, got true; omit it"

    def _conflicts_of_selection(self) -> Iterator[str]:
        """Yield settings that the rule or the method does not use."""
        used = {"top_k": {"ratio", "threshold"}, "threshold": {"threshold"}, "rejection": set[str]()}[self.select]
        by, uses_all = f"select {self.select!r}", self.train in {"grpo", "ppo"}
        if uses_all:
            used, by = set(), f"train {self.train!r}, which uses good and bad runs"
        for name in ("ratio", "threshold"):
            if name not in used and self.is_changed(name):
                yield f"expected no {name} with {by}, got {getattr(self, name)}; omit it"
        if uses_all and self.select != "top_k":
            yield f"expected no select with {by}, got {self.select!r}; omit it"
        if self.select == "threshold" and self.threshold is None:
            yield "expected a threshold for select 'threshold', got null; pass the minimum reward of a training run"
        if uses_all and self.reflect:
            yield (
                f"expected reflect 0 with train {self.train!r}, got {self.reflect}: {self.train} needs log-probs under the original "
                "prompt, which runs after a reflection lack; set reflect to 0, or train to sft, bc or dpo"
            )


class RoundReport(Record):
    """Result of one round of an evolution."""

    round: int
    environment: str = Field(description="Environment of the exploration.")
    explored: int = Field(description="Number of exploration episodes.")
    explored_success: float | None = Field(description="Success rate of those with a verdict.")
    retried: int = Field(default=0, description="Number of retries after a reflection.")
    selected: int = Field(description="Number of this round's runs selected for training.")
    left_out: dict[str, int] = Field(default_factory=dict, description="Reason -> number of runs.")
    reward: dict[str, Any] = Field(default_factory=dict, description="Means of the named reward and of its parts.")
    dataset_id: str | None = None
    rows: int = Field(default=0, description="Rows of its dataset, including those of earlier rounds.")
    agent: str | None = None
    evaluation_id: str | None = None
    success: float | None = Field(default=None, description="Success rate on the selection tasks.")
    gain: float | None = Field(default=None, description="Gain over the previous best agent, paired by task.")
    ci_low: float | None = None
    ci_high: float | None = None
    final_loss: float | None = None
    learning_rate: float | None = None
    learning_rate_rule: str | None = Field(default=None, description="Rule that gave the learning rate.")
    decision: Literal["better", "ahead", "kept", "nothing_selected", "not_compared"] = Field(
        description="better: significantly above the previous best; ahead: above it, not significantly; kept: not above it; "
        "nothing_selected: no training; not_compared: no task with two verdicts."
    )


def round_dataset_id(job_id: str, number: int) -> str:
    """Return the id of the dataset of an evolution's round."""
    return f"ds-{job_id.removeprefix('job-')}-{number}"
