"""Find, load, check and save a model's tokenizer, with its chat template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from quintain.artifacts.vocabularies import has_vocabulary
from quintain.errors import InvalidInput
from quintain.records.agent import ModelRef
from quintain.trainers.models.adapters import first_line
from quintain.trainers.models.gguf_copies import UnfaithfulCopy
from quintain.trainers.models.model_files import ModelFiles

_OF_PROCESSOR = "chat_template.json"
"""File of a processor's template, as transformers wrote it until 4.50."""

_PROBE = "The quick brown fox jumps over the lazy dog, 0123456789 times."
"""A text that every language model's tokenizer can encode and decode."""


def tokenizer_files(ref: ModelRef, files: ModelFiles) -> ModelFiles:
    """Return where the tokenizer is: with an adapter that has its own, and with it the template of its training."""
    own = Path(ref.adapter) if ref.adapter else None
    if own is not None and has_vocabulary(own):
        return ModelFiles(own)
    return files if files.tokenizer is None else ModelFiles(files.tokenizer)


def load_tokenizer(files: ModelFiles) -> Any:
    """Load a tokenizer, with the template of its processor if it has none itself: models with images may have it there alone.

    Raises:
        InvalidInput: There are no files, they are damaged, or the tokenizer of a GGUF file does not decode its ids to the same text.
    """
    folder = files.folder
    if files.gguf is None and not has_vocabulary(folder):
        raise InvalidInput(
            f"expected tokenizer files in {folder}, got none; copy tokenizer.json and the like from the model's own folder",
            code="model_incomplete",
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            folder, trust_remote_code=False, local_files_only=True, **files.options
        )
        if files.gguf is None and not tokenizer.chat_template and (folder / _OF_PROCESSOR).is_file():
            tokenizer.chat_template = json.loads((folder / _OF_PROCESSOR).read_bytes())["chat_template"]
    except Exception as error:  # the tokenizers library raises bare Exception for a damaged file
        if files.gguf is None and not (folder / "tokenizer.json").is_file():
            raise InvalidInput(
                f"expected tokenizer.json in {files.path}, got other tokenizer files, which cannot be read here "
                f"({first_line(error)}); install sentencepiece and tiktoken, or add the file: "
                "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) writes it where they are installed",
                code="model_incomplete",
            ) from None
        raise InvalidInput(
            f"cannot read the tokenizer in {files.path} ({first_line(error)}); copy its files again from the original",
            code="model_damaged",
        ) from None
    if files.gguf is not None:
        _require_round_trip(tokenizer, files.path)
    return tokenizer


def _require_round_trip(tokenizer: Any, path: Path) -> None:
    """Refuse a tokenizer that does not decode its own ids to the same text, apart from spaces."""
    read = tokenizer.decode(tokenizer.encode(_PROBE, add_special_tokens=False), clean_up_tokenization_spaces=False)
    if read.split() != _PROBE.split():
        raise InvalidInput(
            f"expected the tokenizer of {path} to write the text that it reads ({_PROBE!r}), got {read[:80]!r}; convert the model "
            "again, with its own tokenizer files",
            code="model_damaged",
        )


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Save a tokenizer with its chat template.

    Raises:
        OSError: The disk refuses a file; the tokenizers library raises a bare Exception for it.
    """
    try:
        tokenizer.save_pretrained(folder)
    except Exception as error:
        if type(error) is Exception:
            raise OSError(f"tokenizers: {error}") from error
        raise


def save_exactly(tokenizer: Any, folder: Path) -> None:
    """Save a tokenizer so that it loads unchanged: with its own class, else with the one that reads `tokenizer.json` alone.

    Classes such as Qwen's add steps that a GGUF file does not state.

    Args:
        tokenizer: The tokenizer.
        folder: Its folder, without a `config.json`, which would decide the class.

    Raises:
        UnfaithfulCopy: It loads as a different tokenizer either way.
    """
    path = folder / "tokenizer_config.json"
    for own in ({}, {"tokenizer_class": "TokenizersBackend", "padding_side": tokenizer.padding_side}):
        save_tokenizer(tokenizer, folder)
        path.write_text(json.dumps(json.loads(path.read_bytes()) | own, indent=2), encoding="utf-8")
        if _facts(load_tokenizer(ModelFiles(folder))) == _facts(tokenizer):
            return
    raise UnfaithfulCopy("it would load with another tokenizer")


def _facts(tokenizer: Any) -> tuple[Any, ...]:
    sides = tokenizer.padding_side, tokenizer.truncation_side, tokenizer.clean_up_tokenization_spaces
    about = tokenizer.special_tokens_map, tokenizer.model_max_length, tokenizer.chat_template
    return (tokenizer.backend_tokenizer.to_str(), *about, *sides)


def require_embeddings(model: Any, tokenizer: Any, path: Path) -> None:
    """Refuse a tokenizer with more tokens than the model has embeddings, apart from an added pad token, which is never read.

    Raises:
        InvalidInput: Always for such a tokenizer (`model_mismatch`).
    """
    rows, pad = model.get_input_embeddings().weight.shape[0], tokenizer.pad_token_id
    spare = pad is not None and pad >= rows and tokenizer.pad_token not in str(tokenizer.chat_template)
    if len(tokenizer) > rows + spare:
        raise InvalidInput(
            f"expected at most {rows} tokens, the model's embeddings, got {len(tokenizer)} in the tokenizer of {path}; copy the "
            "tokenizer files from the model's own folder",
            code="model_mismatch",
        )
