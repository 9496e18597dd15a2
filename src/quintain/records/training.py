"""Hyperparameters, one strict model a method; every default of training lives here and nowhere else."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from quintain.records.record import Record

Method = Literal["sft"]


class LoraConfig(Record):
    """Low-rank adapters (Hu et al. 2021, arXiv 2106.09685): W + (alpha / rank) B A, with B and A trained."""

    rank: int = Field(default=16, ge=1, le=1024)
    alpha: float = Field(default=32.0, gt=0, le=4096)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    targets: Literal["all-linear"] | tuple[str, ...] = Field(
        default="all-linear", description="Module names, or all linear layers."
    )


class SFTConfig(Record):
    """Supervised fine-tuning on what the agent wrote."""

    epochs: float = Field(default=3.0, gt=0, le=1000, description="Passes over the training split.")
    max_steps: int | None = Field(
        default=None, ge=1, le=1_000_000, description="Stop after so many optimizer steps; null: off."
    )
    batch_size: int = Field(default=16, ge=1, le=4096, description="Trajectories in one optimizer step.")
    batch_tokens: int = Field(
        default=8192, ge=64, le=1_000_000, description="Tokens in one forward pass, padding included."
    )
    learning_rate: float = Field(default=5e-4, gt=0, le=1, description="Peak learning rate of AdamW.")
    warmup_ratio: float = Field(default=0.1, ge=0, le=1, description="Share of the steps with a rising learning rate.")
    schedule: Literal["cosine", "linear", "constant"] = Field(default="cosine", description="Decay after the warm-up.")
    weight_decay: float = Field(default=0.0, ge=0, le=1)
    grad_clip: float = Field(default=1.0, ge=0, le=1000, description="Bound of the gradient norm; 0: off.")
    max_length: int | None = Field(
        default=None, ge=16, le=1_000_000, description="Tokens of a row; null: the model's context."
    )
    lora: LoraConfig | None = Field(default=None, description="Train adapters only; null: train all weights.")
    checkpoint_every_steps: int = Field(default=20, ge=1, le=1_000_000)
    keep_checkpoints: int = Field(default=2, ge=1, le=100)
