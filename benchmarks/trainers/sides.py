"""The two sides of a comparison: the project's own training loop, and TRL's trainers on the same tokens and masks.

A side takes optimizer steps on examples and remembers the gradients of its first step, clipped as they were used.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from quintain.records.hyperparameters.methods import TrainingConfig
from quintain.trainers.data.streams import Example, TokenRow
from quintain.trainers.engine.forward import Engine
from quintain.trainers.engine.machine import Machine, products_of
from quintain.trainers.loop.loop import Run, train
from quintain.trainers.loop.objectives import objective_of
from quintain.trainers.loop.precision import choose, hold_base, loss_scale
from quintain.trainers.loop.sinks import ReportedRun, open_sinks
from quintain.trainers.models.loading import trainable
from quintain.worker.rank import SilentReporter

Gradients = dict[str, torch.Tensor]
RATE = 1e-4
"""Learning rate of both sides; constant, without weight decay."""
SAME: dict[str, Any] = {
    "schedule": "constant",
    "warmup_ratio": 0.0,
    "weight_decay": 0.0,
    "learning_rate": RATE,
    "grad_clip": 1.0,
}
"""What our configurations share with TRL's."""
QUIET: dict[str, Any] = {
    "output_dir": tempfile.gettempdir(),
    "report_to": [],
    "logging_strategy": "no",
    "save_strategy": "no",
    "disable_tqdm": True,
}


class Side(Protocol):
    """Something that trains."""

    @property
    def gradients(self) -> Gradients:
        """Of the first step, clipped, by parameter."""

    def step(self, examples: Sequence[Example]) -> float:
        """Take an optimizer step on the examples; the loss before it."""


class Listener(SilentReporter):
    """Keep losses, the newest metrics and when phases began, and show warnings."""

    def __init__(self) -> None:
        super().__init__()
        self.metrics: dict[str, float | None] = {}
        self.losses: list[float] = []
        self.phases: dict[str, float] = {}

    def phase(self, name: str) -> None:
        self.phases[name] = time.perf_counter()

    def progress(
        self,
        step: int,
        total_steps: int,
        metrics: dict[str, float | None],
        totals: dict[str, float | None] | None = None,
    ) -> None:
        self.metrics = metrics
        if (loss := metrics.get("loss")) is not None:
            self.losses.append(loss)

    def warn(self, code: str, message: str) -> None:
        print(f"{code}: {message}", file=sys.stderr)


@dataclass
class Feed:
    """`ExampleSource` that is given the examples of one more step at a time."""

    steps: list[Sequence[Example]] = field(default_factory=list)

    @property
    def total_steps(self) -> int:
        return len(self.steps)

    def step(self, step: int) -> Sequence[Example]:
        return self.steps[step]

    def played(self) -> Sequence[Example]:
        return ()

    def ends_epoch(self, step: int) -> bool:
        return False

    def metrics(self) -> dict[str, float | None]:
        return {}

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None: ...


class Ours:
    """The project's training loop, one step at a time."""

    def __init__(self, model: Any, config: TrainingConfig, machine: Machine) -> None:
        self.listener, self.feed = Listener(), Feed()
        optimizer = torch.optim.AdamW(trainable(model).values(), lr=RATE, weight_decay=0.0, fused=True)
        self.gradients = first_gradients(model, optimizer)
        number_format = choose(config.precision, model)
        hold_base(model, config, number_format)
        engine = Engine.of(model, share_prefixes=config.share_prefixes, autocast=number_format.autocast)
        if engine.reason:
            print(f"the engine's fast path is off: {engine.reason}", file=sys.stderr)
        self.run = Run(
            config=config,
            engine=engine,
            machine=machine,
            optimizer=optimizer,
            scale=loss_scale(model.device, enabled=False),
            source=self.feed,
            objective=objective_of(config),
            validation=[],
            acts=False,
            checkpoints=Path("unused"),
            identity="",
            reporter=self.listener,
            sinks=open_sinks((), named=ReportedRun("benchmark"), folder=Path("unused"), warn=self.listener.warn),
        )
        self._products = "medium" if machine.fast_matmul else "highest"

    def step(self, examples: Sequence[Example]) -> float:
        self.feed.steps.append(examples)
        with products_of(self._products):
            train(self.run)
        return self.listener.losses[-1]


