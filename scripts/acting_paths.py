"""Print how each decoder architecture of transformers acts: its episodes side by side, one at a time, or without a cache.

Run as `python -m scripts.acting_paths`. Each architecture is built with small random weights from its own configuration class; a
window or chunk is short, so that rows pass it. `differs` is the greatest difference of logits from each row alone, relative to
the greatest logit, where rows of unequal length are decoded side by side.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections import Counter
from typing import Any

import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from quintain.trainers.acting.decoding import Decoder

_WINDOW = 16
_SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "embedding_size": 32,
    "n_embed": 32,
    "n_layer": 3,
    "n_head": 4,
    "num_layers": 3,
    "num_heads": 4,
    "n_embd": 32,
    "d_model": 32,
    "intermediate_size": 48,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "rotary_dim": 4,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "max_position_embeddings": 256,
    "sliding_window": _WINDOW,
    "attention_chunk_size": _WINDOW,
    "initializer_range": 0.15,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "state_size": 8,
    "mamba_d_state": 8,
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "ffn_dim": 48,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 48,
}
"""Small sizes, by the names that configurations use; each takes those that it has."""


_VARIANTS: tuple[dict[str, Any], ...] = ({}, {"num_key_value_heads": 4}, {"num_key_value_heads": 4, "head_dim": 16})
"""Replacements to try where a model does not run with these sizes: some derive one from another."""

_LARGEST = 30_000_000
"""Parameters above which an architecture is not built: its sizes have other names."""


def tiny(architecture: str, variant: dict[str, Any]) -> Any:
    """Return a small random model of a class in transformers.

    Raises:
        ValueError: It would be large.
    """
    model_class = getattr(transformers, architecture)
    config_class = model_class.config_class
    defaults = config_class()
    settings = _settings(defaults, variant)
    text = getattr(defaults, "text_config", None)
    if text is not None and "text_config" in inspect.signature(config_class.__init__).parameters:
        settings = {"text_config": {"model_type": text.model_type, **_settings(text, variant)}}
    with torch.device("meta"):
        size = sum(p.numel() for p in model_class(config_class(**settings)).parameters())
    if size > _LARGEST:
        raise ValueError(f"{size:,} parameters with the small sizes")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return model_class(config_class(**settings)).eval()


def _settings(defaults: Any, variant: dict[str, Any]) -> dict[str, Any]:
    return {name: size for name, size in (_SIZES | variant).items() if _has(defaults, name)}


def _has(defaults: Any, name: str) -> bool:
    """Whether a configuration has a value of this name, one for all layers."""
    try:
        return getattr(defaults, name, None) is not None
    except Exception:  # values by layer, whose error is the library's own
        return False


def differs(model: Any, decoder: Decoder) -> float:
    """Return the greatest difference of logits from each row alone, over prompts around the window and eight steps."""
    from quintain.trainers.acting.kv_cache import Row

    drawn = torch.randint(3, 60, (4, 2 * _WINDOW), generator=torch.Generator().manual_seed(0)).tolist()
    ids = [row[:n] for row, n in zip(drawn, (_WINDOW - 1, _WINDOW, _WINDOW + 1, 2 * _WINDOW), strict=True)]
    batch, logits = decoder.read([Row() for _ in ids], ids)
    worst = 0.0
    for _ in range(8):
        own = torch.cat([model(input_ids=torch.tensor([row]), use_cache=False).logits[:, -1] for row in ids])
        worst = max(worst, float((logits - own).abs().max() / own.abs().max()))
        token = own.argmax(-1)
        ids = [[*row, int(new)] for row, new in zip(ids, token, strict=True)]
        logits = decoder.step(batch, token[:, None])
    return worst


def path_of(architecture: str) -> tuple[str, str, str]:
    """Return the architecture, its path, and a remark."""
    for variant in _VARIANTS:
        try:
            model = tiny(architecture, variant)
            with torch.no_grad():
                model(input_ids=torch.tensor([[3, 4, 5]]))
            decoder = Decoder.of(model, 256)
            break
        except Exception as error:
            reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:90]}"
    else:
        return architecture, "not built", reason
    layers = Counter(_layers(model))
    remark = ", ".join(f"{n} {name}" for name, n in layers.items())
    if decoder.caching == "batched" and hasattr(decoder, "read"):
        with torch.no_grad():
            remark += f"; differs {differs(model, decoder):.0e}"
    return architecture, decoder.caching, remark


def _layers(model: Any) -> list[str]:
    try:
        return [type(layer).__name__ for layer in transformers.DynamicCache(config=model.config).layers]
    except Exception:
        return []


def main(names: list[str]) -> int:
    """Print one line an architecture, then the counts."""
    warnings.simplefilter("ignore")
    transformers.utils.logging.set_verbosity_error()
    counts: Counter[str] = Counter()
    for architecture in names or sorted({*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()}):
        name, path, remark = path_of(architecture)
        counts[path] += 1
        print(f"{name:42s} {path:10s} {remark}", flush=True)
    print(dict(counts))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
