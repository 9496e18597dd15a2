"""Whether a model folder has a tokenizer."""

from __future__ import annotations

from pathlib import Path

_VOCABULARIES = ("tokenizer.json", "tekken.json", "vocab*", "*.model", "*.spm")
"""Names of vocabulary files; without any, transformers creates a tokenizer without tokens."""


def has_vocabulary(folder: Path) -> bool:
    """Whether a folder has a file with the vocabulary of a tokenizer."""
    return any(path.is_file() for pattern in _VOCABULARIES for path in folder.glob(pattern))
