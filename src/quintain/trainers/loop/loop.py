"""The training loop, the same for every method.

The loss of an optimizer step is a sum over the supervised tokens of its examples, divided by totals of the whole step,
however the examples are split into forward passes and packed. On the CPU in float32, an interrupted and resumed run ends
bit-equal to an uninterrupted one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from quintain.errors import TrainingFailed
from quintain.records.hyperparameters.methods import TrainingConfig
from quintain.records.protocols import Reporter
from quintain.trainers.data.streams import Example
from quintain.trainers.distributed.passes import SharedPasses
from quintain.trainers.distributed.process_group import ProcessGroup
from quintain.trainers.engine.forward import Engine
from quintain.trainers.engine.machine import Machine
from quintain.trainers.engine.offload import activations_offloaded
from quintain.trainers.loop.checkpoints import (
    Progress,
    load_best,
    load_checkpoint,
    newest_complete,
    save_best,
    save_checkpoint,
)
from quintain.trainers.loop.ewc import WeightPenalty
from quintain.trainers.loop.objectives import Objective
from quintain.trainers.loop.optimizer import clip, update
from quintain.trainers.loop.passes import Meter, Sums, backward, held_out
from quintain.trainers.loop.schedule import ExampleSource, learning_rate
from quintain.trainers.loop.sinks import Sinks
from quintain.trainers.losses.loss_output import totals_of
from quintain.trainers.models.loading import eval_mode, trainable
from quintain.trainers.reference_log_probs import References

PARTS = ("held_out_sum", "held_out_count")
"""Suffixes under which the tally keeps sum and count of a validation figure of the final weights."""

Sampler = Callable[[int], dict[str, float | None]]
"""Lets the model act after a step, and returns figures of its episodes."""


@dataclass
class Run:
    """A training run between its steps."""

    config: TrainingConfig
    engine: Engine
    machine: Machine
    optimizer: torch.optim.Optimizer
    scale: torch.amp.GradScaler
    """Scales the loss where training runs in float16."""
    source: ExampleSource
    objective: Objective
    acts: bool
    """Whether the examples are rollouts of the model in training."""
    validation: list[Example]
    checkpoints: Path
    identity: str
    """Hash of everything that a checkpoint must share with the run that loads it."""
    reporter: Reporter
    sinks: Sinks
    penalty: WeightPenalty | None = None
    """EWC's penalty on the weights; None: off."""
    tokenizer: Any = None
    """Saved beside the weights of checkpoints."""
    sample: Sampler | None = None
    evaluate: Sampler | None = None
    """Returns the success on held-out tasks before the first step and after those at which it is measured; else nothing."""
    reference: References | None = None
    """The reference of the steps, where it follows the policy; else the examples have their reference log-probs."""
    passes: SharedPasses = field(default_factory=SharedPasses)
    """How the processes of the run share its passes."""
    step: int = 0
    tally: dict[str, float] = field(default_factory=dict)
    saved_at: int = -1
    resumed_from: int | None = None
    ended_early: str | None = None
    """Why the run ended before its last step, unless it was stopped."""

    @property
    def total(self) -> int:
        """Optimizer steps of the whole run."""
        return self.source.total_steps

    @property
    def group(self) -> ProcessGroup:
        """The processes of the run."""
        return self.passes.group

    def should_stop(self) -> bool:
        """Whether any process was asked to stop. Collective."""
        return self.group.any(self.reporter.should_stop())


def resume(run: Run) -> None:
    """Resume from the newest complete checkpoint, if one exists."""
    newest = run.group.from_first(lambda: newest_complete(run.checkpoints))
    for fault in newest.skipped:
        run.reporter.warn("checkpoint_skipped", f"skipped a damaged checkpoint: {fault}")
    if newest.path:
        progress = load_checkpoint(newest.path, run.engine.model, run.optimizer, identity=run.identity)
        run.step = run.saved_at = run.resumed_from = progress.step
        run.tally, run.ended_early = dict(progress.tally), progress.ended_early
        run.source.restore(dict(progress.source))
        run.scale.load_state_dict(dict(progress.scale))
        if run.reference is not None:
            run.reference.restore(dict(progress.reference))


