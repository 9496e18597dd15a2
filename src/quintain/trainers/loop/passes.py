"""Forward and backward passes over examples, for a training step or a validation; the same on every rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from quintain.trainers.data.streams import Example, rows_of, streams_of
from quintain.trainers.engine.forward import Engine
from quintain.trainers.loop.meter import Meter
from quintain.trainers.loop.objectives import Objective
from quintain.trainers.losses.grpo import k3
from quintain.trainers.losses.loss_output import LossOutput, StepTotals
from quintain.trainers.losses.retriever import mean_pooled
from quintain.trainers.models.loading import eval_mode


def backward(
    engine: Engine,
    objective: Objective,
    scale: torch.amp.GradScaler,
    batches: Sequence[Sequence[Example]],
    totals: StepTotals,
    meter: Meter,
) -> float:
    """Accumulate the gradients of some micro-batches.

    Args:
        engine: Computes the log-probs; its parameters receive the gradients.
        objective: The loss, prepared for the step.
        scale: The loss scale.
        batches: Examples of each pass; an empty batch is an idle pass, needed because other ranks have one.
        totals: Totals of the whole step.
        meter: Counts tokens, FLOPs and metrics of the passes.

    Returns:
        What the passes add to the step's loss.
    """
    if objective.couples_examples:
        return coupled_backward(engine, objective, scale, batches, totals, meter)
    loss = 0.0
    for batch in batches:
        if not batch:
            scale.scale(engine.idle()).backward()
            continue
        rows = rows_of(batch)
        streams = streams_of(batch, engine.model.device)
        if objective.linear:
            term, logprobs = engine.nll(rows, streams.weight / (totals.weight or 1.0))
            output = objective.loss(logprobs, streams, totals)
        else:
            scored = objective.scored(engine, rows)
            logprobs = scored.logprobs.detach()
            output = objective.output(scored, streams, totals)
            term = output.loss
            if scored.entropy is not None:
                meter.sums.add("entropy", float(scored.entropy.sum()), len(logprobs))
        scale.scale(term).backward()
        loss += float(term.detach())
        meter.count(rows)
        for name, (total, count) in output.metrics.items():
            meter.sums.add(name, total, count)
        if streams.ref_logprob is not None and "kl" not in output.metrics:
            meter.sums.add("kl", float(k3(logprobs, streams.ref_logprob).sum()), len(logprobs))
    return loss


class ValidationSums(NamedTuple):
    """Sums over some forward passes of a validation."""

    loss: float
    figures: dict[str, tuple[float, float]]
    """`entropy` in nats a token, and the metrics of `Objective.agreement` with held-out labels: sum and count."""

    def plus(self, other: ValidationSums) -> ValidationSums:
        """Return the sums together with those of other passes."""
        figures = dict(self.figures)
        for name, (total, count) in other.figures.items():
            before, n = figures.get(name, (0.0, 0.0))
            figures[name] = (before + total, n + count)
        return ValidationSums(self.loss + other.loss, figures)


@torch.no_grad()
def held_out(
    engine: Engine, objective: Objective, batches: Sequence[Sequence[Example]], totals: StepTotals
) -> ValidationSums:
    """Return the sums of validation micro-batches, without dropout; `totals` are those of the whole split."""
    sums = ValidationSums(0.0, {})
    with eval_mode(engine.model):
        if objective.couples_examples:
            output = coupled_held_out(engine, objective, batches, totals)
            return ValidationSums(float(output.loss), output.metrics)
        for batch in batches:
            if not batch:
                engine.idle()
                continue
            scored = objective.scored(engine, rows_of(batch))
            output = objective.output(scored, streams_of(batch, engine.model.device), totals)
            figures = {name: output.metrics[name] for name in objective.agreement if name in output.metrics}
            if scored.entropy is not None:
                figures["entropy"] = float(scored.entropy.sum()), float(len(scored.entropy))
            sums = sums.plus(ValidationSums(float(output.loss), figures))
    return sums


def coupled_backward(
    engine: Engine,
    objective: Objective,
    scale: torch.amp.GradScaler,
    batches: Sequence[Sequence[Example]],
    totals: StepTotals,
    meter: Meter,
) -> float:
    """Accumulate the gradients of a step; arguments and result as of `passes.backward`."""
    seed = int(torch.randint(2**62, ()))  # one draw a step, however it is split
    seeds = range(seed, seed + len(batches))  # both passes over a batch draw the same dropout
    one_pass = len(batches) == 1
    with torch.set_grad_enabled(one_pass):
        pooled = [_pooled(engine, batch, seed) for batch, seed in zip(batches, seeds, strict=True)]
    leaves = pooled[0] if one_pass else torch.cat(pooled).requires_grad_()
    output = _loss(objective, leaves, batches, totals)
    scale.scale(output.loss).backward()
    if not one_pass:
        assert leaves.grad is not None
        gradients = leaves.grad.split([len(part) for part in pooled])
        for batch, seed, gradient in zip(batches, seeds, gradients, strict=True):
            _pooled(engine, batch, seed).backward(gradient)
    for batch in batches:
        meter.count(rows_of(batch), head=False)
    for name, (total, count) in output.metrics.items():
        meter.sums.add(name, total, count)
    return float(output.loss.detach())


@torch.no_grad()
def coupled_held_out(
    engine: Engine, objective: Objective, batches: Sequence[Sequence[Example]], totals: StepTotals
) -> LossOutput:
    """Return loss and metrics of a whole validation split, whose tools are negatives of each other."""
    pooled = torch.cat([_pooled(engine, batch, seed=0) for batch in batches])
    return _loss(objective, pooled, batches, totals)


def _loss(
    objective: Objective, pooled: torch.Tensor, batches: Sequence[Sequence[Example]], totals: StepTotals
) -> LossOutput:
    return objective.loss(pooled, streams_of([e for batch in batches for e in batch], pooled.device), totals)


def _pooled(engine: Engine, batch: Sequence[Example], seed: int) -> torch.Tensor:
    device = engine.model.device
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        return mean_pooled(engine.states(rows_of(batch)), streams_of(batch, device))
