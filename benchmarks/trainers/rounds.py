"""Paired rounds: every side takes the same step in every round, in an order that turns round each time."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from benchmarks.figures import report, rounded, say
from benchmarks.trainers.sides import Gradients, Side
from quintain.trainers.data.streams import Example
from quintain.trainers.engine.machine import allow_exact_medium, matmul_flops

CPU = torch.device("cpu")
AGREE = {"fp32": 1e-4, "bf16": 2e-2}
"""Precision -> largest difference of two losses of the same step, nats, at which their times may be compared."""


@dataclass
class Rounds:
    """What the sides did."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    """Side -> one time for each round; the warm-up is left out."""
    cpu_seconds: dict[str, list[float]] = field(default_factory=dict)
    """The same in seconds of processor time, which other processes on the machine disturb less."""
    losses: dict[str, list[float]] = field(default_factory=dict)
    """Side -> one loss for each step; the warm-up is the first."""
    gradients: dict[str, Gradients] = field(default_factory=dict)
    """Side -> gradients of the warm-up."""
    matmul_flops: list[float] = field(default_factory=list)
    """The machine's rate of matrix products by its best exact back end, measured before each round."""
    matmul_gain: list[float] = field(default_factory=list)
    """How many times PyTorch's default rate that is."""

    def report_ratio(self, name: str, slow: str, fast: str, goal: float | None = None) -> None:
        """How many times as long the slow side takes; beside it the same in processor time."""
        wall, cpu = (
            [a / b for a, b in zip(times[slow], times[fast], strict=True)] for times in (self.seconds, self.cpu_seconds)
        )
        report(name, wall, "1", goal, cpu_value=rounded(statistics.median(cpu)))


def run_rounds(
    sides: Mapping[str, Side],
    steps: Sequence[Sequence[Example]],
    dtype: torch.dtype = torch.float32,
    device: torch.device = CPU,
) -> Rounds:
    """One untimed round, then a timed one for each further step.

    Args:
        sides: By name; all start with the same weights.
        steps: The examples of each optimizer step.
        dtype: Type of the products whose rate is measured.
        device: Device of the sides, whose work is waited for.
    """
    seconds, cpu_seconds, losses = ({name: list[float]() for name in sides} for _ in range(3))
    rounds = Rounds(seconds, cpu_seconds, losses)
    names = list(sides)
    for i, examples in enumerate(steps):
        if i:
            default, best = _matmul_flops(dtype, device)
            rounds.matmul_flops.append(best)
            rounds.matmul_gain.append(best / default)
        for name in names if i % 2 else reversed(names):
            began, cpu = time.perf_counter(), time.process_time()
            losses[name].append(sides[name].step(examples))
            if device.type == "cuda":
                torch.cuda.synchronize()
            if i:
                seconds[name].append(time.perf_counter() - began)
                cpu_seconds[name].append(time.process_time() - cpu)
    rounds.gradients = {name: dict(side.gradients) for name, side in sides.items()}
    for name in names:
        wall, cpu = statistics.median(seconds[name]), statistics.median(cpu_seconds[name])
        say(f"  {name:16s} {wall:8.3f} s a step, processor {cpu:8.3f} s, losses {_short(losses[name])}")
    return rounds


def agreement(case: str, rounds: Rounds, theirs: str, ours: str, bound: float) -> bool:
    """Print how far losses and gradients are apart; True where the losses agree within `bound`, nats."""
    loss = max(abs(a - b) for a, b in zip(rounds.losses[theirs], rounds.losses[ours], strict=True))
    gradient = largest_difference(rounds.gradients[theirs], rounds.gradients[ours])
    report(f"{case}_loss_difference", [loss], "nats", bound, "lower")
    report(f"{case}_gradient_difference", [gradient], "relative", 1e-5 if bound == AGREE["fp32"] else None, "lower")
    if not loss <= bound:
        say(f"{case}: the losses do not agree, so no ratio is given")
    return loss <= bound


def largest_difference(a: Gradients, b: Gradients) -> float:
    """Largest ||a - b|| / ||a|| of a parameter; those without a gradient worth the name are left out."""
    if a.keys() != b.keys() or not a:
        return math.inf
    norms = {name: float(gradient.norm()) for name, gradient in a.items()}
    floor = 1e-6 * max(norms.values())
    return max(float((a[n] - b[n]).norm()) / norm for n, norm in norms.items() if norm > floor)


def _matmul_flops(dtype: torch.dtype, device: torch.device) -> tuple[float, float]:
    """Of PyTorch's default; for float32 also of the faster of the two back ends that compute its products exactly."""
    if dtype != torch.float32 or device != CPU:
        rate = matmul_flops(device, dtype) or math.nan
        return rate, rate
    before = torch.get_float32_matmul_precision()
    rates = [matmul_flops(CPU) or math.nan]
    if allow_exact_medium(CPU):
        rates.append(matmul_flops(CPU) or math.nan)
    torch.set_float32_matmul_precision(before)
    return rates[0], max(rates)


def _short(losses: Sequence[float]) -> str:
    return " ".join(f"{loss:.5f}" for loss in losses)