def train(run: Run) -> bool:
    """Take the remaining steps.

    Returns:
        Whether the run was stopped before its end.

    Raises:
        TrainingFailed: The loss is not finite (`diverged`), or the start model is as good as asked for (`nothing_to_gain`).
    """
    if run.step == 0 and not run.should_stop():  # the start model, so that the best step can be the start
        start = (_validate(run) if run.validation else {}) | (run.evaluate(0) if run.evaluate else {})
        if start:
            _report(run, start)
        _stop_on_success(run, start)
        if run.ended_early:
            raise TrainingFailed(
                f"nothing to train: {run.ended_early}; raise it, or use the agent that this training starts from",
                code="nothing_to_gain",
            )
    while run.step < run.total and run.ended_early is None:
        if run.should_stop():
            _checkpoint(run)
            return True
        began = time.monotonic()
        metrics = _take_step(run)
        if metrics is None:  # stopped while the source collected examples
            _checkpoint(run)
            return True
        run.step += 1
        last = run.step == run.total
        every = run.config.sample_every_steps
        if run.sample and every and (run.step % every == 0 or last):
            metrics |= run.sample(run.step)
        if run.evaluate:
            metrics |= run.evaluate(run.step)
        if run.validation and _validates(run):
            metrics |= _validate(run)
        _stop_on_kl(run, metrics)
        _stop_on_success(run, metrics)
        _stop_on_time(run, time.monotonic() - began)
        _report(run, metrics)
        # A run that has ended early must not continue if its process dies while it saves.
        if (run.step % run.config.checkpoint_every_steps == 0 and not last) or run.ended_early:
            _checkpoint(run)
    if run.validation and run.config.keep_best and run.tally.get("best_step", run.step) != run.step:
        load_best(run.checkpoints, run.engine.model, identity=run.identity)
    return False


def _report(run: Run, metrics: dict[str, float | None]) -> None:
    run.reporter.progress(run.step, run.total, metrics)
    run.sinks.log(run.step, metrics)


def _take_step(run: Run) -> dict[str, float | None] | None:
    """Take one optimizer step and return its metrics; None if the source was stopped."""
    rate = learning_rate(run.step, run.total, run.config)
    examples = run.source.step(run.step)
    if not examples and run.should_stop():
        return None
    meter = Meter(run.engine, run.machine)
    run.objective.settings |= run.objective.settings_at(run.step)
    if not examples:
        run.tally["empty_steps"] = run.tally.get("empty_steps", 0) + 1
        return {"loss": None, "learning_rate": rate, **run.source.metrics()}
    if run.reference is not None:
        examples = run.reference.scored(examples, run.step)
    loss = _backward(run, examples, meter)
    with run.passes.running():
        norm = clip(run.engine.model, run.optimizer, run.scale, run.config.grad_clip)
    if not math.isfinite(loss) or not (math.isfinite(norm) or run.scale.is_enabled()):
        raise _diverged(run, f"step {run.step + 1} of {run.total} gave loss {loss} and gradient norm {norm}")
    update(run.optimizer, run.scale, rate)
    if run.penalty is not None:
        meter.sums.add(ewc_penalty=(run.penalty.pull(run.engine.model, run.optimizer, run.step), 1))
    figures = meter.metrics()
    tally = run.tally
    tally.setdefault("first_loss", loss)
    tally["final_loss"] = loss
    if 2 * run.step >= run.total:
        tally["late_loss"] = min(loss, tally.get("late_loss", loss))
    tally["supervised_tokens"] = tally.get("supervised_tokens", 0) + meter.sums.supervised_tokens
    tally["tokens"] = tally.get("tokens", 0) + meter.sums.logical_tokens
    if not run.acts and "kl" in figures:
        figures["drift"] = figures.pop("kl")  # k3 estimates the KL divergence on tokens of the model alone
    return {
        "loss": loss,
        "learning_rate": rate,
        "grad_norm": norm,
        **figures,
        **run.source.metrics(),
        "tokens": tally["tokens"],
    }


def _backward(run: Run, examples: Sequence[Example], meter: Meter) -> float:
    """Compute the gradients of the step, summed over the processes; return its loss."""
    totals, passes = totals_of(examples, run.source.played()), run.passes
    _prepare(run, examples)
    batches = passes.batches(run.engine, examples, run.config.batch_tokens)
    passes.seed_dropout(run.step)
    with passes.running(), activations_offloaded() if run.config.offload_activations else nullcontext():
        backward(run.engine, run.objective, run.scale, batches, totals, meter)
    passes.sum_gradients(list(trainable(run.engine.model).values()))
    meter.sums = _gathered(run, meter.sums)
    return meter.sums.loss


def _gathered(run: Run, share: Sums) -> Sums:
    """Return the sums over all processes. Collective."""
    sums = Sums()
    for one in run.group.gather(share):
        sums.include(one)
    return sums


def _prepare(run: Run, examples: Sequence[Example]) -> None:
    if mismatched := run.objective.mismatched(examples):
        with run.passes.running():
            run.objective.before_step(run.engine, mismatched)


