"""A tokenizer's vocabulary in the GGUF format.

llama.cpp has its own names for the splitting of text before byte pairs are merged, which no tokenizer file contains.
The name is therefore found by measurement: the first with which llama.cpp gives the tokenizer's ids for the probe texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np

from quintain.errors import Conflict
from quintain.trainers.handover.llama_cpp import model_served
from quintain.trainers.rendering.renderer import Renderer

_SPLITTERS = (
    *(
        "qwen2",
        "llama-bpe",
        "smollm",
        "gpt-2",
        "gpt-4o",
        "tekken",
        "smaug-bpe",
        "deepseek-v3",
        "deepseek-llm",
        "falcon",
    ),
    *("starcoder", "refact", "command-r", "olmo", "dbrx", "stablelm2", "chatglm-bpe", "exaone", "bloom", "default"),
)
"""Names of llama.cpp's pre-tokenizers (llama-vocab.cpp), those in wide use first."""


class VocabularyForm(NamedTuple):
    """How llama.cpp splits text into tokens."""

    model: str
    """`gpt2`: byte pairs of UTF-8 bytes; `llama`: pieces with scores and byte fallback (SentencePiece)."""
    splitter: str = "default"
    space_prefix: bool = False


def add_vocabulary(writer: gguf.GGUFWriter, tokenizer: Any, form: VocabularyForm, rows: int) -> None:
    """Add tokens, merges or scores, and special tokens."""
    state = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    pairs = [pair if isinstance(pair, list) else pair.split(" ") for pair in state["merges"]]
    names, kinds = _tokens(tokenizer, rows)
    writer.add_tokenizer_model(form.model)
    writer.add_tokenizer_pre(form.splitter)
    writer.add_token_list(names)
    if form.model == "llama":
        writer.add_token_scores(_scores(names, pairs))
        writer.add_add_space_prefix(form.space_prefix)
    else:
        writer.add_token_merges([" ".join(part.replace(" ", "Ġ") for part in pair) for pair in pairs])
    writer.add_token_types(kinds)


def add_special_tokens(writer: gguf.GGUFWriter, renderer: Renderer) -> None:
    """Add the ids at which text begins, is padded and ends, and the chat template.

    llama.cpp and Ollama put the bos token before a prompt exactly where the agent's prompts begin with it.
    """
    tokenizer, end_ids = renderer.tokenizer, sorted(renderer.end_ids)
    eos = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else next(iter(end_ids), None)
    others = [i for i in end_ids if i != eos]
    for value, add in (
        (tokenizer.bos_token_id, writer.add_bos_token_id),
        (eos, writer.add_eos_token_id),
        (others[0] if others else None, writer.add_eot_token_id),
        (tokenizer.pad_token_id, writer.add_pad_token_id),
        (tokenizer.unk_token_id, writer.add_unk_token_id),
    ):
        if value is not None:
            add(value)
    writer.add_add_bos_token(renderer.writer.begins_with_bos)
    writer.add_chat_template(renderer.writer.source)


def copy_vocabulary(writer: gguf.GGUFWriter, base: Path) -> None:
    """Copy the vocabulary of the GGUF file that a model was read from."""
    ours = {gguf.Keys.Tokenizer.CHAT_TEMPLATE, gguf.Keys.Tokenizer.ADD_BOS}
    for key, field in gguf.GGUFReader(base).fields.items():
        if key.startswith("tokenizer.") and key not in ours and not key.endswith("_token_id"):
            kind, item = field.types[0], field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(key, field.contents(), kind, sub_type=item)


def find_form(tokenizer: Any, texts: Sequence[str], folder: Path) -> VocabularyForm:
    """Return the form in which llama.cpp gives the tokenizer's ids for all texts.

    Raises:
        Conflict: llama.cpp has no such form (`parity_failed`).
    """
    wanted = [tokenizer.encode(text, add_special_tokens=False, verbose=False) for text in texts]
    file = folder / ".vocabulary.gguf"
    for form in _candidates(tokenizer):
        try:
            _write_probe(file, tokenizer, form)
            with suppress(RuntimeError), model_served(file, context_tokens=64) as model:
                if [model.token_ids(text) for text in texts] == wanted:
                    return form
        finally:
            file.unlink(missing_ok=True)
    raise Conflict(
        "expected a tokenizer that llama.cpp has a form of, got other ids for the probe texts from each; export the agent in the "
        "format 'merged', and ask llama.cpp's convert_hf_to_gguf.py",
        code="parity_failed",
    )


def _candidates(tokenizer: Any) -> Iterator[VocabularyForm]:
    if json.loads(tokenizer.backend_tokenizer.to_str())["model"].get("byte_fallback"):
        yield VocabularyForm("llama", space_prefix=False)
        yield VocabularyForm("llama", space_prefix=True)
    else:
        yield from (VocabularyForm("gpt2", name) for name in _SPLITTERS)


def _tokens(tokenizer: Any, rows: int) -> tuple[list[str], list[int]]:
    """Return the names and kinds of the tokens that the model has embeddings of; an added pad token may have none."""
    count = max(rows, len(tokenizer))
    names, kinds = [f"[PAD{i}]" for i in range(count)], [int(gguf.TokenType.UNUSED)] * count
    for name, i in tokenizer.get_vocab().items():
        names[i] = name
        kinds[i] = int(gguf.TokenType.BYTE if _is_byte(name) else gguf.TokenType.NORMAL)
    for i, token in tokenizer.added_tokens_decoder.items():
        names[i] = token.content
        kinds[i] = int(gguf.TokenType.CONTROL if token.special else gguf.TokenType.USER_DEFINED)
    return names[:rows], kinds[:rows]


def _is_byte(name: str) -> bool:
    """Whether a token stands for one byte, as `<0x0A>`."""
    return len(name) == 6 and name.startswith("<0x") and name.endswith(">")


def _scores(names: Sequence[str], pairs: Sequence[Sequence[str]]) -> list[float]:
    """Return a score of each token so that llama.cpp merges the pieces that come first in the list of merges first."""
    ranks: dict[str, int] = {}
    for rank, pair in enumerate(pairs):
        ranks.setdefault("".join(pair), rank)
    return [-float(ranks.get(name, len(pairs))) for name in names]


def _write_probe(file: Path, tokenizer: Any, form: VocabularyForm) -> None:
    """Write a model of one small layer with the vocabulary."""
    width, rows = 32, len(tokenizer)
    writer = gguf.GGUFWriter(file, "llama")
    for add, value in (
        (writer.add_context_length, 64),
        (writer.add_embedding_length, width),
        (writer.add_block_count, 1),
        (writer.add_feed_forward_length, width),
        (writer.add_head_count, 1),
        (writer.add_vocab_size, rows),
    ):
        add(value)
    writer.add_layer_norm_rms_eps(1e-6)
    add_vocabulary(writer, tokenizer, form, rows)
    writer.add_tensor("token_embd.weight", np.zeros((rows, width), np.float16))
    writer.add_tensor("output_norm.weight", np.zeros(width, np.float32))
    for name in ("attn_norm", "ffn_norm"):
        writer.add_tensor(f"blk.0.{name}.weight", np.zeros(width, np.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        writer.add_tensor(f"blk.0.{name}.weight", np.zeros((width, width), np.float16))
    finish(writer)


def finish(writer: gguf.GGUFWriter) -> None:
    """Write the file and close it."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
