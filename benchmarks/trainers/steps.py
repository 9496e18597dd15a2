"""Training steps next to TRL's, and how their cost grows; each function is a case and prints its figures.

A ratio is a chain of sides from TRL as documented to ours, each of which differs from the one before in one part:

- recomputing: gradient checkpointing, which TRL turns on where nobody says otherwise, is off (SFT only; all else has it off);
- reference: the reference's log-probs are computed beforehand, not in every step;
- padding: batches of one instead of padded ones;
- matmul: the switch to the faster exact back end of matrix products, which PyTorch leaves off;
- engine: packed rows, the last block and the head at supervised places only;
- sharing: common prefixes are computed once.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import torch

from benchmarks.figures import report, say
from benchmarks.trainers.rounds import AGREE, Rounds, agreement, run_rounds
from benchmarks.trainers.sides import SAME, Ours, Side, Theirs, rows_of, trl_dpo, trl_grpo, trl_sft
from benchmarks.workload import Examples, Writer, first_tokens, load, load_moved, per_turn
from quintain.records.hyperparameters.methods import DPOConfig, GRPOConfig, LoraConfig, SFTConfig, TrainingConfig
from quintain.trainers.data.streams import Example
from quintain.trainers.engine.attention import Layout, packed_attention
from quintain.trainers.engine.forward import Engine
from quintain.trainers.engine.machine import Machine, allow_exact_medium, products_of
from quintain.trainers.engine.packing import Segment
from quintain.trainers.models.loading import LoadedModel
from quintain.trainers.reference_log_probs import with_reference

Steps = list[list[Example]]

PART_OF = {
    "trl": "recomputing",
    "trl_precomputed": "reference",
    "trl_single": "padding",
    "trl_tuned": "matmul",
    "ours_unshared": "engine",
    "ours": "sharing",
}
"""Side -> the part by which it differs from the side before it. Where nothing is shared, ours is the engine's."""


