"""GGUF files, written in the process: a tiny model with its tokenizer, and headers without one."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from tiny_models import TINY_SIZES, tiny_tokenizer

VALUES: dict[str, int | str | list[str]] = {
    "general.architecture": "llama",
    "llama.embedding_length": 8,
    "llama.block_count": 1,
    "llama.attention.head_count": 2,
    "llama.feed_forward_length": 12,
    "llama.context_length": 512,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.tokens": ["a", "b"],
    "tokenizer.ggml.merges": ["a b"],
}
TENSORS = {  # GGUF writes columns before rows
    "token_embd.weight": (8, 100),
    "blk.0.attn_q.weight": (8, 8),
    "blk.0.ffn_down.weight": (12, 8),
    "output_norm.weight": (8,),
}


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def value(content: int | str | list[str]) -> bytes:
    if isinstance(content, int):
        return struct.pack("<II", 4, content)
    if isinstance(content, str):
        return struct.pack("<I", 8) + string(content)
    return struct.pack("<IIQ", 9, 8, len(content)) + b"".join(map(string, content))


def header(
    *,
    tensors: dict[str, tuple[int, ...]] = TENSORS,
    n_tensors: int | None = None,
    kind: int = 12,
    without: str = "",
    **changed: int | str | list[str],
) -> bytes:
    """The header of a GGUF file of version 3; each tensor is of 4-bit numbers in blocks of 256 (type 12), at the same place.

    Args:
        tensors: Name -> columns and rows.
        n_tensors: Their number as stated; None: the true one.
        kind: Type of the numbers.
        without: A value that is left out.
        changed: Values with `__` in place of dots.
    """
    values = {**VALUES, **{name.replace("__", "."): content for name, content in changed.items()}}
    values.pop(without, None)
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors) if n_tensors is None else n_tensors, len(values))]
    parts += [string(name) + value(content) for name, content in values.items()]
    for name, shape in tensors.items():
        parts += [string(name), struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, 0)]
    return b"".join(parts)


def whole(**changed: Any) -> bytes:
    """A GGUF file that no check refuses: the header, and as many bytes as its tensors take."""
    opening = header(**changed)
    return opening + bytes(-len(opening) % 32 + 800 // 256 * 144)


def save_qwen2(folder: Path) -> Path:
    """A tiny model of an architecture whose sizes GGUF has in full."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    tokenizer = tiny_tokenizer()
    config = Qwen2Config(vocab_size=len(tokenizer), tie_word_embeddings=True, **TINY_SIZES)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write_gguf(folder: Path, base: Path, *, vocabulary: list[str] | None = None) -> Path:
    """The tiny model in the format of llama.cpp, with 8-bit matrices; its tokens under other spellings, where they are given."""
    import gguf
    from transformers import Qwen2Config

    config, weights = Qwen2Config.from_pretrained(base), load_file(base / "model.safetensors")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, config.num_hidden_layers)
    file = folder / "tiny-Q8_0.gguf"
    writer = gguf.GGUFWriter(file, "qwen2")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    tokenizer = tiny_tokenizer()
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    vocabulary = vocabulary or sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    special = set(tokenizer.all_special_tokens) | {"<|im_start|>"}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(vocabulary)
    writer.add_token_types([gguf.TokenType.CONTROL if t in special else gguf.TokenType.NORMAL for t in vocabulary])
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_chat_template(tokenizer.chat_template)
    for name, tensor in weights.items():
        array, place = tensor.float().numpy(), names.get_name(name, try_suffixes=(".weight", ".bias"))
        kind = gguf.GGMLQuantizationType.Q8_0
        quantised = array.ndim == 2 and array.shape[1] % 32 == 0
        writer.add_tensor(
            place, gguf.quants.quantize(array, kind) if quantised else array, raw_dtype=kind if quantised else None
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file