@dataclass
class Theirs:
    """A TRL trainer."""

    trainer: Any
    backward: Callable[[Any, Sequence[Example]], float]
    """Forward and backward passes of TRL's own loss on the examples; returns the loss."""
    products: str = "highest"
    """Precision of float32 matrix products; PyTorch's default unless an expert turned the switch."""
    autocast: torch.dtype | None = None
    """Type of the products in forward and backward passes, as `bf16=True` gives them; None for float32."""
    gradients: Gradients = field(default_factory=dict)

    def __post_init__(self) -> None:
        trainer = self.trainer
        trainer.model.train()
        trainer.current_gradient_accumulation_steps = 1
        trainer.create_optimizer()
        self.gradients = first_gradients(trainer.model, trainer.optimizer)

    def step(self, examples: Sequence[Example]) -> float:
        optimizer, model = self.trainer.optimizer, self.trainer.model
        with products_of(self.products):
            kind = model.device.type
            with torch.autocast(kind, self.autocast or torch.bfloat16, enabled=self.autocast is not None):
                loss = self.backward(self.trainer, examples)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        return loss


def first_gradients(model: Any, optimizer: torch.optim.Optimizer) -> Gradients:
    """A dictionary that receives the gradients of the optimizer's first step."""
    gradients: Gradients = {}

    def note(*_: Any) -> None:
        hook.remove()
        gradients.update({n: p.grad.detach().clone() for n, p in model.named_parameters() if p.grad is not None})

    hook = optimizer.register_step_pre_hook(note)
    return gradients


def trl_sft(
    model: Any, tokenizer: Any, rows_per_pass: int, products: str = "highest", *, checkpointing: bool = False
) -> Theirs:
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    config = SFTConfig(
        **_settings(model, rows_per_pass),
        assistant_only_loss=True,
        max_length=None,
        learning_rate=RATE,
        weight_decay=0.0,
    )
    with stdout_to_stderr():
        trainer = SFTTrainer(
            model, args=config, train_dataset=Dataset.from_list([{"messages": messages}]), processing_class=tokenizer
        )
    if checkpointing:  # as `train()` does at its start
        trainer.model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})

    def backward(trainer: Any, examples: Sequence[Example]) -> float:
        rows = rows_of(examples)
        total = torch.tensor(sum(row.n_supervised for row in rows))
        loss = 0.0
        for part in _passes(rows, rows_per_pass):
            ids, mask, supervised = padded(part)
            inputs = {
                "input_ids": ids,
                "attention_mask": mask,
                "labels": ids.masked_fill(supervised == 0, -100),
            }
            loss += float(trainer.training_step(trainer.model, _on_device(inputs, model), total.to(model.device)))
        return loss

    return Theirs(trainer, backward, products)


def trl_dpo(
    model: Any, tokenizer: Any, reference: Any, pairs_per_pass: int, *, precomputed: bool, products: str = "highest"
) -> Theirs:
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    answers = {side: [{"role": "assistant", "content": side}] for side in ("chosen", "rejected")}
    dataset = Dataset.from_list([{"prompt": [{"role": "user", "content": "a"}], **answers}])
    config = DPOConfig(
        **_settings(model, pairs_per_pass), beta=0.1, max_length=None, learning_rate=RATE, weight_decay=0.0
    )
    with stdout_to_stderr():
        trainer = DPOTrainer(model, ref_model=reference, args=config, train_dataset=dataset, processing_class=tokenizer)
    trainer.precompute_ref_logps = precomputed

    def backward(trainer: Any, examples: Sequence[Example]) -> float:
        loss = 0.0
        for part in _passes(examples, pairs_per_pass):
            rows = [example.rows[side] for side in (0, 1) for example in part]
            ids, mask, supervised = padded(rows)
            inputs = {"input_ids": ids, "attention_mask": mask, "completion_mask": supervised}
            if precomputed:
                sums = torch.tensor([float(np.nansum(row.ref_logprob, dtype=np.float64)) for row in rows])
                inputs["ref_chosen_logps"], inputs["ref_rejected_logps"] = sums.chunk(2)
            share = trainer.compute_loss(trainer.model, _on_device(inputs, model)) * (len(part) / len(examples))
            share.backward()
            loss += float(share.detach())
        return loss

    return Theirs(trainer, backward, products)


