"""Hyperparameters that all methods share; those of single methods are in `hyperparameters`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from quintain.records.agent import Quantization
from quintain.records.record import Record

Precision = Literal["auto", "bf16", "fp16", "fp32"]
Sink = Literal["wandb", "tensorboard", "trackio"]


_NUMBERS = {int, float}


class Settings(Record):
    """Base of all settings: a boolean is not accepted as a number."""

    @model_validator(mode="before")
    @classmethod
    def _numbers(cls, data: Any) -> Any:
        for name, field in cls.model_fields.items() if isinstance(data, Mapping) else ():
            if isinstance(data.get(name), bool) and _NUMBERS & {field.annotation, *get_args(field.annotation)}:
                raise PydanticCustomError("switch", f"`{name}` cannot be true or false; give a number")
        return data


class LoraConfig(Settings):
    """Low-rank adapters (Hu et al. 2021, arXiv 2106.09685): W + (alpha / rank) B A, with B and A trained."""

    rank: int = Field(default=16, ge=1, le=1024, description="Columns of B and rows of A.")
    alpha: float = Field(default=32.0, gt=0, le=4096, description="Scale of the update, divided by the rank.")
    dropout: float = Field(default=0.0, ge=0, lt=1, description="Share of A's inputs dropped while training; 0: off.")
    targets: Literal["all-linear"] | tuple[str, ...] = Field(
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
    def stored_rank(self) -> int:
        """Rank of the stored adapter: pissa's has the start beside the trained part."""
        return 2 * self.rank if self.init == "pissa" else self.rank

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

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if self.stage is not None and self.agent is not None:
            raise PydanticCustomError(
                "two_origins",
                "it has both stage and agent; name the stage of a recipe, or the agent, and leave the other out",
            )
        return self