def _validates(run: Run) -> bool:
    every = run.config.validate_every_steps
    return run.step == run.total or (run.step % every == 0 if every else run.source.ends_epoch(run.step - 1))


def _validate(run: Run) -> dict[str, float | None]:
    """Return metrics of the validation split; save the best weights, and end the run when patience has run out."""
    engine, config, tally = run.engine, run.config, run.tally
    totals = totals_of(run.validation)
    with eval_mode(engine.model):
        _prepare(run, run.validation)
    batches = run.passes.batches(engine, run.validation, config.batch_tokens)
    with run.passes.running():
        share = held_out(engine, run.objective, batches, totals)
    sums = _gathered(run, share)
    loss = sums.loss
    if not math.isfinite(loss):
        raise _diverged(run, f"the validation after step {run.step} of {run.total} gave loss {loss}")
    tally["validation_loss"] = loss
    agreement = {
        f"{name}_{part}": x
        for name in run.objective.agreement
        for part, x in zip(PARTS, sums.means.get(name, ()), strict=False)
    }
    if not config.keep_best:
        tally |= agreement
    if loss < tally.get("best_loss", math.inf):
        tally |= {"best_loss": loss, "best_step": run.step, "validations_without_gain": 0, **agreement}
        if config.keep_best and run.step < run.total:
            save_best(
                run.checkpoints,
                engine.model,
                run.step,
                identity=run.identity,
                tokenizer=run.tokenizer,
                group=run.group,
            )
    else:
        tally["validations_without_gain"] = tally.get("validations_without_gain", 0) + 1
        if config.early_stopping_patience and tally["validations_without_gain"] >= config.early_stopping_patience:
            run.ended_early = (
                f"the validation loss has not fallen below {tally['best_loss']:.4g} (step {tally['best_step']:.0f}) in "
                f"{config.early_stopping_patience} validations"
            )
    means = {f"validation_{name}": total / n for name, (total, n) in sums.means.items() if n}
    return {"validation_loss": loss, **means}


def _stop_on_kl(run: Run, metrics: dict[str, float | None]) -> None:
    kl, bound = metrics.get("kl"), run.config.kl_stop
    if kl is not None and bound is not None and kl > bound:
        run.ended_early = f"the KL divergence to the start model reached {kl:.4g} nats a token; kl_stop is {bound:g}"


def _stop_on_success(run: Run, metrics: dict[str, float | None]) -> None:
    """End the run where its newest measurement reached the success that is wanted. Collective."""
    rate, target = metrics.get("held_out_success"), run.config.target_success
    if target is not None and run.group.any(rate is not None and rate >= target) and run.step < run.total:
        reached = "" if rate is None else f" with {rate:.3g} of the held-out tasks solved"
        run.ended_early = f"it is as good as asked for{reached}; target_success is {target:g}"


def _stop_on_time(run: Run, step_s: float) -> None:
    """End the run where its steps, those of earlier attempts among them, took as long as it may take. Collective."""
    bound = run.config.max_minutes
    if bound is None:
        return
    run.tally["steps_s"] = run.tally.get("steps_s", 0.0) + step_s
    if run.group.any(run.tally["steps_s"] >= 60 * bound) and run.step < run.total:
        run.ended_early = f"its steps took {run.tally['steps_s'] / 60:.3g} minutes; max_minutes is {bound:g}"


def _checkpoint(run: Run) -> None:
    """Save a checkpoint of the current step, unless it is saved already."""
    if run.saved_at == run.step:
        return
    reference = run.reference.state() if run.reference else {}
    progress = Progress(run.step, run.tally, run.source.state(), run.scale.state_dict(), run.ended_early, reference)
    path = save_checkpoint(
        run.checkpoints,
        run.engine.model,
        run.optimizer,
        progress,
        identity=run.identity,
        keep=run.config.keep_checkpoints,
        tokenizer=run.tokenizer,
        group=run.group,
    )
    run.saved_at = run.step
    run.reporter.checkpoint(run.step, path)


def _diverged(run: Run, what: str) -> TrainingFailed:
    newest = newest_complete(run.checkpoints).path
    if run.step == 0:
        return TrainingFailed(
            f"{what}, which is not finite, with the weights of the start model: they are damaged, or the precision is too "
            "narrow; set precision to 'fp32', or start from another model",
            code="diverged",
        )
    return TrainingFailed(
        f"{what}, which is not finite; the last good checkpoint is {newest.name if newest else 'none'}; start again with "
        f"a learning_rate below {run.config.learning_rate:g}, or with grad_clip on",
        code="diverged",
    )
