"""Hyperparameters of policy gradients on groups of runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, field_validator

from quintain.records.hyperparameters.shared import TrainingConfig

UNBOUNDED = ("sapo", "vespo")
"""Forms that weigh ratios smoothly instead of clipping them."""

_CLIP_BOUNDS = {
    **dict.fromkeys(("gspo", "luspo"), (3e-4, 4e-4)),
    "cispo": (1.0, 0.2),
    **dict.fromkeys(UNBOUNDED, (1.0, math.inf)),
}
"""Bounds of the authors, where the form of the loss needs others than 0.2: a run's mean ratio stays near 1."""


class GroupLossConfig(TrainingConfig):
    """The loss of group-relative policy optimisation."""

    method: Literal["grpo"] = "grpo"
    loss: Literal["grpo", "dapo", "dr_grpo", "gspo", "cispo", "sapo", "luspo", "vespo"] = Field(
        default="dapo",
        description="grpo: mean a run, then over runs; dapo: mean over tokens (arXiv 2503.14476); dr_grpo: sum by a "
        "constant (arXiv 2503.20783); gspo: ratio of the sequence (arXiv 2507.18071); cispo: clipped weight "
        "(arXiv 2506.13585); sapo: a soft gate in place of the clip (arXiv 2511.20347); luspo: gspo summed over a run (arXiv 2602.05261); "
        "vespo: a soft weight of the sequence (arXiv 2602.10693).",
    )
    clip_low: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="The ratio is cut below 1 - clip_low; null: 0.2, in gspo and luspo 0.0003, in cispo 1: not at all.",
    )
    clip_high: float | None = Field(
        default=None,
        ge=0,
        le=100,
        description="The ratio is cut above 1 + clip_high; null: 0.2, in gspo and luspo 0.0004.",
    )
    kl_coefficient: float = Field(
        default=0.0, ge=0, le=100, description="Weight of the k3 estimate of the KL to the start model; 0: off."
    )
    delta: float | None = Field(
        default=None,
        gt=1,
        le=1000,
        description="Two-sided clip: bound of the ratio where the advantage is negative (arXiv 2505.07291); null: off.",
    )
    scale_rewards: Literal["group", "batch", "none"] = Field(
        default="group",
        description="Divide advantages by the standard deviation of the group's rewards (dr_grpo leaves it out) or of the "
        "step's (arXiv 2508.08221).",
    )
    importance_cap: float | None = Field(
        default=None,
        gt=0,
        le=1000,
        description="Weigh tokens by the trainer's probability over the sampler's, at most this (truncated importance "
        "sampling); null: off.",
    )
    mask_truncated: bool = Field(
        default=False, description="Leave out runs that a limit cut off; their rewards still count (arXiv 2503.14476)."
    )
    overlong_tokens: int | None = Field(
        default=None,
        ge=1,
        le=10_000_000,
        description="Agent tokens of a run from which its reward is less by overlong_penalty (arXiv 2503.14476, eq. 13); "
        "null: off.",
    )
    overlong_buffer: int | None = Field(
        default=None,
        ge=1,
        le=10_000_000,
        description="Tokens before overlong_tokens over which the penalty rises; null: a fifth of them.",
    )
    overlong_penalty: float = Field(default=1.0, gt=0, le=1000, description="Penalty of a run that is too long.")
    step_level: bool = Field(
        default=False, description="Spread a run's advantage over its steps by their values, mean and sign kept."
    )
    max_tokens: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Constant of dr_grpo; null: the longest run's, online max_new_tokens times max_turns.",
    )

    @property
    def clip_bounds(self) -> tuple[float, float]:
        """How far the ratio may fall below 1, and rise above it."""
        low, high = _CLIP_BOUNDS.get(self.loss, (0.2, 0.2))
        return low if self.clip_low is None else self.clip_low, high if self.clip_high is None else self.clip_high

    @field_validator("scale_rewards", mode="before")
    @classmethod
    def _by_group_or_not(cls, value: Any) -> Any:
        """True and false, as in TRL and in stored jobs: by group, or not at all."""
        return {True: "group", False: "none"}[value] if isinstance(value, bool) else value

    def conflicts(self) -> Iterator[str]:
        """See `Settings`."""
        yield from super().conflicts()
        _, high = self.clip_bounds
        if self.loss in UNBOUNDED:
            why = f"loss is '{self.loss}', which has no bounds; set loss to 'grpo'"
            yield from self.without_effect(("clip_low", "clip_high", "delta"), why)
        elif self.delta is not None and (self.loss == "cispo" or self.delta <= 1 + high):
            yield (
                f"delta is {self.delta}, loss '{self.loss}' and clip_high {high}: delta bounds the ratio beyond "
                f"1 + clip_high, and cispo has no such term; set delta above {1 + high}, loss to another than cispo, or "
                "delta to null"
            )
        if self.loss == "vespo" and self.importance_cap is not None:
            yield (
                f"importance_cap is {self.importance_cap} and loss is 'vespo', which weighs a run by its probability over the "
                "sampler's already; set importance_cap to null, or loss to another"
            )
        if self.scale_rewards == "batch" and self.loss == "dr_grpo":
            yield (
                "scale_rewards is 'batch' and loss is 'dr_grpo', which leaves advantages as they are; set scale_rewards to "
                "'none', or loss to another"
            )
        if self.loss != "dr_grpo":
            why = (
                f"loss is '{self.loss}', which divides by no constant; set loss to 'dr_grpo', set max_new_tokens to bound what the "
                "agent writes in a turn"
            )
            yield from self.without_effect(("max_tokens",), why)
        if self.overlong_tokens is None:
            why = "overlong_tokens is null, so that no run is too long; set overlong_tokens"
            yield from self.without_effect(("overlong_buffer", "overlong_penalty"), why)
        elif (self.overlong_buffer or 0) > self.overlong_tokens:
            yield (
                f"overlong_buffer is {self.overlong_buffer} and overlong_tokens {self.overlong_tokens}: the penalty would begin "
                "below 0 tokens; set overlong_buffer to at most overlong_tokens"
            )