class TrainingConfig(Settings):
    """Hyperparameters of every method."""

    epochs: float = Field(default=3.0, ge=0.001, le=1000, description="Passes over the training split, above 0.")
    max_steps: int | None = Field(
        default=None, ge=1, le=1_000_000, description="Stop after so many optimizer steps; null: off."
    )
    batch_size: int = Field(
        default=16, ge=1, le=4096, description="Examples (trajectories, pairs or groups) in one optimizer step."
    )
    batch_tokens: int = Field(
        default=8192, ge=64, le=1_000_000, description="Tokens in one forward pass, shared prefixes counted once."
    )
    learning_rate: float | None = Field(
        default=None, gt=0, le=1, description="Peak learning rate of AdamW; null: by method, model size and adapters."
    )
    warmup_ratio: float = Field(default=0.1, ge=0, le=1, description="Share of the steps with a rising learning rate.")
    warmup_steps: int | None = Field(
        default=None, ge=0, le=1_000_000, description="Steps with a rising learning rate; null: by warmup_ratio."
    )
    schedule: Literal["cosine", "linear", "constant"] = Field(default="cosine", description="Decay after the warm-up.")
    weight_decay: float = Field(default=0.0, ge=0, le=1, description="Of matrices; 0: off.")
    grad_clip: float = Field(default=1.0, ge=0, le=1000, description="Bound of the gradient norm; 0: off.")
    max_length: int | None = Field(
        default=None, ge=16, le=1_000_000, description="Tokens of a row; null: the model's context."
    )
    lora: LoraConfig | None = Field(default=None, description="Train adapters only; null: train all weights.")
    frozen_layers: int = Field(
        default=0,
        ge=0,
        le=1000,
        description="Lowest blocks that stay as they are, with the embeddings (arXiv 1911.03090); 0: off.",
    )
    quantization: Quantization | None = Field(
        default=None,
        description="QLoRA: linear layers of the frozen base in NF4 or int8, by bitsandbytes; null: as the agent's are.",
    )
    optimizer: Literal["adamw", "adamw_8bit", "adamw_bf16"] = Field(
        default="adamw",
        description="adamw_8bit: AdamW with moments in 8 bits, by bitsandbytes; adamw_bf16: all weights, gradients and moments in "
        "bf16, rounded stochastically (arXiv 2010.06192).",
    )
    precision: Precision = Field(
        default="auto",
        description="auto: bf16 where the GPU has it, or products measure clearly faster on the CPU, else fp32; fp16 scales the "
        "loss.",
    )
    processes: int = Field(
        default=1,
        ge=1,
        le=1024,
        description="Processes that share each step; on CUDA at most one a GPU; 1: off.",
    )
    machines: int = Field(
        default=1,
        ge=1,
        le=256,
        description="Machines that hold equal parts of the processes; on the others the operator starts them; 1: this one.",
    )
    rendezvous: str | None = Field(
        default=None,
        pattern=r"^[^\s:]+:[0-9]{1,5}$",
        description="host:port of this machine where processes of the others join; null: none can.",
    )
    sharding: Literal["none", "full"] = Field(
        default="none",
        description="full: parameters, gradients and optimizer state are divided over the processes (FSDP2); none: each "
        "holds the whole model.",
    )
    gradient_checkpointing: bool = Field(
        default=False, description="Compute activations twice to hold fewer: a quarter slower, a quarter less memory."
    )
    offload_activations: bool = Field(
        default=False, description="On a GPU, hold activations in main memory until the backward pass."
    )
    share_prefixes: bool = Field(default=True, description="Compute tokens once that rows of a step share.")
    checkpoint_every_steps: int = Field(
        default=20, ge=1, le=1_000_000, description="Optimizer steps from one checkpoint to the next."
    )
    keep_checkpoints: int = Field(default=2, ge=1, le=100, description="Newest checkpoints that stay on disk.")
    validate_every_steps: int | None = Field(
        default=None, ge=1, le=1_000_000, description="Null: after each epoch; needs a validation split."
    )
    early_stopping_patience: int | None = Field(
        default=None, ge=1, le=1000, description="Validations without a lower loss before the run ends; null: off."
    )
    keep_best: bool = Field(
        default=True, description="End with the weights of the lowest validation loss, where there is a split for it."
    )
    sample_every_steps: int | None = Field(
        default=None, ge=1, le=1_000_000, description="Let the model write on fixed probes; null: off."
    )
    evaluate_every_steps: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Play held-out tasks before the first step, every so many steps and after the last; null: never.",
    )
    evaluate_tasks: int = Field(default=20, ge=1, le=10_000, description="Held-out tasks of each evaluation.")
    evaluate_environment: str | None = Field(
        default=None, max_length=4000, description="Whose held-out tasks; null: the environment that it is trained in."
    )
    kl_stop: float | None = Field(
        default=None,
        gt=0,
        le=1000,
        description="While acting: end when the KL divergence from the start model passes this, in nats a token; null: off.",
    )
    ewc: EWCConfig | None = Field(default=None, description="Keep an earlier skill; null: off.")
    report_to: tuple[Sink, ...] = Field(default=(), description="Where metrics go besides the job; extras to install.")

    @field_validator("report_to", mode="before")
    @classmethod
    def _one_sink(cls, value: Any) -> Any:
        """One name, or `none`, as Hugging Face's trainer takes it."""
        return ([] if value == "none" else [value]) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _quantised_weights_stay_frozen(self) -> Self:
        if self.quantization is not None and self.lora is None:
            raise PydanticCustomError(
                "no_adapters",
                "quantization is '{kind}' and lora is null, and quantised weights cannot be trained; set lora to {empty} to train "
                "adapters on them, or quantization to null",
                {"kind": self.quantization, "empty": "{}"},
            )
        if self.sharding != "none" and (self.quantization is not None or self.optimizer != "adamw"):
            raise PydanticCustomError(
                "not_sharded",
                "sharding is 'full', which divides neither quantised weights nor moments in 8 bits or bf16; set sharding to 'none', or "
                "quantization to null and optimizer to 'adamw'",
            )
        return self

    @model_validator(mode="after")
    def _bf16_weights_are_all_and_in_one_process(self) -> Self:
        if self.optimizer != "adamw_bf16":
            return self
        if self.lora is not None:
            raise PydanticCustomError(
                "no_adapters",
                "optimizer is 'adamw_bf16', which trains all weights, and lora is set; set lora to null, or optimizer to 'adamw_8bit'",
            )
        if self.precision not in ("auto", "bf16") or self.processes > 1:
            raise PydanticCustomError(
                "one_bf16_process",
                "optimizer is 'adamw_bf16', which computes in bf16 in one process, and precision is '{precision}' with "
                "processes {processes}; set precision to 'auto' and processes to 1, or optimizer to 'adamw'",
                {"precision": self.precision, "processes": self.processes},
            )
        return self

    @model_validator(mode="after")
    def _trained_parts_fit(self) -> Self:
        pissa = self.lora is not None and self.lora.init == "pissa"
        obstacles = (
            (
                self.frozen_layers and self.lora,
                "frozen_layers is set",
                "lora too, which freezes every layer",
                "frozen_layers to 0",
            ),
            (
                self.frozen_layers and self.sharding != "none",
                "frozen_layers is set",
                "sharding is 'full'",
                "sharding to 'none'",
            ),
            (pissa and self.quantization, "lora.init is 'pissa'", "quantization is set", "lora.init to 'default'"),
            (
                pissa and self.weight_decay,
                "lora.init is 'pissa'",
                "weight_decay would shrink its constants",
                "weight_decay to 0",
            ),
            (pissa and self.sharding != "none", "lora.init is 'pissa'", "sharding is 'full'", "sharding to 'none'"),
        )
        for is_met, one, other, remedy in obstacles:
            if is_met:
                raise PydanticCustomError(
                    "parts_conflict", "{one}, and {other}; set {remedy}", {"one": one, "other": other, "remedy": remedy}
                )
        return self

    @model_validator(mode="after")
    def _evaluation_fits(self) -> Self:
        if self.evaluate_every_steps is None:
            if self.evaluate_environment is not None:
                raise PydanticCustomError(
                    "no_evaluation",
                    "evaluate_environment is set and evaluate_every_steps is null, so that no task is played; set "
                    "evaluate_every_steps to a number of steps, or leave evaluate_environment out",
                )
            return self
        reasons = {
            "self_play is set": getattr(self, "self_play", None) is not None,
            "sharding is 'full', so that no process has the whole model": self.sharding != "none",
        }
        if why := next((why for why, applies in reasons.items() if applies), None):
            raise PydanticCustomError(
                "no_evaluation",
                "evaluate_every_steps is {every} and {why}; set evaluate_every_steps to null, and evaluate the new agent",
                {"every": self.evaluate_every_steps, "why": why},
            )
        return self

    @model_validator(mode="after")
    def _machines_fit(self) -> Self:
        if self.processes % self.machines:
            raise PydanticCustomError(
                "uneven_machines",
                "processes is {processes}, which {machines} machines cannot share equally; set processes to a multiple of "
                "machines",
                {"processes": self.processes, "machines": self.machines},
            )
        if self.machines > 1 and self.rendezvous is None:
            raise PydanticCustomError(
                "no_rendezvous",
                "machines is {machines} and rendezvous is null: the others have nowhere to join; set rendezvous to host:port "
                "of this machine, such as 10.0.0.1:29600, or machines to 1",
                {"machines": self.machines},
            )
        return self

    @model_validator(mode="after")
    def _shards_fit(self) -> Self:
        if self.sharding != "none" and self.processes == 1:
            raise PydanticCustomError(
                "one_process",
                "sharding is 'full' and processes is 1: there is nothing to divide the model over; set processes to 2 or "
                "more, or sharding to 'none'",
            )
        if self.sharding != "none" and self.ewc is not None:
            raise PydanticCustomError(
                "no_whole_model",
                "sharding is 'full' and ewc is set: no process has the whole model, on which the Fisher information is measured; "
                "set sharding to 'none', or ewc to null and mix in earlier runs with replay",
            )
        if self.sharding != "none" and self.sample_every_steps is not None:
            raise PydanticCustomError(
                "no_whole_model",
                "sharding is 'full' and sample_every_steps is {every}: no process has the whole model, so it cannot "
                "write while it is trained; set sample_every_steps to null, or sharding to 'none'",
                {"every": self.sample_every_steps},
            )
        return self
