"""Whether a job can load a model folder: what its configuration, the headers of its weights and its tokenizer show."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from quintain.artifacts.vocabularies import has_vocabulary
from quintain.errors import InvalidInput
from quintain.records.wording import shown
from quintain.tools.training.model_folders import read_object, weight_headers
from quintain.tools.training.planning.gguf_header import is_newer_than

_LISTED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

MODEL_TYPES = frozenset(_LISTED["model_types"])
"""Causal language models of transformers, by `model_type` in config.json."""

_NUMBERED = re.compile(r"(\D*)\.(\d+)\.")

_MAX_TOKENIZER = 64 * 2**20
"""Bytes; the largest in use, of 262,000 tokens, have 35 MB."""


def require_loadable(folder: Path, *, own_tokenizer: bool = True) -> None:
    """Refuse a model folder that no job can load, as far as its files show; the weights themselves are not read.

    Args:
        folder: The folder.
        own_tokenizer: Whether its own tokenizer is used, and not that of an adapter.

    Raises:
        InvalidInput: A file is missing, cut or damaged (`model_damaged`, `model_incomplete`), the model is no causal one
            (`unsupported_model`), or files are of different models (`model_mismatch`).
    """
    headers = weight_headers(folder)
    try:
        config = read_object(folder / "config.json")
    except (OSError, ValueError, TypeError, RecursionError):
        raise InvalidInput(
            f"cannot read config.json in the folder {folder.name!r}; copy it again from the original",
            code="model_damaged",
        ) from None
    _require_causal(folder, config)
    text = config.get("text_config")
    settings = {**config, **text} if isinstance(text, Mapping) else config
    _require_layers(folder, headers, settings.get("num_hidden_layers"))
    rows = settings.get("vocab_size")
    if type(rows) is not int:
        return
    untied = settings.get("tie_word_embeddings") is False and config.get("tie_word_embeddings") is not True
    if untied and "quantization_config" not in config:
        _require_head(folder, headers, rows)
    if own_tokenizer:
        _require_tokenizer(folder, rows)


def _require_causal(folder: Path, config: Mapping[str, Any]) -> None:
    kind = config.get("model_type")
    if not isinstance(kind, str) or (kind in MODEL_TYPES and config.get("is_encoder_decoder") is not True):
        return
    if config.get("is_decoder") is True or is_newer_than(_LISTED["listed_for"]):
        return
    raise InvalidInput(
        f"expected a causal language model that transformers knows without remote code, got {shown(kind)} in the folder "
        f"{folder.name!r}; name another model",
        code="unsupported_model",
    )


def _require_layers(folder: Path, headers: list[dict[str, Any]], wanted: Any) -> None:
    """Refuse weights with fewer layers than the configuration states, by the first number in their names."""
    numbers: dict[str, set[str]] = {}
    for name in (name for header in headers for name in header):
        if numbered := _NUMBERED.match(name):
            numbers.setdefault(numbered[1], set()).add(numbered[2])
    found = max(map(len, numbers.values()), default=0)
    if type(wanted) is int and 0 < found < wanted:
        raise InvalidInput(
            f"expected {wanted:,} layers, as config.json says, in the weights of the folder {folder.name!r}, got {found:,}; copy "
            "config.json and the weights from the same model",
            code="model_mismatch",
        )


def _require_head(folder: Path, headers: list[dict[str, Any]], rows: int) -> None:
    """Refuse weights without an output layer, where the embeddings do not take its place."""
    shapes = [about.get("shape") for header in headers for name, about in header.items() if name != "__metadata__"]
    if (found := sum(isinstance(shape, list) and len(shape) == 2 and shape[0] == rows for shape in shapes)) < 2:
        raise InvalidInput(
            f"expected embeddings and an output layer of {rows:,} tokens in the weights of {folder.name!r}, whose config.json does "
            f"not tie them, got {found} of the two; save it by AutoModelForCausalLM, or copy config.json and the weights from one "
            "causal language model",
            code="model_mismatch",
        )


def _require_tokenizer(folder: Path, rows: int) -> None:
    if not has_vocabulary(folder):
        raise InvalidInput(
            f"expected tokenizer files in the folder {folder.name!r}, got none; copy tokenizer.json and the like from the model's "
            "own folder",
            code="model_incomplete",
        )
    path = folder / "tokenizer.json"
    if not path.is_file() or (about := path.stat()).st_size > _MAX_TOKENIZER:
        return
    try:
        found, added = _tokens(path, about.st_size, about.st_mtime_ns)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise InvalidInput(
            f"cannot read tokenizer.json in the folder {folder.name!r}; copy it again from the original",
            code="model_damaged",
        ) from None
    spare = [name for name, i in added if i >= rows]
    if found > rows + (spare == [_pad_token(folder)]):  # which is never read
        raise InvalidInput(
            f"expected at most {rows:,} tokens, the model's embeddings, got {found:,} in the tokenizer of the folder "
            f"{folder.name!r}; copy the tokenizer files from the model's own folder",
            code="model_mismatch",
        )


@lru_cache(maxsize=16)
def _tokens(path: Path, _size: int, _mtime_ns: int) -> tuple[int, list[tuple[str, int]]]:
    """Return the number of tokens, and the added ones with their ids; the file is read again only after it has changed."""
    whole = read_object(path, _MAX_TOKENIZER)
    known = whole["model"]["vocab"]
    vocabulary = set(known) if isinstance(known, Mapping) else {token for token, _ in known}
    added = [(token["content"], token["id"]) for token in whole["added_tokens"]]
    return len(vocabulary | {name for name, _ in added}), added


def _pad_token(folder: Path) -> str | None:
    try:
        pad = read_object(folder / "tokenizer_config.json").get("pad_token")
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    return pad.get("content") if isinstance(pad, Mapping) else pad
