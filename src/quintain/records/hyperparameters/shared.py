"""Hyperparameters that all methods share; those of single methods are in `methods`."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any, Literal

from pydantic import Field, field_validator

from quintain.records.agent import Quantization
from quintain.records.hyperparameters.setting_groups import (
    EWCConfig,
    LoraConfig,
    Settings,
)

Precision = Literal["auto", "bf16", "fp16", "fp32"]
Sink = Literal["wandb", "tensorboard", "trackio"]


class TrainingConfig(Settings):
    """Hyperparameters of every method."""

    epochs: float = Field(default=3.0, ge=0.001, le=1000, description="Passes over the training split, above 0.")
    max_steps: int | None = Field(
        default=None, ge=1, le=1_000_000, description="Stop after so many optimizer steps; null: off."
    )
    max_minutes: float | None = Field(
        default=None, gt=0, le=1_000_000, description="End after so many minutes of steps, as trained then; null: off."
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
    schedule: Literal["cosine", "linear", "constant", "inverse_sqrt", "warmup_stable_decay"] = Field(
        default="cosine",
        description="Decay after the warm-up; inverse_sqrt: by the square root of the step; warmup_stable_decay: in the last steps "
        "alone (arXiv 2404.06395).",
    )
    cycles: int = Field(
        default=1, ge=1, le=1000, description="cosine: equal decays, each from the peak rate (arXiv 1608.03983)."
    )
    decay_steps: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="warmup_stable_decay: last steps, in which the rate falls; null: a tenth of all.",
    )
    decay_shape: Literal["cosine", "linear", "1-sqrt"] = Field(
        default="cosine",
        description="warmup_stable_decay: how it falls; 1-sqrt: by the square root of what is done (arXiv 2405.18392).",
    )
    min_rate_ratio: float = Field(default=0.0, ge=0, le=1, description="Share of the peak rate at which a decay ends.")
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
    target_success: float | None = Field(
        default=None, gt=0, le=1, description="End when so large a share of the held-out tasks is solved; null: off."
    )
    kl_stop: float | None = Field(
        default=None,
        gt=0,
        le=1000,
        description="While acting: end when the KL divergence from the start model passes this, in nats a token; null: off.",
    )
    ewc: EWCConfig | None = Field(default=None, description="Keep an earlier skill; null: off.")
    report_to: tuple[Sink, ...] = Field(default=(), description="Where metrics go besides the job; extras to install.")
    report_project: str | None = Field(
        default=None,
        pattern=r"^[^/\\#?%:\x00-\x1f]{1,128}$",
        description="Project there; null: the operator's, such as WANDB_PROJECT, else quintain.",
    )
    report_run: str | None = Field(
        default=None,
        pattern=r"^[^\x00-\x1f]{1,128}$",
        description="The run's name in wandb and trackio; null: that of the agent.",
    )

    @property
    def processes_per_machine(self) -> int:
        """Processes on each of the machines."""
        return self.processes // self.machines

    @field_validator("report_to", mode="before")
    @classmethod
    def _one_sink(cls, value: Any) -> Any:
        """One name, or `none`, as Hugging Face's trainer takes it."""
        names = [value] if isinstance(value, str) else value
        return [] if names in (["none"], ("none",)) else names

    def conflicts(self) -> Iterator[str]:
        """See `Settings`."""
        yield from super().conflicts()
        yield from self._conflicts_of_sharding()
        yield from self._conflicts_of_weights()
        yield from self._conflicts_of_schedule()
        if self.evaluate_every_steps is None:
            why = (
                "evaluate_every_steps is null, so that no task is played; set evaluate_every_steps to a number of steps"
            )
            yield from self.without_effect(("evaluate_environment", "evaluate_tasks", "target_success"), why)
        if self.evaluate_every_steps is not None and getattr(self, "self_play", None) is not None:
            yield (
                f"evaluate_every_steps is {self.evaluate_every_steps} and self_play is set; set evaluate_every_steps to null, and "
                "evaluate the new agent"
            )
        if self.processes % self.machines:
            yield (
                f"processes is {self.processes}, which {self.machines} machines cannot share equally; set processes to a "
                "multiple of machines"
            )
        if self.machines > 1 and self.rendezvous is None:
            yield (
                f"machines is {self.machines} and rendezvous is null: the others have nowhere to join; set rendezvous to "
                "host:port of this machine, such as 10.0.0.1:29600, or machines to 1"
            )

    def _conflicts_of_schedule(self) -> Iterator[str]:
        """Yield settings of a decay that the schedule lacks."""
        of = {
            **dict.fromkeys(("decay_steps", "decay_shape"), ("warmup_stable_decay",)),
            "cycles": ("cosine",),
            "min_rate_ratio": ("cosine", "linear", "warmup_stable_decay"),
        }
        for name, schedules in of.items():
            if self.schedule not in schedules:
                why = f"schedule is '{self.schedule}', which does not have it; set schedule to '{schedules[0]}'"
                yield from self.without_effect((name,), why)

    def _conflicts_of_weights(self) -> Iterator[str]:
        """Yield what the choice of trained weights and their formats forbids."""
        if self.quantization is not None and self.lora is None:
            yield (
                f"quantization is '{self.quantization}' and lora is null, and quantised weights cannot be trained; set lora to {{}} "
                "to train adapters on them, or quantization to null"
            )
        if self.optimizer == "adamw_bf16" and self.lora is not None:
            yield (
                "optimizer is 'adamw_bf16', which trains all weights, and lora is set; set lora to null, or optimizer to "
                "'adamw_8bit'"
            )
        if self.optimizer == "adamw_bf16" and (self.precision not in ("auto", "bf16") or self.processes > 1):
            yield (
                f"optimizer is 'adamw_bf16', which computes in bf16 in one process, and precision is '{self.precision}' with "
                f"processes {self.processes}; set precision to 'auto' and processes to 1, or optimizer to 'adamw'"
            )
        if self.frozen_layers and self.lora:
            yield "frozen_layers is set, and lora too, which freezes every layer; set frozen_layers to 0"
        if self.lora is not None and self.lora.init == "pissa":
            if self.quantization:
                yield "lora.init is 'pissa', and quantization is set; set lora.init to 'default'"
            if self.weight_decay:
                yield "lora.init is 'pissa', and weight_decay would shrink its constants; set weight_decay to 0"

    def _conflicts_of_sharding(self) -> Iterator[str]:
        """Yield what needs the whole model in one process, where `sharding` divides it."""
        if self.sharding == "none":
            return
        if self.processes == 1:
            yield (
                "sharding is 'full' and processes is 1: there is nothing to divide the model over; set processes to 2 or more, "
                "or sharding to 'none'"
            )
        obstacles = {
            "quantization": (self.quantization is not None, "null"),
            "optimizer": (self.optimizer != "adamw", "'adamw'"),
            "frozen_layers": (self.frozen_layers > 0, "0"),
            "lora.init": (self.lora is not None and self.lora.init == "pissa", "'default'"),
            "evaluate_every_steps": (self.evaluate_every_steps is not None, "null, and evaluate the new agent"),
            "sample_every_steps": (self.sample_every_steps is not None, "null"),
            "ewc": (self.ewc is not None, "null, and mix in earlier runs with replay"),
        }
        for name, (is_met, remedy) in obstacles.items():
            if is_met:
                value = attrgetter(name)(self)
                yield (
                    f"{name} is {'set' if isinstance(value, Settings) else repr(value)} and sharding is 'full', so that no process "
                    f"has the whole model; set {name} to {remedy}, or set sharding to 'none'"
                )
