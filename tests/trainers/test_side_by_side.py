"""Models with windows, chunks, sinks and caps on scores decode rows of unequal length in one batch as each row alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from quintain.trainers.acting.decoding import Decoder
from quintain.trainers.acting.kv_cache import Row
from trainers.own_forward import VOCABULARY, make

WINDOW = 8
PROMPTS = (WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW)

_MIXED = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
_EXPERTS = {"num_experts_per_tok": 2, "num_local_experts": 4}
FAMILIES: dict[str, dict[str, Any]] = {
    "Gemma2": {**_MIXED, "head_dim": 8, "attn_logit_softcapping": 5.0, "attn_implementation": "eager"},
    "Gemma3": {**_MIXED, "head_dim": 8},
    "Gemma4": {
        "sliding_window": WINDOW,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 2,
        "head_dim": 8,
        "global_head_dim": 16,
        "vocab_size_per_layer_input": VOCABULARY,
        "hidden_size_per_layer_input": 8,
    },
    "GptOss": {**_MIXED, **_EXPERTS, "head_dim": 8},
    "Mistral": {"sliding_window": WINDOW},
    "Mixtral": {"sliding_window": WINDOW, **_EXPERTS},
    "Phi3": {"sliding_window": WINDOW},
    "Qwen2": {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
    "Qwen3": {"use_sliding_window": True, "max_window_layers": 1, "sliding_window": WINDOW, "head_dim": 8},
    "Llama4": {
        "attention_chunk_size": WINDOW,
        "layer_types": ["chunked_attention", "full_attention", "chunked_attention"],
        "num_local_experts": 2,
        "intermediate_size_mlp": 48,
        "head_dim": 8,
    },
    "Cohere2": dict(_MIXED),
    "Olmo3": dict(_MIXED),
    "Granite": {"embedding_multiplier": 2.0, "attention_multiplier": 0.3, "logits_scaling": 2.0},
    "SmolLM3": {**_MIXED, "use_sliding_window": True, "no_rope_layers": [1, 0, 1]},
    "GPTNeo": {
        "num_layers": 2,
        "num_hidden_layers": 2,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 1]],
        "window_size": WINDOW,
    },
}


def tiny(family: str) -> Any:
    config_of = getattr(transformers, f"{family}TextConfig", None) or getattr(transformers, f"{family}Config")
    return make(config_of, getattr(transformers, f"{family}ForCausalLM"), **FAMILIES[family]).eval()


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_around_a_window_are_decoded_together_as_each_alone(family: str) -> None:
    """Three turns: prompts around the window, unequal further text, and one long text beside short ones."""
    model = tiny(family)
    decoder = Decoder.of(model, 128)
    assert decoder.caching == "batched"
    drawn = torch.randint(2, VOCABULARY, (4, 100), generator=torch.Generator().manual_seed(0)).tolist()
    ids = [row[:n] for row, n in zip(drawn, PROMPTS, strict=True)]
    cached = [Row() for _ in ids]
    worst = 0.0

    def compare(logits: torch.Tensor) -> None:
        nonlocal worst
        own = torch.cat([model(input_ids=torch.tensor([row]), use_cache=False).logits[:, -1] for row in ids])
        worst = max(worst, float((logits - own).abs().max() / own.abs().max()))

    with torch.no_grad():
        for added in ((0, 0, 0, 0), (3, 1, 12, 6), (1, 30, 2, 1)):
            ids = [[*row, *more[len(row) : len(row) + n]] for row, more, n in zip(ids, drawn, added, strict=True)]
            batch, logits = decoder.read(cached, ids)
            compare(logits)
            for _ in range(2):
                token = logits.argmax(-1)
                ids = [[*row, int(new)] for row, new in zip(ids, token, strict=True)]
                logits = decoder.step(batch, token[:, None])
                compare(logits)
            ids = [row[: len(row) - cut] for row, cut in zip(ids, (0, 2, 0, 3), strict=True)]  # of complete turns
            cached = [batch.row(i).cut(len(row)) for i, row in enumerate(ids)]
            ids = [[*row, 5] for row in ids]
    assert worst < 1e-5
