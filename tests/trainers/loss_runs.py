"""Runs with log-probs as plain numbers, and a loss computed on them in one pass or in several."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from quintain.trainers.data.streams import Example, TokenRow, TokenStreams, streams_of, token_row
from quintain.trainers.losses.loss_output import LossOutput, StepTotals, totals_of
from quintain.trainers.losses.reward import reward_loss

Loss = Callable[..., LossOutput]


@dataclass(frozen=True)
class Run:
    """A run's numbers at its supervised tokens."""

    logprobs: Sequence[float]
    reference: Sequence[float] | None = None
    old: Sequence[float] | None = None
    advantage: float | Sequence[float] | None = None
    weight: float | Sequence[float] = 1.0
    collision: Sequence[float] | None = None
    """log sum_v p_v^2 at each token, which the engine measures."""

    def rows(self, pieces: int = 1) -> list[TokenRow]:
        """The tokens, cut into pieces of about one length, each behind a prompt of one token."""
        cuts = np.linspace(0, len(self.logprobs), pieces + 1).astype(int)
        return [self._row(start, end) for start, end in pairwise(cuts.tolist())]

    def _row(self, start: int, end: int) -> TokenRow:
        def stream(values: float | Sequence[float] | None) -> list[float] | None:
            if values is None:
                return None
            return [0.0, *(values[start:end] if isinstance(values, Sequence) else [values] * (end - start))]

        return token_row(
            range(end - start + 1),
            [False] + [True] * (end - start),
            weight=stream(self.weight),
            advantage=stream(self.advantage),
            old_logprob=stream(self.old),
            ref_logprob=stream(self.reference),
        )


class Group(NamedTuple):
    """An example of one or more runs."""

    runs: Sequence[Run]
    value: Sequence[float] = ()
    weight: float = 1.0

    def example(self, pieces: int = 1) -> Example:
        value = tuple(self.value) or (0.0,) * len(self.runs)
        rows = [(member, row) for member, run in enumerate(self.runs) for row in run.rows(pieces)]
        return Example(tuple(row for _, row in rows), tuple(member for member, _ in rows), value, self.weight)


class Result(NamedTuple):
    loss: float
    gradient: list[list[float]]
    """With respect to each run's log-probs, runs in order."""
    metrics: dict[str, float]


def result_of(
    loss: Loss,
    groups: Sequence[Group],
    /,
    *,
    passes: Sequence[int] | None = None,
    dtype: torch.dtype = torch.float64,
    **options: Any,
) -> Result:
    """The step's loss, gradient and metrics, as a training loop adds them up.

    Args:
        loss: The loss function.
        groups: The step's examples.
        passes: The forward pass that each group goes into, each run cut into two rows; None: all in one pass, uncut.
        dtype: Of the log-probs.
        options: Of the loss function.
    """
    pieces = 1 if passes is None else 2
    passes = passes or [0] * len(groups)
    totals = totals_of([group.example() for group in groups])
    leaves = [[torch.tensor(run.logprobs, dtype=dtype, requires_grad=True) for run in g.runs] for g in groups]
    value, sums = 0.0, {}
    for one in sorted(set(passes)):
        mine = [i for i, p in enumerate(passes) if p == one]
        streams = streams_of([groups[i].example(pieces) for i in mine])
        known = [run.collision for i in mine for run in groups[i].runs if run.collision is not None]
        if known:
            streams = replace(streams, collision=torch.tensor([x for values in known for x in values]))
        share = loss(torch.cat([leaf for i in mine for leaf in leaves[i]]), streams, totals, **options)
        share.loss.backward()
        value += share.loss.item()
        for name, (total, count) in share.metrics.items():
            before = sums.get(name, (0.0, 0.0))
            sums[name] = (before[0] + total, before[1] + count)
    gradient = [leaf.grad.tolist() if leaf.grad is not None else [] for several in leaves for leaf in several]
    return Result(value, gradient, {name: total / count for name, (total, count) in sums.items()})


def valued_pairs(values: torch.Tensor, streams: TokenStreams, totals: StepTotals, **options: Any) -> LossOutput:
    """The loss of a reward model; a run's "log-probs" are the values that its tokens are read as."""
    return reward_loss(values[:, None], streams, totals, **options)


def assert_same(one: Result, other: Result, tolerance: float = 1e-9) -> None:
    """Equal loss, gradient and metrics."""
    np.testing.assert_allclose(one.loss, other.loss, rtol=tolerance, atol=tolerance)
    for a, b in zip(one.gradient, other.gradient, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    assert one.metrics.keys() == other.metrics.keys()
    for name, value in one.metrics.items():
        np.testing.assert_allclose(value, other.metrics[name], rtol=tolerance, atol=tolerance, err_msg=name)


def drawn_run(rng: np.random.Generator, *, longest: int = 6) -> Run:
    """A random run with every stream."""
    n = int(rng.integers(1, longest + 1))
    logprobs = -rng.uniform(0.05, 3.0, n)
    return Run(
        logprobs.tolist(),
        reference=(logprobs + rng.normal(0, 0.4, n)).tolist(),
        old=(logprobs + rng.normal(0, 0.3, n)).tolist(),
        advantage=rng.normal(0, 1, n).tolist(),
        weight=rng.choice([0.25, 0.5, 1.0, 2.0], n).tolist(),
        collision=rng.uniform(-3.0, -0.1, n).tolist(),
    )


@cache
def trl_values() -> dict[str, Any]:
    """What TRL's loss code gave (benchmarks/trainers/loss_values.py)."""
    content: dict[str, Any] = json.loads(Path(__file__).with_name("trl_values.json").read_text("utf-8"))
    return content


def trl_runs() -> list[Run]:
    """The six runs that TRL was asked about, with reference and behaviour log-probs and advantages."""
    inputs = trl_values()["inputs"]
    return [
        Run(logprobs, reference=ref, old=old, advantage=advantage, collision=collision)
        for logprobs, ref, old, advantage, collision in zip(
            *(inputs[name] for name in ("policy", "reference", "old", "advantages", "collision")), strict=True
        )
    ]


def trl_pairs() -> list[Group]:
    """These runs as three pairs."""
    runs = trl_runs()
    return [Group(runs[i : i + 2], (1.0, -1.0)) for i in (0, 2, 4)]


def assert_as_trl(result: Result, case: dict[str, Any]) -> None:
    """The recorded loss to 1e-4 and, as a check of the reading, the recorded gradient too.

    Streams are float32 while TRL was given float64, so the values agree to float32's rounding, not to the last bit.
    """
    assert abs(result.loss - case["loss"]) < 1e-4, (result.loss, case["loss"])
    for ours, theirs in zip(result.gradient, case["gradient"], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
