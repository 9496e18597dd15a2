"""Training steps and decoding on a GPU, next to TRL 1.16 and vLLM where they are installed, on random weights.

Run as `python -m benchmarks.gpu [--shape 0.5b|7b|tiny] [--only CASE,...] [--rounds N] [--peak-tflops T]`; prints one JSON line
a figure. Without a CUDA device it prints one line and ends. `--shape tiny --device cpu` runs every case in a few minutes
without one; its figures mean nothing.

All sides train adapters of rank 16 on the same tokens, on one copy of the base weights, in bf16 on CUDA. `..._vs_trl_best` is
the best of TRL with all rows of a step in one padded pass and with a pass a row, both with flash attention where it is installed
and without gradient checkpointing, the reference computed beforehand. The model FLOPs utilization (Chowdhery et al. 2022, arXiv
2204.02311, appendix B) counts useful operations: no padding, no sharing, no recomputation, no gradient of frozen weights.
Goals are for an H100.
"""

from __future__ import annotations

import argparse
import copy
import gc
import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.figures import report, say, summarize

SHAPES = {
    "tiny": (64, 2, 4, 2, 128, 8000, True),
    "0.5b": (896, 24, 14, 2, 4864, 151_936, True),
    "7b": (3584, 28, 28, 4, 18_944, 152_064, False),
}
"""Hidden size, layers, heads, key heads, feed-forward size, vocabulary, tied head: Qwen 2.5 of these sizes."""

H100_TFLOPS = 989.0
"""Peak of dense bf16 products of an H100 SXM, by its data sheet."""

CONTEXT = 32_768
NEW_TOKENS = {"tiny": 8, "0.5b": 256, "7b": 256}


