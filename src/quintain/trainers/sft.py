"""Supervised fine-tuning on what an agent wrote.

One optimizer step sees `batch_size` rows. Its loss is the weighted mean over all supervised tokens of these rows,
however they are split into forward passes. On the CPU in float32 a run that was interrupted and resumed ends bit-equal
to one that was not.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import time
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field

from quintain.errors import TrainingFailed
from quintain.records.dataset import DatasetRow
from quintain.records.job import TrainSpec
from quintain.records.record import Record
from quintain.records.seams import Reporter
from quintain.records.training import SFTConfig
from quintain.trainers.batching import collate, micro_batches, step_rows, steps_per_epoch, total_steps
from quintain.trainers.checkpoints import Progress, load_checkpoint, newest_complete, save_checkpoint, trainable
from quintain.trainers.losses import lean_forward_agrees, sft_loss, supervised_logprobs
from quintain.trainers.models import LoadedModel, load_model, save_model
from quintain.trainers.rendering import Renderer, TokenRow

_PROBE_TOKENS = 64
"""Length of the row on which the lean forward pass is compared with the model's own."""


class TrainingReport(Record):
    """What a training run did."""

    steps: int
    first_loss: float | None = Field(description="Loss of the first step, in nats a token.")
    final_loss: float | None = Field(description="Loss of the last step.")
    validation_loss: float | None = Field(default=None, description="Mean over the validation split after the run.")
    supervised_tokens: int = Field(description="Tokens in the loss, summed over the steps.")
    tokens: int = Field(description="Tokens that went through the model, padding left out.")
    rows: int = Field(description="Training rows.")
    dropped: dict[str, int] = Field(default_factory=dict, description="Reason -> trajectories that gave no row.")
    truncated_turns: int = Field(default=0, description="Agent turns that fell off the end of rows that were too long.")
    warnings: tuple[str, ...] = ()
    resumed_from_step: int | None = Field(
        default=None, description="Step of the checkpoint that this attempt began with."
    )
    stopped: bool = Field(default=False, description="Asked to stop: there is a checkpoint and no final model.")


@dataclass
class _Rendered:
    rows: list[TokenRow] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    truncated_turns: int = 0


@dataclass
class _Run:
    """A training run between its steps."""

    spec: TrainSpec
    model: Any
    optimizer: torch.optim.Optimizer
    rows: list[TokenRow]
    validation: list[TokenRow]
    checkpoints: Path
    identity: str
    reporter: Reporter
    lean: bool
    total: int
    step: int = 0
    tally: dict[str, float] = field(default_factory=dict)
    saved_at: int = -1
    resumed_from: int | None = None

    @property
    def config(self) -> SFTConfig:
        """Its hyperparameters."""
        return self.spec.config


def train_sft(
    spec: TrainSpec,
    rows: Sequence[DatasetRow],
    validation: Sequence[DatasetRow],
    directory: Path,
    reporter: Reporter,
) -> TrainingReport:
    """Train an agent's model; goes on from the newest complete checkpoint below `directory` where there is one.

    Args:
        spec: Agent, hyperparameters, seed and where the final model goes.
        rows: The training split.
        validation: The validation split; may be empty.
        directory: The job's folder.
        reporter: Hears of phases, steps, checkpoints and warnings, and says when to stop.

    Raises:
        TrainingFailed: nothing to learn from (`nothing_supervised`), or the loss is no longer finite (`diverged`).
        Conflict: the checkpoints belong to another run.
    """
    reporter.phase("loading_model")
    _seed_everything(spec.seed)
    loaded = load_model(spec.agent.model, lora=spec.config.lora, train=True)
    renderer = Renderer.of(loaded.tokenizer, spec.agent.template)

    reporter.phase("rendering")
    max_length = min(spec.config.max_length or loaded.context_tokens, loaded.context_tokens)
    train = _render(renderer, rows, max_length)
    held_out = _render(renderer, validation, max_length)
    if not train.rows:
        raise TrainingFailed(
            f"none of the {len(rows)} rows has a turn to learn from ({dict(train.dropped)}); mark steps with train=true, "
            f"or raise max_length above {max_length}",
            code="nothing_supervised",
        )

    run = _prepare(spec, loaded, train.rows, held_out.rows, directory, reporter)
    warnings = (*_warnings(run, renderer, loaded.context_tokens), *_left_out(train, len(rows), max_length))
    for warning in warnings:
        reporter.warn("training", warning)
    reporter.phase("training")
    stopped = _train(run)
    if not stopped:
        reporter.phase("saving")
        save_model(loaded.model, loaded.tokenizer, Path(spec.output_dir))
    return TrainingReport(
        steps=run.step,
        first_loss=run.tally.get("first_loss"),
        final_loss=run.tally.get("final_loss"),
        validation_loss=run.tally.get("validation_loss"),
        supervised_tokens=int(run.tally.get("supervised_tokens", 0)),
        tokens=int(run.tally.get("tokens", 0)),
        rows=len(train.rows),
        dropped=dict(train.dropped),
        truncated_turns=train.truncated_turns,
        warnings=warnings,
        resumed_from_step=run.resumed_from,
        stopped=stopped,
    )


