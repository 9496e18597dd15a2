"""Settings that are objects, such as those of adapters, and the base of all settings."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from quintain.records.record import STORED, Record

_NUMBERS = {int, float}


class Settings(Record):
    """Base of all settings: a boolean is not accepted as a number, and settings that contradict each other are refused."""

    @model_validator(mode="before")
    @classmethod
    def _numbers(cls, data: Any) -> Any:
        for name, field in cls.model_fields.items() if isinstance(data, Mapping) else ():
            if isinstance(data.get(name), bool) and _NUMBERS & {field.annotation, *get_args(field.annotation)}:
                raise PydanticCustomError("switch", f"`{name}` cannot be true or false; give a number")
        return data

    @model_validator(mode="after")
    def _no_conflict(self, info: ValidationInfo) -> Self:
        for conflict in () if info.context == STORED else self.conflicts():
            raise PydanticCustomError("conflict", "{text}", {"text": conflict})
        return self

    def conflicts(self) -> Iterator[str]:
        """Yield why these values cannot be used together, each with the remedy. The first is shown."""
        yield from ()

    def is_changed(self, name: str) -> bool:
        """Whether a setting differs from its default."""
        return bool(getattr(self, name) != type(self).model_fields[name].default)

    def without_effect(self, names: Iterable[str], why: str) -> Iterator[str]:
        """Yield a conflict for each of these settings that is changed; `why` states what keeps it from its effect, and a remedy."""
        for name in names:
            if self.is_changed(name):
                yield f"{name} is {getattr(self, name)} and {why}, or leave {name} out"


class LoraConfig(Settings):
    """Low-rank adapters (Hu et al. 2021, arXiv 2106.09685): W + (alpha / rank) B A, with B and A trained."""

    rank: int = Field(default=16, ge=1, le=1024, description="Columns of B and rows of A.")
    alpha: float = Field(default=32.0, gt=0, le=4096, description="Scale of the update, divided by the rank.")
    dropout: float = Field(default=0.0, ge=0, lt=1, description="Share of A's inputs dropped while training; 0: off.")
    targets: Literal["all-linear"] | Annotated[tuple[str, ...], Field(max_length=1000)] = Field(
        default="all-linear", description="Module names, or all linear layers."
    )
    rslora: bool = Field(
        default=False, description="Scale by alpha / sqrt(rank) (rsLoRA, Kalajdzievski 2023, arXiv 2312.03732)."
    )
    dora: bool = Field(
        default=False, description="Learn magnitude and direction apart (DoRA, Liu et al. 2024, arXiv 2402.09353)."
    )
    init: Literal["default", "pissa"] = Field(
        default="default",
        description="default: B is 0; pissa: the weights' principal part (arXiv 2404.02948), stored with twice the rank.",
    )
    b_rate_ratio: float = Field(
        default=1.0,
        ge=1,
        le=1000,
        description="Learning rate of B over that of A (LoRA+, arXiv 2402.12354: 16); 1: off.",
    )

    @property
    def stored(self) -> LoraConfig:
        """Return the settings of the stored adapter: pissa's has the start beside the trained part, at the same scale."""
        if self.init != "pissa":
            return self
        alpha = self.alpha * (math.sqrt(2) if self.rslora else 2.0)
        return self.model_copy(update={"rank": 2 * self.rank, "alpha": alpha, "init": "default"})

    @field_validator("targets", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """Names with commas, as LLaMA-Factory has them, are a list."""
        if not isinstance(value, str) or value == "all-linear":
            return value
        if not re.fullmatch(r"[\w., -]*", value):
            raise PydanticCustomError("pattern", "it is a pattern; give module names such as q_proj, or all-linear")
        return [name.strip() for name in value.split(",")]

    @field_validator("targets")
    @classmethod
    def _some_targets(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if not all(value) or not value:
            raise PydanticCustomError(
                "no_target", "it names no module; give module names such as q_proj, or all-linear"
            )
        return value


class CurriculumConfig(Settings):
    """From short, well-rewarded examples to long, badly rewarded ones."""

    start_ratio: float = Field(default=0.3, gt=0, le=1, description="Share of the easiest examples in the first epoch.")
    warmup_epochs: int = Field(default=1, ge=1, le=1000, description="Epochs until every example takes part.")


class CoresetConfig(Settings):
    """Train on a chosen part of the data."""

    method: Literal["loss", "diversity", "hybrid", "random"] = Field(
        default="hybrid", description="Highest loss under the start model, farthest apart, both, or by chance."
    )
    size: int = Field(ge=1, le=10_000_000, description="Examples to keep; at least as many as there are: all.")


class ReplayConfig(Settings):
    """Mix in examples that earlier jobs of the same buffer were trained on, against forgetting."""

    buffer: str = Field(default="default", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", description="Buffer's name.")
    size: int = Field(default=2048, ge=1, le=1_000_000, description="Examples that the buffer keeps.")
    ratio: float = Field(default=0.25, gt=0, le=10, description="Replayed examples for each new one.")


class EWCConfig(Settings):
    """Elastic weight consolidation (Kirkpatrick et al. 2017, arXiv 1612.00796): hold the weights that an earlier skill needs.

    The penalty is strength / 2 * sum_i F_i (w_i - w*_i)^2, with w* the weights of the agent that learned the skill, and F the
    diagonal of its Fisher information on the runs of the skill, scaled to a mean of 1.
    """

    stage: str | None = Field(
        default=None,
        max_length=40,
        description="Recipes: label of the earlier stage whose skill is kept; null: `agent`.",
    )
    agent: str | None = Field(
        default=None,
        max_length=1000,
        description="Agent that learned the skill: the start model or one that it was trained from; null: the start model.",
    )
    dataset: str | None = Field(
        default=None,
        max_length=200,
        description="Dataset of the skill's runs, of kind sft or text; null: the one that stage or agent was trained on.",
    )
    strength: float = Field(
        default=100.0,
        gt=0,
        le=1_000_000,
        description="Weight of the penalty: the lambda of the paper, for F of mean 1.",
    )
    runs: int = Field(
        default=200, ge=1, le=100_000, description="Runs on which F is measured, drawn by seed; one backward pass each."
    )
    labels: Literal["model", "recorded"] = Field(
        default="model",
        description="Tokens whose gradients give F. model: drawn from the model, the Fisher information; recorded: those of the "
        "runs, the empirical Fisher (arXiv 1905.12558).",
    )

    def conflicts(self) -> Iterator[str]:
        """See `Settings`."""
        yield from super().conflicts()
        if self.stage is not None and self.agent is not None:
            yield "it has both stage and agent; name the stage of a recipe, or the agent, and leave the other out"