@dataclass(frozen=True)
class Gpu:
    """What all cases share."""

    shape: str
    device: torch.device
    rounds: int
    peak: float | None
    """FLOP/s; None: the measured rate of products."""
    tokenizer: Any

    @property
    def short(self) -> bool:
        return self.shape == "tiny"

    @property
    def precision(self) -> Any:
        return "bf16" if self.device.type == "cuda" else "fp32"

    @cached_property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.precision == "bf16" else torch.float32

    @cached_property
    def machine(self) -> Any:
        from quintain.trainers.engine.machine import prepare

        return prepare(self.device, self.dtype)

    @cached_property
    def base(self) -> Any:
        """A random model; adapters are put on copies that share its weights."""
        from transformers import Qwen2Config, Qwen2ForCausalLM

        hidden, layers, heads, key_heads, intermediate, vocabulary, tied = SHAPES[self.shape]
        config = Qwen2Config(
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=key_heads,
            intermediate_size=intermediate,
            vocab_size=vocabulary,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=tied,
            eos_token_id=self.tokenizer.eos_token_id,
            pad_token_id=self.tokenizer.pad_token_id,
            bos_token_id=None,
        )
        torch.manual_seed(0)
        before = torch.get_default_dtype()
        torch.set_default_dtype(self.dtype)
        try:
            with self.device:
                return Qwen2ForCausalLM(config).eval()
        finally:
            torch.set_default_dtype(before)

    def copied(self) -> Any:
        """Return a model of its own that shares the weights of the base."""
        return copy.deepcopy(self.base, {id(p): p for p in (*self.base.parameters(), *self.base.buffers())})

    def adapted(self, attention: str | None = None) -> Any:
        """Return the base under new adapters, equal at each call.

        Args:
            attention: Attention implementation of transformers; None: its own choice.
        """
        from quintain.records.hyperparameters import LoraConfig
        from quintain.trainers.adapters import with_new_adapter

        model = self.copied()
        if attention is not None:
            model.set_attn_implementation(attention)
        torch.manual_seed(1)
        adapted = with_new_adapter(model, LoraConfig()).to(self.device).train()
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.float()
        return adapted

    def config(self, kind: type[Any], **settings: Any) -> Any:
        from benchmarks.trl_sides import SAME
        from quintain.records.hyperparameters import LoraConfig

        return kind(**SAME, **settings, precision=self.precision, lora=LoraConfig())

    def workload(self, config: Any, seed: int) -> tuple[Any, Any]:
        from benchmarks.workload import Examples, Writer

        return Writer(self.tokenizer, seed), Examples.of(self.tokenizer, config)

    def turns(self, n: int) -> int:
        return max(2, n // 4) if self.short else n

    def goal(self, value: float) -> float | None:
        """Return the goal of a figure; none for a shape that shows nothing."""
        return None if self.short else value


def lora_sft(gpu: Gpu) -> None:
    """Runs of 20 turns, four a step: about 16,000 tokens."""
    from quintain.records.hyperparameters import SFTConfig

    config = gpu.config(SFTConfig)
    writer, examples = gpu.workload(config, 1)
    steps = [[examples.run(writer.run(gpu.turns(20))) for _ in range(4)] for _ in range(gpu.rounds + 1)]
    _compare(gpu, "gpu_lora_sft", config, steps, 0.40 if gpu.shape == "7b" else None, None)


def dpo_half_shared(gpu: Gpu) -> None:
    """Pairs that agree in half of their 20 turns, two a step; what comes after the branch is scored."""
    from quintain.records.hyperparameters import DPOConfig

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
    from quintain.records.hyperparameters import GRPOConfig

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
    from quintain.records.hyperparameters import GRPOConfig

    config = gpu.config(GRPOConfig)
    writer, examples = gpu.workload(config, 4)
    runs = [examples.group(writer.runs_of_task(2, gpu.turns(16)), (1.0, 0.0)) for _ in range(gpu.rounds + 1)]
    rows = [rows_of_turns(replace(g, rows=g.rows[:1], member=(0,), value=g.value[:1])) for g in runs]
    _compare(gpu, "gpu_per_turn", config, _sampled(gpu, rows), None, gpu.goal(5.0))


def decoding(gpu: Gpu) -> None:
    """32 episodes with prompts of about 550 tokens, one turn each: ours, `generate` of transformers, vLLM."""
    from benchmarks.workload import Writer
    from quintain.records.agent import Sampling
    from quintain.records.protocols import Message, Turn
    from quintain.trainers.acting.policy import LocalPolicy
    from quintain.trainers.models import LoadedModel
    from quintain.trainers.rendering.renderer import Renderer

    n_rows, n_new = (4 if gpu.short else 32), NEW_TOKENS[gpu.shape]
    writer, model = Writer(gpu.tokenizer, 5), gpu.copied()
    model.generation_config.eos_token_id = None
    renderer = replace(Renderer.of(gpu.tokenizer), end_ids=frozenset())
    messages = [Message(role="user", content=writer.text(100 if gpu.short else 550)) for _ in range(n_rows)]
    prompts = [renderer.opening([message]) for message in messages]

    def ours() -> None:
        loaded = LoadedModel(model, gpu.tokenizer, CONTEXT)
        policy = LocalPolicy(loaded, renderer, Sampling(temperature=1.0, max_new_tokens=n_new))
        policy.act([Turn(episode_id=str(i), messages=(message,), seed=i) for i, message in enumerate(messages)])

    def generate() -> None:
        width = max(map(len, prompts))
        ids = torch.tensor([[0] * (width - len(p)) + list(p) for p in prompts], device=gpu.device)
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=gpu.device)
        with torch.no_grad():
            model.generate(
                input_ids=ids,
                attention_mask=mask,
                max_new_tokens=n_new,
                min_new_tokens=n_new,
                do_sample=True,
                pad_token_id=0,
            )

    ways: dict[str, Callable[[], None]] = {"ours": ours, "generate": generate}
    with tempfile.TemporaryDirectory() as folder:
        if (vllm := _vllm(gpu, Path(folder), prompts, n_new)) is not None:
            ways["vllm"] = vllm
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for i in range(gpu.rounds + 1):
            for name in ways if i % 2 else reversed(ways):
                spent = _seconds(gpu, ways[name])
                if i:
                    seconds[name].append(spent)
    for name, times in seconds.items():
        report(f"gpu_decoding_{name}_tokens_per_s", [n_rows * n_new / s for s in times], "1/s", None, **_where(gpu))
    for name in [name for name in ways if name != "ours"]:
        ratios = [a / b for a, b in zip(seconds[name], seconds["ours"], strict=True)]
        report(f"gpu_decoding_vs_{name}", ratios, "1", None, **_where(gpu))