def learning_rate(step: int, total: int, config: SFTConfig) -> float:
    """Learning rate of optimizer step `step`, counted from 0: a linear rise, then the schedule, above 0 to the end."""
    warmup = math.ceil(config.warmup_ratio * total)
    if step < warmup:
        return config.learning_rate * (step + 1) / warmup
    done = (step - warmup) / max(total - warmup, 1)
    decay = {"cosine": (1 + math.cos(math.pi * done)) / 2, "linear": 1 - done, "constant": 1.0}
    return config.learning_rate * decay[config.schedule]


def _render(renderer: Renderer, rows: Iterable[DatasetRow], max_length: int) -> _Rendered:
    rendered = _Rendered()
    for row in rows:
        rendering = renderer.render(row.trajectory, max_length, row.weight)
        rendered.rows += rendering.rows
        rendered.truncated_turns += rendering.truncated_turns
        if rendering.dropped:
            rendered.dropped[rendering.dropped] += 1
    return rendered


def _warnings(run: _Run, renderer: Renderer, context: int) -> tuple[str, ...]:
    """What the user should know before the first step."""
    warnings = list(renderer.warnings)
    if (asked := run.config.max_length or 0) > context:
        warnings.append(f"max_length {asked} is more than the model's context; rows are cut at {context} tokens")
    if not run.lean:
        warnings.append("the model changes its logits after the head; its own forward pass is used, with more memory")
    return tuple(warnings)


def _left_out(rendered: _Rendered, n_trajectories: int, max_length: int) -> list[str]:
    """What of the data does not get into the training, in the user's words."""
    told = []
    if rendered.dropped:
        reasons = ", ".join(f"{reason} {n}" for reason, n in sorted(rendered.dropped.items()))
        told.append(f"{rendered.dropped.total()} of {n_trajectories} trajectories give no row: {reasons}")
    if rendered.truncated_turns:
        told.append(
            f"{rendered.truncated_turns} agent turns fell off the end of rows longer than {max_length} tokens; raise "
            "max_length where the model's context allows it, or shorten observations"
        )
    return told


def _prepare(
    spec: TrainSpec,
    loaded: LoadedModel,
    rows: list[TokenRow],
    validation: list[TokenRow],
    directory: Path,
    reporter: Reporter,
) -> _Run:
    config = spec.config
    run = _Run(
        spec=spec,
        model=loaded.model,
        optimizer=_optimizer(loaded.model, config),
        rows=rows,
        validation=validation,
        checkpoints=directory / "checkpoints",
        identity=_identity(spec, loaded.model, rows),
        reporter=reporter,
        lean=lean_forward_agrees(loaded.model, collate([_head_of(rows[0])]).to(loaded.model.device)),
        total=total_steps(len(rows), config.batch_size, config.epochs, config.max_steps),
    )
    newest = newest_complete(run.checkpoints)
    for fault in newest.skipped:
        reporter.warn("checkpoint_skipped", f"a checkpoint is damaged and was passed over: {fault}")
    if newest.path:
        progress = load_checkpoint(newest.path, run.model, run.optimizer, identity=run.identity)
        run.step = run.saved_at = run.resumed_from = progress.step
        run.tally = dict(progress.tally)
    return run


def _train(run: _Run) -> bool:
    """Take the remaining steps; True when the run was asked to stop."""
    per_epoch = steps_per_epoch(len(run.rows), run.config.batch_size)
    while run.step < run.total:
        if run.reporter.should_stop():
            _checkpoint(run)
            return True
        metrics = _take_step(run)
        run.step += 1
        if run.validation and (run.step % per_epoch == 0 or run.step == run.total):
            metrics["validation_loss"] = run.tally["validation_loss"] = _mean_loss(run, run.validation)
        run.reporter.progress(run.step, run.total, metrics)
        if run.step % run.config.checkpoint_every_steps == 0 and run.step < run.total:
            _checkpoint(run)
    return False