@dataclass(frozen=True)
class Bench:
    """What all cases share."""

    folder: Path
    """Holds the start model."""
    machine: Machine
    rounds: int
    quick: bool
    """Runs of a third of the length."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Of the products of both sides; weights and optimizer state are float32."""

    @property
    def autocast(self) -> torch.dtype | None:
        """Type of the products; None for float32."""
        return torch.bfloat16 if self.precision == "bf16" else None

    def named(self, figure: str) -> str:
        """Return a figure's name with the precision where it is not float32."""
        return figure if self.precision == "fp32" else f"{figure}_{self.precision}"

    @property
    def few_rounds(self) -> int:
        """For cases that take long."""
        return max(1, self.rounds - 1)

    @property
    def tuned(self) -> str:
        """The matmul switch of an expert: on wherever products stay exact, even where our loop finds it not worth while."""
        with products_of("highest"):
            return "medium" if allow_exact_medium(torch.device("cpu")) else "highest"

    def load(self, lora: LoraConfig | None = None) -> LoadedModel:
        return load(self.folder, lora)

    def turns(self, n: int) -> int:
        return max(2, n // 3) if self.quick else n

    def ours(self, config: TrainingConfig, lora: LoraConfig | None = None) -> Ours:
        held = config.model_copy(update={"precision": self.precision, "lora": lora})
        return Ours(self.load(lora).model, held, self.machine)

    def maker(self, config: TrainingConfig, seed: int) -> tuple[Writer, Examples]:
        tokenizer = self.load().tokenizer
        return Writer(tokenizer, seed), Examples.of(tokenizer, config)

    def scored(self, examples: Sequence[Example]) -> list[Example]:
        """The examples with log-probs under a model a little away from the start model."""
        with products_of(self.tuned):
            engine = Engine.of(load_moved(self.folder), autocast=self.autocast)
            return with_reference(examples, engine, cache=None, identity="", batch_tokens=8192)


def sft(bench: Bench) -> None:
    """Runs of 10 turns, two a step."""
    config = SFTConfig(**SAME)
    writer, examples = bench.maker(config, 1)
    steps = [[examples.run(writer.run(bench.turns(10))) for _ in range(2)] for _ in range(bench.rounds + 1)]
    ours = bench.ours(config)
    default: dict[str, Side] = {"trl_default": trl_sft(*bench.load()[:2], 2, checkpointing=True)}
    rounds = compare(bench, "sft", default | _sft_sides(bench, 2) | {"ours": ours}, steps, tuned=1.5)
    if rounds is not None:
        rounds.report_ratio(bench.named("sft_vs_default"), "trl_default", "ours")
        flops = [ours.run.engine.cost(rows_of(step)).flops for step in steps[1:]]
        seconds = zip(flops, rounds.seconds["ours"], rounds.matmul_flops, strict=True)
        fractions = [work / (s * rate) for work, s, rate in seconds]
        report(bench.named("sft_matmul_fraction"), fractions, "1", 0.75 if bench.precision == "fp32" else 0.5)
        tokens = [sum(map(len, rows_of(step))) for step in steps[1:]]
        rates = [n / s for n, s in zip(tokens, rounds.seconds["ours"], strict=True)]
        report(bench.named("sft_tokens_per_s"), rates, "1/s", None)
        if bench.precision == "bf16":
            return
        report("matmul_back_end_gain", rounds.matmul_gain, "1", None)
        with products_of(bench.tuned):
            attention = [_attention(ours, step) for step in steps[1:]]
        shares = zip(attention, rounds.seconds["ours"], rounds.matmul_flops, strict=True)
        of_step, of_rate = zip(*((s / step, work / s / rate) for (work, s), step, rate in shares), strict=True)
        report("sft_attention_share_of_step", of_step, "1", None, "lower")
        report("sft_attention_matmul_fraction", of_rate, "1", None)


def _attention(ours: Ours, step: Sequence[Example]) -> tuple[float, float]:
    """Useful FLOPs and seconds of attention alone in a step: of its kernel in all blocks, forward and backward."""
    config = ours.run.engine.model.config
    heads, groups, layers = config.num_attention_heads, config.num_key_value_heads, config.num_hidden_layers
    width = config.hidden_size // heads
    work = seconds = 0.0
    for row in rows_of(step):
        n = len(row)
        layout = Layout((Segment(0, n),), "cpu")
        q, k, v = (torch.randn(1, h, n, width, requires_grad=True) for h in (heads, groups, groups))
        times = []
        for _ in range(3):
            began = time.perf_counter()
            out, _ = packed_attention(None, q, k, v, None, packed=layout)
            out.backward(torch.ones_like(out))
            times.append(time.perf_counter() - began)
        work += 6.0 * layers * heads * width * n**2
        seconds += layers * statistics.median(times)
    return work, seconds


def sft_spread(bench: Bench) -> None:
    """Runs of 3 to 20 turns, four a step: much of a padded batch is padding."""
    config = SFTConfig(**SAME)
    writer, examples = bench.maker(config, 2)
    lengths = [bench.turns(n) for n in (3, 6, 9, 12, 16, 20)]
    steps = [[examples.run(writer.run_of_length(lengths)) for _ in range(4)] for _ in range(bench.few_rounds + 1)]
    compare(bench, "sft_spread", _sft_sides(bench, 4) | {"ours": bench.ours(config)}, steps)


def lora_sft(bench: Bench) -> None:
    """Adapters of rank 16 on all linear layers."""
    config, lora = SFTConfig(**SAME), LoraConfig()
    writer, examples = bench.maker(config, 3)
    steps = [[examples.run(writer.run(bench.turns(10))) for _ in range(2)] for _ in range(bench.rounds + 1)]
    sides = _sft_sides(bench, 2, lora) | {"ours": bench.ours(config, lora)}
    compare(bench, "lora_sft", sides, steps)


def dpo(bench: Bench) -> None:
    """Pairs of runs that share their prompt, two a step."""
    config = DPOConfig(**SAME)
    writer, examples = bench.maker(config, 4)
    steps = _pairs(bench, writer, examples, per_step=2, turns=6)
    compare(bench, "dpo", _dpo_sides(bench, config, 2), steps, tuned=2.0)


def dpo_half_shared(bench: Bench) -> None:
    """Pairs that agree in 5 of 10 turns; only what comes after the branch is scored, by both sides."""
    config = DPOConfig(**SAME, step_level=True)
    writer, examples = bench.maker(config, 5)
    steps = _pairs(bench, writer, examples, per_step=1, turns=10, shared=5)
    compare(bench, "dpo_half_shared", _dpo_sides(bench, config, 1), steps)


def grpo(bench: Bench) -> None:
    """Stored groups of 4 runs with a prompt of 1,060 tokens and 5 turns, one a step."""
    config = GRPOConfig(**SAME)
    writer, examples = bench.maker(config, 6)
    tokens, rewards = (300 if bench.quick else 1000), (1.0, 0.0, 0.5, 0.25)
    groups = [
        examples.group(writer.runs_of_task(4, bench.turns(5), task_tokens=tokens), rewards)
        for _ in range(bench.rounds + 1)
    ]
    compare(bench, "grpo_group4", _grpo_sides(bench, config, 4), _sampled(bench, groups), tuned=2.0)


def turns(bench: Bench) -> None:
    """A run of 8 turns stored as 8 rows, each with all that came before."""
    config = GRPOConfig(**SAME)
    writer, examples = bench.maker(config, 7)
    n_turns = 4 if bench.quick else 8
    runs = [writer.runs_of_task(2, n_turns) for _ in range(bench.few_rounds + 1)]
    groups = [examples.group(pair, (1.0, 0.0)) for pair in runs]
    rows = [per_turn(replace(g, rows=g.rows[:1], member=(0,), value=g.value[:1])) for g in groups]
    compare(bench, "per_turn", _grpo_sides(bench, config, n_turns), _sampled(bench, rows), tuned=5.0)


def growth(bench: Bench) -> None:
    """Time of a step against the length of a run and against the number of runs."""
    config = SFTConfig(**SAME)
    writer, examples = bench.maker(config, 8)
    lengths = (1024, 2048, 4096) if bench.quick else (1024, 2048, 4096, 8192, 16384)
    whole = examples.run(writer.run(lengths[-1] // 180))
    steps = {n: [first_tokens(whole, n)] for n in lengths}
    seconds, work = _times(bench, config, {f"{n}_tokens": step for n, step in steps.items()}, rounds=1)
    for n in lengths:
        report(f"cost_{n}_tokens", [1e6 * s / n for s in seconds[f"{n}_tokens"]], "us/token", None, "lower")
    ends = f"{lengths[0]}_tokens", f"{lengths[-1]}_tokens"
    report("cost_length_exponent", _exponents(seconds, *ends, lengths[-1] / lengths[0]), "1", 2.0, "lower")
    against = [long / short * work[ends[0]] / work[ends[1]] for short, long in _paired(seconds, *ends)]
    report("cost_growth_over_flops_growth", against, "1", None, "lower")

    runs = [examples.run(writer.run(10)) for _ in range(4)]
    few = {f"{n}_runs": runs[:n] for n in (1, 2, 4)}
    seconds, _ = _times(bench, config, few, rounds=bench.few_rounds)
    tokens = {name: sum(map(len, rows_of(step))) for name, step in few.items()}
    for name, times in seconds.items():
        report(f"cost_{name}", [1e6 * s / tokens[name] for s in times], "us/token", None, "lower")
    ends = "1_runs", "4_runs"
    report("cost_runs_exponent", _exponents(seconds, *ends, tokens[ends[1]] / tokens[ends[0]]), "1", 1.1, "lower")


def compare(
    bench: Bench, case: str, sides: Mapping[str, Side], steps: Steps, *, tuned: float | None = None
) -> Rounds | None:
    """Take the steps with all sides and print what comes of it; None where the losses do not agree.

    Args:
        bench: Names the precision, which ends the name of the case where it is not float32.
        case: Begins the names of the figures.
        sides: The chain from `trl` to `ours`.
        steps: The examples of each step; the first is the warm-up.
        tuned: Goal of the ratio to `trl_tuned`.
    """
    tokens = sum(map(len, rows_of(steps[-1])))
    case = bench.named(case)
    say(f"{case}: {tokens} tokens a step, {len(steps) - 1} rounds of {', '.join(sides)}")
    for side in sides.values():
        if isinstance(side, Theirs):
            side.autocast = bench.autocast
    rounds = run_rounds(sides, steps, bench.autocast or torch.float32)
    gc.collect()
    if not agreement(case, rounds, "trl", "ours", AGREE[bench.precision]):
        return None
    rounds.report_ratio(f"{case}_speedup", "trl", "ours")
    rounds.report_ratio(f"{case}_vs_tuned", "trl_tuned", "ours", tuned)
    for slow, fast in pairwise(sides):
        part = PART_OF[fast] if fast != "ours" or "ours_unshared" in sides else "engine"
        rounds.report_ratio(f"{case}_part_{part}", slow, fast)
    return rounds


def _sft_sides(bench: Bench, batch_size: int, lora: LoraConfig | None = None) -> dict[str, Side]:
    loaded = [bench.load(lora) for _ in range(3)]
    return {
        "trl": trl_sft(*loaded[0][:2], batch_size),
        "trl_single": trl_sft(*loaded[1][:2], 1),
        "trl_tuned": trl_sft(*loaded[2][:2], 1, bench.tuned),
    }


def _dpo_sides(bench: Bench, config: DPOConfig, pairs: int) -> dict[str, Side]:
    reference = load_moved(bench.folder)
    loaded = [bench.load() for _ in range(4)]
    sides: dict[str, Side] = {
        "trl": trl_dpo(*loaded[0][:2], reference, pairs, precomputed=False),
        "trl_precomputed": trl_dpo(*loaded[1][:2], reference, pairs, precomputed=True),
    }
    if pairs > 1:
        sides["trl_single"] = trl_dpo(*loaded[2][:2], reference, 1, precomputed=True)
    sides["trl_tuned"] = trl_dpo(*loaded[3][:2], reference, 1, precomputed=True, products=bench.tuned)
    return sides | _our_sides(bench, config)


def _grpo_sides(bench: Bench, config: GRPOConfig, group: int) -> dict[str, Side]:
    loaded = [bench.load() for _ in range(3)]
    return {
        "trl": trl_grpo(*loaded[0][:2], group, group),
        "trl_single": trl_grpo(*loaded[1][:2], group, 1),
        "trl_tuned": trl_grpo(*loaded[2][:2], group, 1, bench.tuned),
    } | _our_sides(bench, config)


def _our_sides(bench: Bench, config: TrainingConfig) -> dict[str, Any]:
    unshared = config.model_copy(update={"share_prefixes": False})
    return {"ours_unshared": bench.ours(unshared), "ours": bench.ours(config)}


def _pairs(bench: Bench, writer: Writer, examples: Examples, *, per_step: int, turns: int, shared: int = 0) -> Steps:
    pairs = [
        examples.pair(*writer.runs_of_task(2, bench.turns(turns), shared_turns=bench.turns(shared) if shared else 0))
        for _ in range(per_step * (bench.rounds + 1))
    ]
    scored = bench.scored(pairs)
    return [scored[i : i + per_step] for i in range(0, len(scored), per_step)]


def _sampled(bench: Bench, groups: Sequence[Example]) -> Steps:
    """The groups as if the moved model had sampled them, one a step."""
    return [
        [replace(e, rows=tuple(replace(r, old_logprob=r.ref_logprob, ref_logprob=None) for r in e.rows))]
        for e in bench.scored(groups)
    ]


def _times(
    bench: Bench, config: TrainingConfig, steps: Mapping[str, list[Example]], *, rounds: int
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Seconds of each step in paired rounds, by name, and its useful FLOPs."""
    ours = bench.ours(config)
    sides = {name: _Fixed(ours, step) for name, step in steps.items()}
    seconds = run_rounds(sides, [[]] * (rounds + 1)).seconds
    return seconds, {name: ours.run.engine.cost(rows_of(step)).flops for name, step in steps.items()}


@dataclass
class _Fixed:
    """A side that takes the same step again and again."""

    ours: Ours
    examples: list[Example]

    @property
    def gradients(self) -> dict[str, Any]:
        return {}

    def step(self, examples: Sequence[Example]) -> float:
        return self.ours.step(self.examples)


def _paired(seconds: Mapping[str, list[float]], first: str, last: str) -> list[tuple[float, float]]:
    return list(zip(seconds[first], seconds[last], strict=True))


def _exponents(seconds: Mapping[str, list[float]], first: str, last: str, growth: float) -> list[float]:
    return [math.log(b / a) / math.log(growth) for a, b in _paired(seconds, first, last)]


CASES = {
    "sft": sft,
    "sft_spread": sft_spread,
    "lora_sft": lora_sft,
    "dpo": dpo,
    "dpo_half_shared": dpo_half_shared,
    "grpo_group4": grpo,
    "per_turn": turns,
    "growth": growth,
}
