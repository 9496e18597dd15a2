"""The settings of self-improvement: an agent explores, learns from its best runs, is measured, and goes on from there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from quintain.records.agent import MAX_TEMPERATURE
from quintain.records.common_hyperparameters import Settings
from quintain.records.record import Record

Rule = Literal["top_k", "threshold", "rejection"]
"""How runs to learn from are chosen; `rewards.selection` has the rules."""

EvolveMethod = Literal["sft", "bc", "dpo", "grpo"]

Temperature = Annotated[float, Field(ge=0, le=MAX_TEMPERATURE)]


class LevelsConfig(Settings):
    """Environments from easy to hard, in which the agent explores one after the other."""

    levels: tuple[Annotated[str, Field(min_length=1, max_length=1000)], ...] = Field(
        min_length=1,
        max_length=50,
        description="References, easiest first; `?difficulty=easy` alone: the environment with this option.",
    )
    advance_at: float = Field(default=0.8, gt=0, le=1, description="Success of exploring that ends a level.")
    max_iterations: int = Field(
        default=3, ge=1, le=100, description="Iterations on a level at most; then the next one comes all the same."
    )


class EvolveConfig(Settings):
    """Explore, select, train, measure, again: AgentEvol and its relatives, with an honest end."""

    method: Literal["evolve"] = "evolve"
    iterations: int = Field(default=5, ge=1, le=100, description="Rounds of exploring, training and measuring at most.")
    tasks_per_iteration: int = Field(
        default=250, ge=1, le=100_000, description="Tasks of the split train that a round explores."
    )
    attempts: int = Field(default=4, ge=1, le=256, description="Episodes for each of these tasks.")
    temperature: Temperature | tuple[Temperature, Temperature] = Field(
        default=0.8,
        description="Of exploring; 0 is greedy. A pair: from the first to the second over the attempts at a task.",
    )
    max_turns: int | None = Field(
        default=None, ge=1, le=1000, description="Turns of an episode; null: the environment's own limit."
    )
    select: Rule = Field(
        default="top_k",
        description="top_k: the best `ratio` of the runs, of `threshold` at least; threshold: all from `threshold` on; "
        "rejection: each with its reward, cut to 0..1, as the chance to be kept.",
    )
    ratio: float = Field(default=0.3, gt=0, le=1, description="top_k: share of the runs with a verdict; 1: off.")
    threshold: float | None = Field(
        default=0.5, description="top_k, threshold: least reward of a run to learn from, any number; null: off."
    )
    train: EvolveMethod = Field(
        default="sft",
        description="How a round learns. dpo: best against worst run of a task, the best one selected; grpo: all runs of the "
        "tasks whose runs differ in reward.",
    )
    training: dict[str, Any] = Field(
        default={}, description="Hyperparameters of that method; see guide://methods/METHOD."
    )
    start_from: Literal["best", "last", "base"] = Field(
        default="best", description="Where a round's training starts: the best agent so far, the newest, or the first."
    )
    accumulate: bool | None = Field(
        default=None, description="Train on what earlier rounds selected, too; null: where start_from is base."
    )
    evaluation_tasks: int = Field(
        default=100, ge=1, le=100_000, description="Held-out tasks that rounds are chosen by; the same for all."
    )
    final_tasks: int = Field(
        default=200, ge=1, le=100_000, description="Other held-out tasks, on which start and result are compared."
    )
    repeats: int = Field(default=1, ge=1, le=256, description="Episodes for each held-out task.")
    patience: int | None = Field(
        default=2,
        ge=1,
        le=100,
        description="Ends after so many rounds in a row whose gain is not surely above 0 (95 % interval); null: off.",
    )
    reflect: int = Field(
        default=0,
        ge=0,
        le=16,
        description="Further tries at a task that always failed, after a reflection on why; 0: off.",
    )
    curriculum: LevelsConfig | None = Field(
        default=None, description="Explore in these environments, easy to hard (a list will do); null: off."
    )

    @model_validator(mode="before")
    @classmethod
    def _levels_alone(cls, data: Any) -> Any:
        levels = data.get("curriculum") if isinstance(data, Mapping) else None
        return {**data, "curriculum": {"levels": levels}} if isinstance(levels, list | tuple) else data

    @property
    def accumulates(self) -> bool:
        """Does a round learn from what earlier ones selected, too?"""
        return self.start_from == "base" if self.accumulate is None else self.accumulate

    @property
    def temperatures(self) -> tuple[float, float]:
        """Temperature of the first attempt at a task, and of the last."""
        return self.temperature if isinstance(self.temperature, tuple) else (self.temperature, self.temperature)

    @model_validator(mode="after")
    def _attempts_differ(self) -> Self:
        low, high = self.temperatures
        if low > high:
            raise _fault(f"temperature is {low:g}..{high:g}; give the lower one first, or one number")
        if self.attempts > 1 and high == 0:
            raise _fault(
                f"temperature is 0 and attempts is {self.attempts}: greedy attempts are all alike; raise temperature, or set "
                "attempts to 1"
            )
        if self.attempts == 1 and low != high:
            raise _fault("temperature is a pair and attempts is 1; give one number, or raise attempts")
        if self.train in {"dpo", "grpo"} and self.attempts < 2:
            raise _fault(
                f"train is {self.train!r}, which compares runs of a task, and attempts is 1; set attempts to 2 or more"
            )
        return self

    @model_validator(mode="after")
    def _settings_count(self) -> Self:
        """What would have no effect is refused: somebody believes that it has one."""
        used = {"top_k": {"ratio", "threshold"}, "threshold": {"threshold"}, "rejection": set[str]()}[self.select]
        if self.train == "grpo":
            used = set()
        for name in ("ratio", "threshold"):
            if name not in used and getattr(self, name) != type(self).model_fields[name].default:
                by = (
                    "train 'grpo', which learns from good and bad runs"
                    if self.train == "grpo"
                    else f"select {self.select!r}"
                )
                raise _fault(f"{name} is {getattr(self, name)} and does not count with {by}; leave it out")
        if self.train == "grpo" and self.select != "top_k":
            raise _fault(
                f"select is {self.select!r} and train 'grpo' learns from good and bad runs alike; leave select out"
            )
        if self.select == "threshold" and self.threshold is None:
            raise _fault("select is 'threshold' and threshold is null; give the least reward of a run to learn from")
        if self.train == "grpo" and self.reflect:
            raise _fault(
                f"reflect is {self.reflect} and train 'grpo' needs the log-probs of runs under the task's own prompt, which runs "
                "after a reflection do not have; set reflect to 0, or train to sft, bc or dpo"
            )
        return self


class RoundReport(Record):
    """What one round of an evolution came to."""

    round: int
    environment: str = Field(description="Where it explored.")
    explored: int = Field(description="Episodes.")
    explored_success: float | None = Field(description="Of those with a verdict.")
    retried: int = Field(default=0, description="Further episodes after a reflection.")
    selected: int = Field(description="Runs of this round to learn from.")
    left_out: dict[str, int] = Field(default_factory=dict, description="Reason -> runs.")
    dataset_id: str | None = None
    rows: int = Field(default=0, description="Rows of its dataset, those of earlier rounds included.")
    agent: str | None = None
    evaluation_id: str | None = None
    success: float | None = Field(default=None, description="On the tasks that rounds are chosen by.")
    gain: float | None = Field(default=None, description="Over the best agent before, paired by task.")
    ci_low: float | None = None
    ci_high: float | None = None
    final_loss: float | None = None
    decision: Literal["better", "ahead", "kept", "nothing_selected", "not_compared"] = Field(
        description="better: surely above the best before; ahead: above it, perhaps by chance; kept: not above it, the best "
        "stays; nothing_selected: no training; not_compared: no task with two verdicts."
    )


def round_dataset_id(job_id: str, number: int) -> str:
    """The id of the dataset that a round of an evolution makes."""
    return f"ds-{job_id.removeprefix('job-')}-{number}"


def _fault(message: str) -> PydanticCustomError:
    return PydanticCustomError("evolve", "{message}", {"message": message})