def _take_step(run: _Run) -> dict[str, float | None]:
    """One optimizer step and its metrics."""
    started = time.perf_counter()
    config = run.config
    indices = step_rows(run.step, len(run.rows), config.batch_size, run.spec.seed)
    rows = [run.rows[i] for i in indices]
    total_weight = math.fsum(w for row in rows for w in row.weight)
    rate = learning_rate(run.step, run.total, config)
    for group in run.optimizer.param_groups:
        group["lr"] = rate
    loss = 0.0
    for micro_batch in micro_batches(rows, config.batch_tokens):
        batch = collate(micro_batch).to(run.model.device)
        part = sft_loss(supervised_logprobs(run.model, batch, lean=run.lean), batch.weight, total_weight)
        part.backward()
        loss += float(part.detach())
    norm = float(torch.nn.utils.clip_grad_norm_(trainable(run.model).values(), config.grad_clip or math.inf))
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise _diverged(run, loss, norm)
    run.optimizer.step()
    run.optimizer.zero_grad(set_to_none=True)

    supervised, tokens = sum(row.n_supervised for row in rows), sum(len(row.token_ids) for row in rows)
    tally = run.tally
    tally.setdefault("first_loss", loss)
    tally["final_loss"] = loss
    tally["supervised_tokens"] = tally.get("supervised_tokens", 0) + supervised
    tally["tokens"] = tally.get("tokens", 0) + tokens
    return {
        "loss": loss,
        "learning_rate": rate,
        "grad_norm": norm,
        "supervised_tokens_per_s": supervised / (time.perf_counter() - started),
        "tokens": tally["tokens"],
    }


@torch.no_grad()
def _mean_loss(run: _Run, rows: Sequence[TokenRow]) -> float:
    """Weighted mean loss over rows, without dropout."""
    run.model.eval()
    total_weight = math.fsum(w for row in rows for w in row.weight)
    loss = 0.0
    for micro_batch in micro_batches(rows, run.config.batch_tokens):
        batch = collate(micro_batch).to(run.model.device)
        loss += float(sft_loss(supervised_logprobs(run.model, batch, lean=run.lean), batch.weight, total_weight))
    run.model.train()
    return loss


def _checkpoint(run: _Run) -> None:
    """Save where the run stands, unless that is saved already."""
    if run.saved_at == run.step:
        return
    epoch, place = divmod(run.step, steps_per_epoch(len(run.rows), run.config.batch_size))
    path = save_checkpoint(
        run.checkpoints,
        run.model,
        run.optimizer,
        Progress(run.step, epoch, place * run.config.batch_size, run.tally),
        identity=run.identity,
        keep=run.config.keep_checkpoints,
    )
    run.saved_at = run.step
    run.reporter.checkpoint(run.step, path)


def _diverged(run: _Run, loss: float, norm: float) -> TrainingFailed:
    newest = newest_complete(run.checkpoints).path
    return TrainingFailed(
        f"step {run.step + 1} of {run.total} gave loss {loss} and gradient norm {norm}, which are not finite; the last "
        f"good checkpoint is {newest.name if newest else 'none'}; start again with a learning_rate below "
        f"{run.config.learning_rate:g}, or with grad_clip on",
        code="diverged",
    )


def _optimizer(model: Any, config: SFTConfig) -> torch.optim.Optimizer:
    """AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101); biases and norm weights do not decay."""
    parameters = list(trainable(model).values())
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=config.learning_rate, fused=True)


def _identity(spec: TrainSpec, model: Any, rows: Sequence[TokenRow]) -> str:
    """Hash of all that a checkpoint must share with the run that loads it: settings, model and token rows."""
    digest = hashlib.sha256()
    # How often and how many checkpoints are kept changes nothing in the result.
    config = spec.config.model_dump(mode="json", exclude={"checkpoint_every_steps", "keep_checkpoints"})
    shapes = {name: list(p.shape) for name, p in model.named_parameters()}
    settings = [config, spec.seed, spec.agent.model.model_dump(mode="json"), shapes, len(rows)]
    digest.update(json.dumps(settings, sort_keys=True).encode())
    for row in rows:
        digest.update(array("q", row.token_ids).tobytes())
        digest.update(array("d", row.weight).tobytes())
    return digest.hexdigest()


def _head_of(row: TokenRow) -> TokenRow:
    """The start of a row, with every token in the loss."""
    ids = row.token_ids[:_PROBE_TOKENS]
    return TokenRow(ids, [True] * len(ids), [-1] * len(ids), [1.0] * len(ids))


def _seed_everything(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
