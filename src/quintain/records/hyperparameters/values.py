"""Hyperparameters of methods whose result does not act: reward models, process reward models and retrievers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from quintain.records.hyperparameters.shared import TrainingConfig


class ValueConfig(TrainingConfig):
    """Settings of the methods whose result values runs or finds tools, instead of acting."""

    def conflicts(self) -> Iterator[str]:
        """See `Settings`."""
        yield from super().conflicts()
        why = f"the result of {getattr(self, 'method', 'this method')} writes nothing; train a policy"
        yield from self.without_effect(("kl_stop", "sample_every_steps", "evaluate_every_steps"), why)
        if self.ewc is not None:
            yield (
                "ewc is set, and a model that values runs no longer has the skill to act; set ewc to null, or train a policy"
            )


Head = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
"""Name of a value of a run or step, such as `value`, or a part of its label: relevance, correctness or progress."""


class RewardConfig(ValueConfig):
    """A reward model of whole runs, from pairs (Bradley-Terry; Ouyang et al. 2022, arXiv 2203.02155, eq. 1)."""

    method: Literal["reward"] = "reward"
    margin_weight: float = Field(
        default=0.0, ge=0, le=1000, description="How much of a pair's margin the rewards must differ by; 0: off."
    )
    centring: float = Field(
        default=0.01,
        ge=0,
        le=100,
        description="Weight of (r_chosen + r_rejected)^2, which keeps rewards around 0 (arXiv 2312.09244, eq. 2); 0: off.",
    )
    heads: tuple[Head, ...] | None = Field(
        default=None,
        max_length=20,
        description="Parts of the reward, mixed by learned weights (arXiv 2406.12845); []: one number; null: all that are labelled.",
    )
    parts_weight: float = Field(
        default=1.0, ge=0, le=1000, description="Weight of the cross-entropy of the parts beside that of the pairs."
    )


class RetrieverConfig(ValueConfig):
    """A retriever of tools: needs near the tools that answered them (multiple negatives; Henderson et al. 2017, arXiv 1705.00652)."""

    method: Literal["retriever"] = "retriever"
    batch_size: int = Field(
        default=32, ge=2, le=4096, description="Calls of a step: the tools of one are negatives of the others."
    )
    max_length: int | None = Field(
        default=256, ge=16, le=1_000_000, description="Tokens of a need or a tool; null: the model's context."
    )
    trunk: Literal["model", "new"] = Field(
        default="model",
        description="model: the start model, mean of its last states; new: token embeddings and a tokenizer learnt from the calls alone, "
        "better than a tiny start model.",
    )
    scale: float = Field(default=20.0, gt=0, le=1000, description="Factor of the cosines before the softmax.")
    hard_negatives: int = Field(
        default=1, ge=0, le=64, description="Tools for each call that its run offered and did not call; 0: off."
    )

    def conflicts(self) -> Iterator[str]:
        """See `Settings`."""
        yield from super().conflicts()
        if self.trunk == "new" and self.lora is not None:
            yield (
                "trunk is 'new' and lora is set, and new weights have no base to adapt; set lora to null, or trunk to 'model'"
            )
        if self.trunk == "new" and self.frozen_layers:
            yield "trunk is 'new' and frozen_layers is set, and a new trunk has no blocks; set frozen_layers to 0, or trunk to 'model'"
        if self.processes > 1:
            yield (
                f"processes is {self.processes}, and the calls of a step are negatives of each other, which processes do not "
                "share; set processes to 1"
            )


class PRMConfig(ValueConfig):
    """A process reward model: the value of each step, from soft labels (Lightman et al. 2023, arXiv 2305.20050)."""

    method: Literal["prm"] = "prm"
    heads: tuple[Head, ...] | None = Field(
        default=None, min_length=1, max_length=20, description="What steps are valued by; null: all that is labelled."
    )
