"""Forward and backward passes over examples, for a training step or a validation, and their metrics; the same on every rank."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from quintain.trainers.data.streams import Example, TokenRow, rows_of, streams_of
from quintain.trainers.engine.forward import Engine
from quintain.trainers.engine.machine import Machine, peak_memory_mb
from quintain.trainers.loop.objectives import Objective
from quintain.trainers.losses.grpo import k3
from quintain.trainers.losses.loss_output import LossOutput, StepTotals
from quintain.trainers.losses.retriever import mean_pooled
from quintain.trainers.models.loading import eval_mode


@dataclass
class Sums:
    """Sums over the forward passes of a step or a validation, and over the ranks."""

    loss: float = 0.0
    logical_tokens: int = 0
    computed_tokens: int = 0
    supervised_tokens: int = 0
    flops: float = 0.0
    means: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Metrics that are means: sum and count."""

    def add(self, **observations: tuple[float, float]) -> None:
        """Add sum and count of observations to means."""
        for name, (total, count) in observations.items():
            before, n = self.means.get(name, (0.0, 0.0))
            self.means[name] = (before + total, n + count)

    def include(self, other: Sums) -> None:
        """Add the sums of another pass or rank."""
        self.loss += other.loss
        self.logical_tokens += other.logical_tokens
        self.computed_tokens += other.computed_tokens
        self.supervised_tokens += other.supervised_tokens
        self.flops += other.flops
        self.add(**other.means)


class Meter:
    """Metrics of one optimizer step, which begins with it."""

    def __init__(self, engine: Engine, machine: Machine) -> None:
        self._engine, self._machine, self._began = engine, machine, time.perf_counter()
        self.sums = Sums()

    def count(self, rows: Sequence[TokenRow], *, head: bool = True) -> None:
        """Count the rows of a forward pass, with the product of the head or without."""
        self.sums.include(Sums(**self._engine.cost(rows, head=head)._asdict()))

    def metrics(self) -> dict[str, float | None]:
        """Return the metrics of the step.

        `observation_share` is the share of tokens without loss. `sharing_saved` is the share of tokens that were not computed:
        shared prefixes, and what follows the last supervised token. `matmul_fraction` is useful arithmetic, with shared tokens
        counted in each row, divided by the measured matmul rate.
        """
        sums, rate, seconds = self.sums, self._machine.matmul_flops, time.perf_counter() - self._began
        means = {name: total / n if n else None for name, (total, n) in sums.means.items()}
        return {
            **means,
            "supervised_tokens_per_s": sums.supervised_tokens / seconds,
            "tokens_per_s": sums.logical_tokens / seconds,
            "observation_share": 1 - sums.supervised_tokens / sums.logical_tokens,
            "sharing_saved": 1 - sums.computed_tokens / sums.logical_tokens,
            "peak_memory_mb": peak_memory_mb(self._engine.model.device),
            "matmul_fraction": sums.flops / seconds / rate if rate else None,
        }


def backward(
    engine: Engine,
    objective: Objective,
    scale: torch.amp.GradScaler,
    batches: Sequence[Sequence[Example]],
    totals: StepTotals,
    meter: Meter,
) -> None:
    """Accumulate the gradients of some micro-batches, and their part of the step's loss.

    An empty batch is an idle pass, needed because other ranks have one. `totals` are those of the whole step.
    """
    if objective.couples_examples:
        _coupled_backward(engine, objective, scale, batches, totals, meter)
        return
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
                meter.sums.add(entropy=(float(scored.entropy.sum()), len(logprobs)))
        scale.scale(term).backward()
        meter.sums.loss += float(term.detach())
        meter.count(rows)
        meter.sums.add(**output.metrics)
        if streams.ref_logprob is not None and "kl" not in output.metrics:
            meter.sums.add(kl=(float(k3(logprobs, streams.ref_logprob).sum()), len(logprobs)))


@torch.no_grad()
def held_out(engine: Engine, objective: Objective, batches: Sequence[Sequence[Example]], totals: StepTotals) -> Sums:
    """Return the loss of validation micro-batches, and means: `entropy` in nats a token, and `Objective.agreement` with labels.

    There is no dropout. `totals` are those of the whole split.
    """
    sums = Sums()
    objective = replace(objective, loss=objective.measure or objective.loss)
    with eval_mode(engine.model):
        if objective.couples_examples:  # the tools of a whole split are negatives of each other
            pooled = torch.cat([_pooled(engine, batch, seed=0) for batch in batches])
            output = _loss(objective, pooled, batches, totals)
            return Sums(float(output.loss), means=output.metrics)
        for batch in batches:
            if not batch:
                engine.idle()
                continue
            scored = objective.scored(engine, rows_of(batch))
            output = objective.output(scored, streams_of(batch, engine.model.device), totals)
            sums.loss += float(output.loss)
            sums.add(**{name: output.metrics[name] for name in objective.agreement if name in output.metrics})
            if scored.entropy is not None:
                sums.add(entropy=(float(scored.entropy.sum()), len(scored.entropy)))
    return sums


def _coupled_backward(
    engine: Engine,
    objective: Objective,
    scale: torch.amp.GradScaler,
    batches: Sequence[Sequence[Example]],
    totals: StepTotals,
    meter: Meter,
) -> None:
    """Accumulate the gradients of a step whose texts are negatives of each other; arguments as of `backward`."""
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
    meter.sums.add(**output.metrics)
    meter.sums.loss += float(output.loss.detach())


def _loss(
    objective: Objective, pooled: torch.Tensor, batches: Sequence[Sequence[Example]], totals: StepTotals
) -> LossOutput:
    return objective.loss(pooled, streams_of([e for batch in batches for e in batch], pooled.device), totals)


def _pooled(engine: Engine, batch: Sequence[Example], seed: int) -> torch.Tensor:
    device = engine.model.device
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        return mean_pooled(engine.states(rows_of(batch)), streams_of(batch, device))
