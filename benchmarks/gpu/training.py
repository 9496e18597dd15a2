"""Training steps on a GPU next to TRL's, on the same tokens and weights."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from benchmarks.figures import report, say
from benchmarks.gpu.model import Gpu, labels


def lora_sft(gpu: Gpu) -> None:
    """Runs of 20 turns, four a step: about 16,000 tokens."""
    from quintain.records.hyperparameters.methods import SFTConfig

    config = gpu.config(SFTConfig)
    writer, examples = gpu.workload(config, 1)
    steps = [[examples.run(writer.run(gpu.turns(20))) for _ in range(4)] for _ in range(gpu.rounds + 1)]
    _compare(gpu, "gpu_lora_sft", config, steps, 0.40 if gpu.shape == "7b" else None, None)


def dpo_half_shared(gpu: Gpu) -> None:
    """Pairs that agree in half of their 20 turns, two a step; what comes after the branch is scored."""
    from quintain.records.hyperparameters.methods import DPOConfig

    config = gpu.config(DPOConfig, step_level=True)
    writer, examples = gpu.workload(config, 2)
    turns = gpu.turns(20)
    pairs = [
        examples.pair(*writer.runs_of_task(2, turns, shared_turns=turns // 2)) for _ in range(2 * (gpu.rounds + 1))
    ]
    scored = _scored(gpu, pairs)
    steps = [scored[i : i + 2] for i in range(0, len(scored), 2)]
    _compare(gpu, "gpu_dpo_half_shared", config, steps, None, gpu.goal(1.5))


def grpo_groups(gpu: Gpu) -> None:
    """Stored groups of 8 runs with a prompt of 2,000 tokens and 5 turns, one a step."""
    from quintain.records.hyperparameters.methods import GRPOConfig

    config = gpu.config(GRPOConfig)
    writer, examples = gpu.workload(config, 3)
    size, tokens = (4, 200) if gpu.short else (8, 2000)
    rewards = tuple(i / (size - 1) for i in range(size))
    groups = [
        examples.group(writer.runs_of_task(size, gpu.turns(5), task_tokens=tokens), rewards)
        for _ in range(gpu.rounds + 1)
    ]
    _compare(gpu, "gpu_grpo_groups", config, _sampled(gpu, groups), None, gpu.goal(1.5))


def per_turn(gpu: Gpu) -> None:
    """A run of 16 turns stored as 16 rows, each with all that came before."""
    from benchmarks.workload import per_turn as rows_of_turns
    from quintain.records.hyperparameters.methods import GRPOConfig

    config = gpu.config(GRPOConfig)
    writer, examples = gpu.workload(config, 4)
    runs = [examples.group(writer.runs_of_task(2, gpu.turns(16)), (1.0, 0.0)) for _ in range(gpu.rounds + 1)]
    rows = [rows_of_turns(replace(g, rows=g.rows[:1], member=(0,), value=g.value[:1])) for g in runs]
    _compare(gpu, "gpu_per_turn", config, _sampled(gpu, rows), None, gpu.goal(5.0))


def _compare(
    gpu: Gpu, case: str, config: Any, steps: list[list[Any]], mfu_goal: float | None, ratio_goal: float | None
) -> None:
    """Take the steps with all sides, and report utilization, rate, memory and the ratio to TRL's best."""
    from benchmarks.trainers.rounds import AGREE, agreement, run_rounds
    from benchmarks.trainers.sides import Ours, Side, rows_of

    ours = Ours(gpu.adapted(), config, gpu.machine)
    theirs = _trl_sides(gpu, config, max(len(rows_of(step)) for step in steps))
    sides: dict[str, Side] = {**theirs, "ours": ours}
    tokens = [sum(map(len, rows_of(step))) for step in steps[1:]]
    say(f"{case}: about {tokens[0]} tokens a step, {gpu.rounds} rounds of {', '.join(sides)}")
    if gpu.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    rounds = run_rounds(sides, steps, gpu.dtype, gpu.device)
    engine = ours.run.engine
    seconds, where = rounds.seconds["ours"], labels(gpu) | {"kernel": engine.kernel or "of the device"}
    peaks = [gpu.peak] * len(seconds) if gpu.peak else rounds.matmul_flops
    work = [engine.cost(rows_of(step)).flops for step in steps[1:]]
    used = [flops / (s * peak) for flops, s, peak in zip(work, seconds, peaks, strict=True)]
    report(f"{case}_mfu", used, "1", mfu_goal, **where)
    report(f"{case}_tokens_per_s", [n / s for n, s in zip(tokens, seconds, strict=True)], "1/s", None, **where)
    if gpu.device.type == "cuda":
        peak_memory = torch.cuda.max_memory_allocated() / 2**30
        report(f"{case}_peak_memory_all_sides", [peak_memory], "GiB", None, "lower", **where)
    for name in theirs:
        if not agreement(f"{case}_{name}", rounds, name, "ours", AGREE[gpu.precision]):
            return
    if theirs:
        best = [min(times) for times in zip(*(rounds.seconds[name] for name in theirs), strict=True)]
        ratios = [a / b for a, b in zip(best, seconds, strict=True)]
        report(f"{case}_vs_trl_best", ratios, "1", ratio_goal, **where, attention=_trl_attention())


def _trl_sides(gpu: Gpu, config: Any, rows: int) -> dict[str, Any]:
    """Return TRL with all rows of a step in one pass and with a pass a row; none where it is not installed."""
    from benchmarks.trainers.sides import trl_dpo, trl_grpo, trl_sft

    if importlib.util.find_spec("trl") is None:
        say("TRL is not installed; its sides are left out")
        return {}

    def side(at_once: int) -> Any:
        model = gpu.adapted(_trl_attention())
        if config.method == "sft":
            made = trl_sft(model, gpu.tokenizer, at_once)
        elif config.method == "dpo":
            made = trl_dpo(model, gpu.tokenizer, None, max(at_once // 2, 1), precomputed=True)
        else:
            made = trl_grpo(model, gpu.tokenizer, rows, at_once)
        made.autocast = torch.bfloat16 if gpu.precision == "bf16" else None
        return made

    return {"trl_padded": side(rows), "trl_single": side(1)}


def _trl_attention() -> str:
    """Return the fastest attention of transformers that is installed."""
    return "flash_attention_2" if importlib.util.find_spec("flash_attn") else "sdpa"


def _scored(gpu: Gpu, examples: Sequence[Any]) -> list[Any]:
    """Return the examples with the log-probs of the start model."""
    from quintain.trainers.engine.forward import Engine
    from quintain.trainers.reference_log_probs import with_reference

    autocast = torch.bfloat16 if gpu.precision == "bf16" else None
    engine = Engine.of(gpu.copied(), autocast=autocast)
    return with_reference(examples, engine, cache=None, identity="", batch_tokens=8192)


def _sampled(gpu: Gpu, groups: Sequence[Any]) -> list[list[Any]]:
    """Return the groups as if the start model had sampled them, one a step."""
    return [
        [replace(e, rows=tuple(replace(r, old_logprob=r.ref_logprob, ref_logprob=None) for r in e.rows))]
        for e in _scored(gpu, groups)
    ]
