"""Write docs/reference/training-paths.md from tiny models of each architecture, and print it: `python -m scripts.training_paths`."""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers

from quintain.trainers.data.streams import token_row
from quintain.trainers.engine.forward import Engine

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "training-paths.md"

VOCABULARY = 61
"""Tokens of the tiny models."""

WINDOW = 8
"""Sliding window of the tiny models, in tokens."""

_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "initializer_range": 0.1,
    "pad_token_id": 1,
    "eos_token_id": 1,
    "bos_token_id": None,
}

_HYBRID = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
_ROUTED = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "n_group": 1,
    "topk_group": 1,
}
_DEEPSEEK = {
    **_ROUTED,
    "num_key_value_heads": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "head_dim": 8,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "first_k_dense_replace": 1,
}
_GEMMA_4 = {
    **_HYBRID,
    "initializer_range": 0.05,
    "global_head_dim": 16,
    "hidden_size_per_layer_input": 4,
    "vocab_size_per_layer_input": VOCABULARY,
    "num_kv_shared_layers": 0,
    "final_logit_softcapping": 5.0,
}
_GEMMA_4_SHARED = {
    **_GEMMA_4,
    "num_hidden_layers": 4,
    "num_kv_shared_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}


class Architecture(NamedTuple):
    """A tiny random model of one architecture."""

    title: str
    model_class: str
    """Name in transformers; its configuration is the class attribute `config_class`."""
    settings: dict[str, Any]

    def build(self, **settings: Any) -> Any:
        """Return the model in evaluation mode, with weights so large that its predictions depend on all that it sees.

        Args:
            **settings: Settings to change.
        """
        model_class = getattr(transformers, self.model_class)
        sizes = {**_SIZES, **self.settings, **settings}
        config_class = model_class.config_class
        vision = sizes.pop("vision_config", None)
        config = config_class(text_config=sizes, vision_config=vision) if vision else config_class(**sizes)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = model_class(config)
            for name, parameter in model.named_parameters():
                if name.endswith("sinks"):
                    torch.nn.init.normal_(parameter)
        return model.eval()


_VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}

