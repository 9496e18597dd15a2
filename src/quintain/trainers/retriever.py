"""A trained retriever: texts to unit vectors, and the search for the nearest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quintain.records.agent import ModelRef
from quintain.trainers.data.retrieval_examples import text_row
from quintain.trainers.data.streams import Example, TokenRow, streams_of
from quintain.trainers.engine.forward import Engine
from quintain.trainers.engine.packing import micro_batches
from quintain.trainers.losses.retriever import mean_pooled
from quintain.trainers.models.loading import eval_mode, load_model
from quintain.trainers.models.pooling_files import read_pooling

Vectors = NDArray[np.float32]

_TOGETHER = 256
"""Texts that are packed together."""

_BATCH_TOKENS = 8192


@dataclass(frozen=True)
class TextEncoder:
    """A loaded retriever."""

    engine: Engine
    tokenizer: Any
    max_length: int

    @staticmethod
    def of(folder: Path) -> TextEncoder:
        """Load the retriever in a folder."""
        max_length = read_pooling(folder).max_length
        loaded = load_model(_model_in(folder))
        return TextEncoder(Engine.of(loaded.model), loaded.tokenizer, min(max_length, loaded.context_tokens))

    @torch.no_grad()
    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return the unit vectors of texts, float32 [n, h]: the mean of the last hidden states, divided by its norm."""
        vectors = list[Vectors]()
        with eval_mode(self.engine.model):
            for start in range(0, len(texts), _TOGETHER):
                rows = [text_row(self.tokenizer, text, self.max_length) for text in texts[start : start + _TOGETHER]]
                found: dict[TokenRow, torch.Tensor] = {}
                for batch in micro_batches([Example((row,), (0,)) for row in rows], _BATCH_TOKENS):
                    of_batch = [example.rows[0] for example in batch]
                    pooled = mean_pooled(self.engine.states(of_batch), streams_of(batch, self.engine.model.device))
                    found |= zip(of_batch, torch.nn.functional.normalize(pooled, dim=-1), strict=True)
                vectors += [found[row].float().cpu().numpy() for row in rows]
        width = self.engine.model.get_input_embeddings().weight.shape[1]
        return np.stack(vectors) if vectors else np.zeros((0, width), np.float32)


@dataclass(frozen=True)
class DenseRetriever:
    """`records.protocols.TextRetriever` by a trained retriever."""

    encoder: TextEncoder
    vectors: Vectors
    """Unit vectors of the texts, float32 [n, h]."""

    def search(self, query: str, k: int) -> list[int]:
        """Return the numbers of the `k` texts nearest to a query, best first."""
        return nearest(self.vectors, self.encoder.encode([query])[0], k)


def nearest(vectors: Vectors, query: Vectors, k: int) -> list[int]:
    """Return the numbers of the `k` unit vectors [n, h] with the highest cosine to one [h], best first; equal ones in their order."""
    cosines = vectors @ query
    bound = np.partition(cosines, -k)[-k] if k < len(cosines) else -np.inf
    among = np.flatnonzero(cosines >= bound)
    return [int(i) for i in among[np.argsort(-cosines[among], kind="stable")[:k]]]


@cache
def _encoder(folder: Path) -> TextEncoder:
    return TextEncoder.of(folder)


def open_retriever(folder: Path, texts: Sequence[str]) -> DenseRetriever:
    """Return the search over texts by the retriever in a folder, which is loaded once a process."""
    encoder = _encoder(folder)
    return DenseRetriever(encoder, encoder.encode(texts))


def _model_in(folder: Path) -> ModelRef:
    """Return the reference to the model of a retriever's folder: the folder, or the adapter in it on its base."""
    try:
        config = json.loads((folder / "adapter_config.json").read_bytes())
    except FileNotFoundError:
        return ModelRef(source="folder", path=str(folder))
    name = str(config["base_model_name_or_path"])
    base = Path(name)
    if base.is_file():
        return ModelRef(source="gguf", path=name, adapter=str(folder))
    revision = config.get("revision")
    if base.is_dir():
        return ModelRef(source="folder", path=name, adapter=str(folder))
    return ModelRef(source="hub", path=name, revision=revision, adapter=str(folder))
