"""Decoding on a GPU: ours, `generate` of transformers, vLLM."""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.figures import report, say
from benchmarks.gpu.model import CONTEXT, Gpu, labels

NEW_TOKENS = {"tiny": 8, "0.5b": 256, "7b": 256}


def decoding(gpu: Gpu) -> None:
    """32 episodes with prompts of about 550 tokens, one turn each: ours, `generate` of transformers, vLLM."""
    from benchmarks.workload import Writer
    from quintain.records.agent import Sampling
    from quintain.records.protocols import Message, Turn
    from quintain.trainers.acting.policy import LocalPolicy
    from quintain.trainers.models.loading import LoadedModel
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
        report(f"gpu_decoding_{name}_tokens_per_s", [n_rows * n_new / s for s in times], "1/s", None, **labels(gpu))
    for name in [name for name in ways if name != "ours"]:
        ratios = [a / b for a, b in zip(seconds[name], seconds["ours"], strict=True)]
        report(f"gpu_decoding_vs_{name}", ratios, "1", None, **labels(gpu))


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


def _seconds(gpu: Gpu, work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    if gpu.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began
