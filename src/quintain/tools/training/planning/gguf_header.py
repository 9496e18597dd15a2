"""Sizes in the header of a GGUF file, without reading its weights.

Source of the format: ggml's `docs/gguf.md`, versions 2 and 3. Everything in the file may be damaged or hostile, so the header is
bounded.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_MAX_HEADER = 32 * 2**20
"""Bytes; a vocabulary of 262,000 tokens has a header of about 6 MB."""

_FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
"""Type of a value -> its form in `struct`; beside them are strings and arrays."""
_STRING, _ARRAY = 8, 9

_MODULES = {
    "token_embd": "embed_tokens",
    "output": "lm_head",
    "attn_q": "q_proj",
    "attn_k": "k_proj",
    "attn_v": "v_proj",
    "attn_output": "o_proj",
    "ffn_gate": "gate_proj",
    "ffn_up": "up_proj",
    "ffn_down": "down_proj",
    "ffn_gate_exps": "experts.gate_proj",
    "ffn_up_exps": "experts.up_proj",
    "ffn_down_exps": "experts.down_proj",
}
"""Name in GGUF -> name in transformers, where adapters are named by it."""

_SETTINGS = {
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "head_dim": "attention.key_length",
    "intermediate_size": "feed_forward_length",
    "max_position_embeddings": "context_length",
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
}
"""Name in config.json -> name in GGUF, after the architecture."""


def read_gguf(path: Path) -> tuple[dict[str, Any], list[tuple[str, tuple[int, ...]]]]:
    """Return the settings of a model as in `config.json`, and its tensors by the names of transformers, with shapes.

    Raises:
        OSError, ValueError, LookupError: The file is damaged or of another format.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        reader = _Reader(data)
        try:
            if reader.take(4) != b"GGUF" or reader.number("<I") not in (2, 3):
                raise ValueError("no GGUF file of version 2 or 3")
            n_tensors, n_values = reader.number("<Q"), reader.number("<Q")
            values = {reader.string(): reader.value(reader.number("<I")) for _ in range(n_values)}
            tensors = [reader.tensor() for _ in range(n_tensors)]
        except struct.error as error:
            raise ValueError(f"the header ends too early ({error})") from None
    return _settings(values, dict(tensors)), tensors


def _settings(values: Mapping[str, Any], tensors: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    family = values["general.architecture"]
    settings = {name: _largest(values.get(f"{family}.{own}")) for name, own in _SETTINGS.items()}
    return {**settings, "vocab_size": tensors["embed_tokens.weight"][0]}


def _largest(value: Any) -> Any:
    """Return a setting; of one for each layer the largest."""
    return max(value, default=None) if isinstance(value, list) else value


class _Reader:
    """The values of a header, one after the other."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data, self._at = data, 0

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        end = self._at + size
        if end > min(_MAX_HEADER, len(self._data)):
            raise ValueError("a header of impossible length")
        self._at, begin = end, self._at
        return self._data[begin:end]

    def number(self, form: str) -> Any:
        """Return the next number."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def string(self) -> str:
        """Return the next string."""
        return self.take(self.number("<Q")).decode("utf-8", errors="replace")

    def value(self, kind: int) -> Any:
        """Return the next value; of an array only numbers of up to a thousand entries, since vocabularies are not needed."""
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.number(_FORMATS[kind])
        of, length = self.number("<I"), self.number("<Q")
        if of == _STRING:
            for _ in range(length):
                self.take(self.number("<Q"))
            return None
        entries = self.take(length * struct.calcsize(_FORMATS[of]))
        return [entry for (entry,) in struct.iter_unpack(_FORMATS[of], entries)] if length <= 1000 else None

    def tensor(self) -> tuple[str, tuple[int, ...]]:
        """Return the name and shape of the next tensor; its type and place in the file do not matter here."""
        name, n_dimensions = self.string(), self.number("<I")
        shape = tuple(self.number("<Q") for _ in range(min(n_dimensions, 5)))
        self.take(4 + 8)
        return _name(name), shape[::-1]


def _name(name: str) -> str:
    """Return the name of a tensor in transformers: `blk.0.attn_q.weight` is `layers.0.q_proj.weight`."""
    *before, module, kind = name.split(".") if "." in name else ("", name, "weight")
    return ".".join((*("layers" if part == "blk" else part for part in before), _MODULES.get(module, module), kind))
