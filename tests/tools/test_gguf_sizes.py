"""Sizes of a model are read from the header of a GGUF file, whatever stands in it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from gguf_files import header, string, whole
from quintain.records.agent import ModelRef
from quintain.tools.training.planning.model_files import Matrix, ModelFacts, read_model


def read(folder: Path, content: bytes) -> ModelFacts | str:
    (folder / "m.gguf").write_bytes(content)
    return read_model(ModelRef(source="gguf", path=str(folder / "m.gguf")))


def test_sizes_are_those_of_the_dequantised_model_by_the_names_of_transformers(tmp_path: Path) -> None:
    """100 x 8 embeddings that are the head too, 8 x 8 and 8 x 12 in the block, 8 in the norm: 968; 2 heads of 4."""
    facts = read(tmp_path, whole())
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
