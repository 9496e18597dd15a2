"""What all cases on a GPU share: shapes of Qwen 2.5 with random weights, and their adapters."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

SHAPES = {
    "tiny": (64, 2, 4, 2, 128, 8000, True),
    "0.5b": (896, 24, 14, 2, 4864, 151_936, True),
    "7b": (3584, 28, 28, 4, 18_944, 152_064, False),
}
"""Hidden size, layers, heads, key heads, feed-forward size, vocabulary, tied head: Qwen 2.5 of these sizes."""


H100_TFLOPS = 989.0
"""Peak of dense bf16 products of an H100 SXM, by its data sheet."""


CONTEXT = 32_768


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
        from transformers.models.qwen2 import Qwen2Config, Qwen2ForCausalLM

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
        """Return a new model that shares the weights of the base."""
        return copy.deepcopy(self.base, {id(p): p for p in (*self.base.parameters(), *self.base.buffers())})

    def adapted(self, attention: str | None = None) -> Any:
        """Return the base under new adapters, equal at each call.

        Args:
            attention: Attention implementation of transformers; None: its own choice.
        """
        from quintain.records.hyperparameters.methods import LoraConfig
        from quintain.trainers.models.adapters import with_new_adapter

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
        from benchmarks.trainers.sides import SAME
        from quintain.records.hyperparameters.methods import LoraConfig

        return kind(**SAME, **settings, precision=self.precision, lora=LoraConfig())

    def workload(self, config: Any, seed: int) -> tuple[Any, Any]:
        from benchmarks.workload import Examples, Writer

        return Writer(self.tokenizer, seed), Examples.of(self.tokenizer, config)

    def turns(self, n: int) -> int:
        return max(2, n // 4) if self.short else n

    def goal(self, value: float) -> float | None:
        """Return the goal of a figure; none for a shape that shows nothing."""
        return None if self.short else value


def labels(gpu: Gpu) -> dict[str, Any]:
    name = torch.cuda.get_device_name() if gpu.device.type == "cuda" else "CPU"
    return {"shape": gpu.shape, "device": name, "precision": gpu.precision}