def trl_grpo(model: Any, tokenizer: Any, group_size: int, rows_per_pass: int, products: str = "highest") -> Theirs:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    config = GRPOConfig(
        **_settings(model, group_size), num_generations=group_size, beta=0.0, learning_rate=RATE, weight_decay=0.0
    )
    dataset = Dataset.from_list([{"prompt": [{"role": "user", "content": "a"}]}] * group_size)
    with stdout_to_stderr():
        trainer = GRPOTrainer(
            model,
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=config,
            train_dataset=dataset,
            processing_class=tokenizer,
        )

    def backward(trainer: Any, examples: Sequence[Example]) -> float:
        rows = rows_of(examples)
        passes = _passes(rows, rows_per_pass)
        trainer.current_gradient_accumulation_steps = trainer.args.steps_per_generation = len(passes)
        loss = 0.0
        for part in passes:
            inputs = _completions(part) | {"num_items_in_batch": torch.tensor(sum(row.n_supervised for row in rows))}
            share = trainer.compute_loss(trainer.model, _on_device(inputs, model))
            share.backward()
            loss += float(share.detach())
        return loss

    return Theirs(trainer, backward, products)


def _completions(rows: Sequence[TokenRow]) -> dict[str, torch.Tensor]:
    """A batch as GRPOTrainer makes it: the prompt ends where the first agent turn of any row begins."""
    ids, mask, supervised = padded(rows)
    prompt = min(int(row.places[0]) for row in rows)
    return {
        "prompt_ids": ids[:, :prompt],
        "prompt_mask": mask[:, :prompt],
        "completion_ids": ids[:, prompt:],
        "completion_mask": mask[:, prompt:],
        "tool_mask": supervised[:, prompt:],
        "advantages": torch.tensor([float(stream_of(row, "advantage")[row.places[0]]) for row in rows]),
        "old_per_token_logps": _filled(rows, [np.nan_to_num(stream_of(row, "old_logprob")) for row in rows])[
            :, prompt:
        ],
    }


def padded(rows: Sequence[TokenRow]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Token ids, attention mask and loss mask, int64 [B, T] each, padded on the right."""
    return (
        _filled(rows, [row.token_ids.astype(np.int64) for row in rows]),
        _filled(rows, [np.ones(len(row), np.int64) for row in rows]),
        _filled(rows, [row.supervised.astype(np.int64) for row in rows]),
    )


def _filled(rows: Sequence[TokenRow], streams: Sequence[NDArray[Any]]) -> torch.Tensor:
    filled = np.zeros((len(rows), max(map(len, rows))), streams[0].dtype)
    for line, stream in zip(filled, streams, strict=True):
        line[: len(stream)] = stream
    return torch.from_numpy(filled)


def stream_of(row: TokenRow, name: str) -> NDArray[np.float32]:
    stream: NDArray[np.float32] | None = getattr(row, name)
    assert stream is not None
    return stream


def rows_of(examples: Sequence[Example]) -> list[TokenRow]:
    return [row for example in examples for row in example.rows]


def _passes(items: Sequence[Any], n: int) -> list[Sequence[Any]]:
    return [items[i : i + n] for i in range(0, len(items), n)]


def _on_device(inputs: dict[str, torch.Tensor], model: Any) -> dict[str, torch.Tensor]:
    return {name: tensor.to(model.device) for name, tensor in inputs.items()}


def _settings(model: Any, batch_size: int) -> dict[str, Any]:
    return {
        **QUIET,
        "per_device_train_batch_size": batch_size,
        "bf16": False,
        "use_cpu": model.device.type == "cpu",
        "gradient_checkpointing": False,
    }


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """What TRL prints goes where it cannot be taken for a figure."""
    sys.stdout.flush()
    before = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(before, 1)
        os.close(before)
