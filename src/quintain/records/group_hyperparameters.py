"""Hyperparameters of acting while learning, and of policy gradients on groups of runs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from quintain.records.common_hyperparameters import Settings, TrainingConfig


class OnlineConfig(Settings):
    """How a method acts while it learns, beside the settings that it has in common with others."""

    group_size: int = Field(default=8, ge=2, le=256, description="Online: episodes for each task.")
    tasks_per_step: int = Field(default=8, ge=1, le=4096, description="Online: tasks whose groups make a rollout.")
    updates_per_rollout: int = Field(default=1, ge=1, le=64, description="Online: optimizer steps on each rollout.")
    rollouts: int = Field(
        default=20, ge=1, le=1_000_000, description="Online: how many rollouts; epochs and batch_size do not count."
    )
    temperature: float = Field(default=1.0, gt=0, le=10, description="Online: sampling temperature.")
    max_new_tokens: int = Field(default=256, ge=1, le=100_000, description="Online: tokens of a turn.")
    max_turns: int | None = Field(default=None, ge=1, le=1000, description="Online: null: the environment's own limit.")


class GroupLossConfig(TrainingConfig):
    """The loss of group-relative policy optimisation."""

    method: Literal["grpo"] = "grpo"
    loss: Literal["grpo", "dapo", "dr_grpo", "gspo", "cispo"] = Field(
        default="dapo",
        description="grpo: mean a run, then over runs; dapo: mean over tokens (arXiv 2503.14476); dr_grpo: sum by a "
        "constant (arXiv 2503.20783); gspo: ratio of the sequence (arXiv 2507.18071); cispo: clipped weight "
        "(arXiv 2506.13585).",
    )
    clip_low: float = Field(default=0.2, ge=0, le=1, description="The ratio is cut below 1 - clip_low.")
    clip_high: float = Field(default=0.2, ge=0, le=100, description="The ratio is cut above 1 + clip_high.")
    kl_coefficient: float = Field(
        default=0.0, ge=0, le=100, description="Weight of the k3 estimate of the KL to the start model; 0: off."
    )
    scale_rewards: bool = Field(
        default=True, description="Divide advantages by the group's standard deviation (dr_grpo leaves it out)."
    )
    step_level: bool = Field(
        default=False, description="Spread a run's advantage over its steps by their values, mean and sign kept."
    )
    max_tokens: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Constant of dr_grpo; null: the longest run's, online max_new_tokens times max_turns.",
    )
