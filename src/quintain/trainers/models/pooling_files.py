"""Files that make a model folder a retriever: those of sentence-transformers, which loads the folder as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from quintain.errors import InvalidInput

MODULES_FILE = "modules.json"
"""Marks a retriever's folder."""

_LENGTH_FILE = "sentence_bert_config.json"
_POOLING_FILE = "1_Pooling/config.json"
_MODULES = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))


def write_pooling(folder: Path, width: int, max_length: int) -> None:
    """Write the files beside a model or adapter: mean of the last hidden states, divided by its norm."""
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(_MODULES)
    ]
    pooling = {"word_embedding_dimension": width, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    length = {"max_seq_length": max_length, "do_lower_case": False}
    for name, content in ((MODULES_FILE, modules), (_POOLING_FILE, pooling), (_LENGTH_FILE, length)):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


class Pooling(NamedTuple):
    """How a retriever reads texts."""

    width: int
    """Hidden size."""
    max_length: int
    """Tokens at which texts are cut."""


def read_pooling(folder: Path) -> Pooling:
    """Return how a retriever reads texts.

    Raises:
        InvalidInput: The folder is not a retriever's, it pools otherwise, or its files are damaged.
    """
    if not (folder / MODULES_FILE).is_file():
        raise InvalidInput(
            f"expected the folder of a retriever, got {folder} without {MODULES_FILE}; name an agent of method 'retriever'",
            code="not_a_retriever",
        )
    try:
        pooling = json.loads((folder / _POOLING_FILE).read_bytes())
        if pooling["pooling_mode_mean_tokens"] is not True or pooling["pooling_mode_cls_token"] is not False:
            raise ValueError("it does not pool by the mean alone")
        length = json.loads((folder / _LENGTH_FILE).read_bytes())
        return Pooling(int(pooling["word_embedding_dimension"]), int(length["max_seq_length"]))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InvalidInput(
            f"the retriever in {folder} is damaged or pools otherwise ({type(error).__name__}: {error}); copy the folder again, or "
            "train the retriever again",
            code="model_damaged",
        ) from None