def _vllm(gpu: Gpu, folder: Path, prompts: Sequence[Sequence[int]], n_new: int) -> Callable[[], None] | None:
    """Return a turn by vLLM over the same weights; None where it is not installed."""
    if importlib.util.find_spec("vllm") is None:
        say("vLLM is not installed; its side is left out")
        return None
    from vllm import LLM, SamplingParams, TokensPrompt

    gpu.base.save_pretrained(folder)
    gpu.tokenizer.save_pretrained(folder)
    server = LLM(str(folder), dtype="bfloat16", gpu_memory_utilization=0.4, max_model_len=4096, seed=0)
    settings = SamplingParams(temperature=1.0, min_tokens=n_new, max_tokens=n_new, ignore_eos=True)
    asked = [TokensPrompt(prompt_token_ids=list(prompt)) for prompt in prompts]
    return lambda: server.generate(asked, settings, use_tqdm=False) and None


def _compare(
    gpu: Gpu, case: str, config: Any, steps: list[list[Any]], mfu_goal: float | None, ratio_goal: float | None
) -> None:
    """Take the steps with all sides, and report utilization, rate, memory and the ratio to TRL's best."""
    from benchmarks.trl_rounds import AGREE, agreement, run_rounds
    from benchmarks.trl_sides import Ours, Side, rows_of

    ours = Ours(gpu.adapted(), config, gpu.machine)
    theirs = _trl_sides(gpu, config, max(len(rows_of(step)) for step in steps))
    sides: dict[str, Side] = {**theirs, "ours": ours}
    tokens = [sum(map(len, rows_of(step))) for step in steps[1:]]
    say(f"{case}: about {tokens[0]} tokens a step, {gpu.rounds} rounds of {', '.join(sides)}")
    if gpu.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    rounds = run_rounds(sides, steps, gpu.dtype, gpu.device)
    engine = ours.run.engine
    seconds, where = rounds.seconds["ours"], _where(gpu) | {"kernel": engine.kernel or "of the device"}
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
    from benchmarks.trl_sides import trl_dpo, trl_grpo, trl_sft

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


def _seconds(gpu: Gpu, work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    if gpu.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def _where(gpu: Gpu) -> dict[str, Any]:
    name = torch.cuda.get_device_name() if gpu.device.type == "cuda" else "CPU"
    return {"shape": gpu.shape, "device": name, "precision": gpu.precision}


CASES: dict[str, Callable[[Gpu], None]] = {
    "lora_sft": lora_sft,
    "dpo_half_shared": dpo_half_shared,
    "grpo_groups": grpo_groups,
    "per_turn": per_turn,
    "decoding": decoding,
}


def main() -> int:
    """Run the chosen cases; 0: all of them ran, or there is no GPU."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description="Training and decoding on a GPU.")
    parser.add_argument("--shape", choices=SHAPES, default="0.5b")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", metavar="CASE,...", help=f"some of: {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peak-tflops", type=float, default=H100_TFLOPS, help="of dense bf16 products, on CUDA")
    arguments = parser.parse_args()
    chosen = arguments.only.split(",") if arguments.only else list(CASES)
    if unknown := sorted({*chosen} - {*CASES}):
        parser.error(f"no case is called {', '.join(unknown)}; there are {', '.join(CASES)}")
    if arguments.device == "cuda" and not torch.cuda.is_available():
        say("no CUDA device: nothing was measured; --shape tiny --device cpu runs every case without one")
        return 0
    from benchmarks.workload import make_tokenizer, quieten

    quieten()
    device = torch.device(arguments.device)
    peak = arguments.peak_tflops * 1e12 if device.type == "cuda" else None
    gpu = Gpu(arguments.shape, device, arguments.rounds, peak, make_tokenizer())
    failed = [name for name in chosen if not _ran(name, partial(CASES[name], gpu))]
    summarize()
    if failed:
        say(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def _ran(name: str, case: Callable[[], None]) -> bool:
    """Run a case; the others are worth having where it fails."""
    try:
        case()
    except Exception as error:
        say(f"{name} failed: {type(error).__name__}: {error}")
        return False
    finally:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return True


if __name__ == "__main__":
    sys.exit(main())