ARCHITECTURES = [
    Architecture("Llama 3", "LlamaForCausalLM", {}),
    Architecture("Qwen 2.5", "Qwen2ForCausalLM", {}),
    Architecture("Qwen 2.5 with a window", "Qwen2ForCausalLM", {**_HYBRID, "use_sliding_window": True}),
    Architecture("Qwen 3", "Qwen3ForCausalLM", {}),
    Architecture("Qwen 3 MoE", "Qwen3MoeForCausalLM", _EXPERTS),
    Architecture("SmolLM3", "SmolLM3ForCausalLM", {"no_rope_layers": [1, 0]}),
    Architecture("Mistral", "MistralForCausalLM", {"sliding_window": None}),
    Architecture("Mistral with a window", "MistralForCausalLM", {"sliding_window": WINDOW}),
    Architecture(
        "Mistral 3", "Mistral3ForConditionalGeneration", {"vision_config": {**_VISION, "model_type": "pixtral"}}
    ),
    Architecture("Phi-3, Phi-4", "Phi3ForCausalLM", {"sliding_window": None}),
    Architecture("Phi-3 with a window", "Phi3ForCausalLM", {"sliding_window": WINDOW}),
    Architecture("Granite", "GraniteForCausalLM", {"residual_multiplier": 0.5, "logits_scaling": 4.0}),
    Architecture("OLMo 2", "Olmo2ForCausalLM", {}),
    Architecture("OLMo 3", "Olmo3ForCausalLM", _HYBRID),
    Architecture("GLM-4", "Glm4ForCausalLM", {}),
    Architecture("Gemma", "GemmaForCausalLM", {}),
    Architecture(
        "Gemma 2",
        "Gemma2ForCausalLM",
        {**_HYBRID, "query_pre_attn_scalar": 8, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0},
    ),
    Architecture("Gemma 3", "Gemma3ForCausalLM", {**_HYBRID, "query_pre_attn_scalar": 8}),
    Architecture(
        "Gemma 3 with images",
        "Gemma3ForConditionalGeneration",
        {**_HYBRID, "query_pre_attn_scalar": 8, "vision_config": {**_VISION, "model_type": "siglip_vision_model"}},
    ),
    Architecture("Gemma 4", "Gemma4ForCausalLM", _GEMMA_4),
    Architecture("Gemma 4 with shared keys", "Gemma4ForCausalLM", _GEMMA_4_SHARED),
    Architecture(
        "gpt-oss",
        "GptOssForCausalLM",
        {**_HYBRID, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    Architecture("GPT-2", "GPT2LMHeadModel", {"n_positions": 256}),
]
"""Architectures on the packed path."""

OTHERS = [
    Architecture("Apertus", "ApertusForCausalLM", {}),
    Architecture("BLOOM", "BloomForCausalLM", {}),
    Architecture("Cohere 2", "Cohere2ForCausalLM", _HYBRID),
    Architecture("DeepSeek V3", "DeepseekV3ForCausalLM", _DEEPSEEK),
    Architecture(
        "DeepSeek V3.2",
        "DeepseekV32ForCausalLM",
        {**_DEEPSEEK, "index_n_heads": 2, "index_head_dim": 8, "index_topk": 4},
    ),
    Architecture("Exaone 4", "Exaone4ForCausalLM", {**_HYBRID, "sliding_window_pattern": 2}),
    Architecture(
        "Gemma 3n",
        "Gemma3nForCausalLM",
        {
            **_HYBRID,
            "num_kv_shared_layers": 0,
            "hidden_size_per_layer_input": 4,
            "vocab_size_per_layer_input": VOCABULARY,
            "altup_num_inputs": 2,
            "laurel_rank": 4,
            "activation_sparsity_pattern": [0.0, 0.0],
            "intermediate_size": [48, 48],
        },
    ),
    Architecture("GLM-4 MoE", "Glm4MoeForCausalLM", {**_ROUTED, "first_k_dense_replace": 1}),
    Architecture(
        "GPT-Neo",
        "GPTNeoForCausalLM",
        {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]], "window_size": WINDOW},
    ),
    Architecture("GPT-NeoX", "GPTNeoXForCausalLM", {}),
    Architecture("LFM2", "Lfm2ForCausalLM", {"layer_types": ["conv", "full_attention"]}),
    Architecture(
        "Llama 4",
        "Llama4ForCausalLM",
        {"attention_chunk_size": WINDOW, "num_local_experts": 2, "intermediate_size_mlp": 48},
    ),
    Architecture("Mamba", "MambaForCausalLM", {"state_size": 4}),
    Architecture("MiniMax M2", "MiniMaxM2ForCausalLM", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    Architecture("Ministral", "MinistralForCausalLM", _HYBRID),
    Architecture("Mixtral", "MixtralForCausalLM", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    Architecture("Nemotron", "NemotronForCausalLM", {}),
    Architecture("OLMoE", "OlmoeForCausalLM", _EXPERTS),
    Architecture(
        "Qwen 3 Next",
        "Qwen3NextForCausalLM",
        {
            **_EXPERTS,
            "shared_expert_intermediate_size": 24,
            "layer_types": ["linear_attention", "full_attention"],
            "linear_num_value_heads": 2,
            "linear_num_key_heads": 2,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
        },
    ),
    Architecture("StableLM", "StableLmForCausalLM", {}),
    Architecture("Starcoder 2", "Starcoder2ForCausalLM", {"sliding_window": WINDOW}),
]
"""Further architectures, whichever path they take."""

_HEAD = """\
# Training paths

Which path of the training engine an architecture takes, from tiny random models of transformers {version}. Written by
`python -m scripts.training_paths`; `docs/explanation/training-engine.md` explains the paths.

A check at the start of each run decides, not this list: a model that is not here takes the path that it passes.

- **packed**: shared prefixes are computed once, without padding, and the last block only where a token is supervised.
- **packed, last block whole**: the same, but the last block computes all tokens.
- **padded**: rows of similar length are padded together, as plain transformers does.

The ratio is the time of a padded step over that of a packed one, for four rows of {tokens} tokens of which {shared} are
shared, on a model of width {width} and windows of {window} tokens. Real models differ: there products weigh more.

| architecture | path | padded / packed | reason |
|---|---|---|---|
"""

_TIMED = {"tokens": 224, "shared": 160, "width": 128, "window": 64}
"""Rows and model of the timed steps."""

_ROUNDS = 3


def path_of(engine: Engine) -> str:
    """Return the path as the table names it."""
    return "packed, last block whole" if engine.path == "packed" and not engine.pruned else engine.path


def page() -> str:
    """Return the page; the times are measured now."""
    transformers.logging.set_verbosity_error()
    lines = [_HEAD.format(version=transformers.__version__, **_TIMED)]
    for architecture in [*ARCHITECTURES, *OTHERS]:
        engine = Engine.of(architecture.build())
        ratio = f"{_speed_up(architecture):.1f}" if engine.path == "packed" else ""
        reason = engine.reason or "" if engine.path == "padded" else ""
        lines.append(f"| {architecture.title} | {path_of(engine)} | {ratio} | {reason} |\n")
    return "".join(lines)


def _speed_up(architecture: Architecture) -> float:
    """Return the time of a padded step over that of a packed one: medians of alternating steps."""
    settings: dict[str, Any] = {"hidden_size": _TIMED["width"]}
    if "head_dim" not in architecture.settings:
        settings["head_dim"] = _TIMED["width"] // 4
    if architecture.settings.get("sliding_window"):
        settings["sliding_window"] = _TIMED["window"]
    engine = Engine.of(architecture.build(**settings).train())
    draw = random.Random(0)
    ids = [draw.randrange(2, VOCABULARY) for _ in range(_TIMED["shared"])]
    own = _TIMED["tokens"] - _TIMED["shared"]
    rows = [
        token_row(
            [*ids, *(draw.randrange(2, VOCABULARY) for _ in range(own))],
            [t >= len(ids) for t in range(_TIMED["tokens"])],
        )
        for _ in range(4)
    ]
    engines = [engine, replace(engine, path="padded", pruned=False, shares=False)]
    times: list[list[float]] = [[], []]
    for _ in range(1 + _ROUNDS):
        for each, measured in zip(engines, times, strict=True):
            start = time.perf_counter()
            each.nll(rows, torch.ones(4 * own))[0].backward()
            measured.append(time.perf_counter() - start)
    packed, padded = (statistics.median(measured[1:]) for measured in times)
    return padded / packed


if __name__ == "__main__":
    text = page()
    PAGE.write_text(text, encoding="utf-8")
    print(text)
