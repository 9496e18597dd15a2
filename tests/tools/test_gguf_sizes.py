"""Sizes of a model are read from the header of a GGUF file, whatever stands in it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from quintain.records.agent import ModelRef
from quintain.tools.training.planning.model_files import Matrix, ModelFacts, read_model

VALUES: dict[str, int | str | list[str]] = {
    "general.architecture": "llama",
    "llama.embedding_length": 8,
    "llama.block_count": 1,
    "llama.attention.head_count": 2,
    "llama.feed_forward_length": 12,
    "llama.context_length": 512,
    "tokenizer.ggml.tokens": ["a", "b"],
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


def header(*, tensors: dict[str, tuple[int, ...]] = TENSORS, n_tensors: int | None = None) -> bytes:
    """The header of a GGUF file of version 3; type and place of a tensor are 4-bit (12) and 0."""
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors) if n_tensors is None else n_tensors, len(VALUES))]
    parts += [string(name) + value(content) for name, content in VALUES.items()]
    for name, shape in tensors.items():
        parts += [string(name), struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 12, 0)]
    return b"".join(parts)


def read(folder: Path, content: bytes) -> ModelFacts | str:
    (folder / "m.gguf").write_bytes(content)
    return read_model(ModelRef(source="gguf", path=str(folder / "m.gguf")))


def test_sizes_are_those_of_the_dequantised_model_by_the_names_of_transformers(tmp_path: Path) -> None:
    """100 x 8 embeddings that are the head too, 8 x 8 and 8 x 12 in the block, 8 in the norm: 968; 2 heads of 4."""
    facts = read(tmp_path, header())
    assert isinstance(facts, ModelFacts)
    assert facts.matrices == (Matrix("q_proj", 8, 8), Matrix("down_proj", 8, 12))
    assert (facts.parameters, facts.body, facts.head) == (968, 160, 800)
    assert (facts.hidden, facts.intermediate, facts.layers, facts.attention_width) == (8, 12, 1, 8)
    assert (facts.vocabulary, facts.context_tokens) == (100, 512)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"GGUF",
        b"PK" + header()[2:],
        header()[:-1],
        header(n_tensors=2**62),
        header(tensors={"token_embd.weight": (2**40, 2**40)}),
        header(tensors={"blk.0.attn_q.weight": (8, 8)}),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + string("k") + struct.pack("<IIQ", 9, 4, 2**61),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + string("k") + struct.pack("<IIQ", 9, 9, 2**61),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60) + bytes(100_000),
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**63),
    ],
    ids=range(11),
)
def test_a_damaged_or_hostile_header_gives_a_reason(tmp_path: Path, content: bytes) -> None:
    reason = read(tmp_path, content)
    assert isinstance(reason, str)
    assert "cannot be read" in reason
