"""A trunk from scratch for retrievers: a tokenizer learnt from the texts, and a model of token embeddings alone.

A tiny pretrained model is a weak start: its states of all texts point in one direction. Here a text begins as the mean of random
vectors of its words, so that texts with words in common are near each other before the first step, and training moves words of one
meaning together (a deep averaging network without hidden layers; Iyyer et al. 2015, ACL P15-1162). On tools-1k a block of attention
made held-out phrasings worse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from transformers.models.qwen3 import Qwen3Config, Qwen3ForCausalLM

from quintain.datasets.recorded_calls import calls_of_run
from quintain.errors import InvalidInput
from quintain.records.dataset import DatasetRow, Row
from quintain.trainers.models.loading import LoadedModel, pick_device
from quintain.trainers.rendering.styles import FALLBACK_TEMPLATE

VOCABULARY = 8192
"""Maximum number of tokens; fewer where the texts have fewer words."""

HIDDEN, CONTEXT = 128, 4096

_LINEAR = 100.0
"""Epsilon of the last norm. Far above the mean square of the states, it makes the norm linear: a word counts by the length that
training gives its vector, where a usual norm would make all words count alike."""


def new_trunk(rows: Sequence[Row], seed: int) -> LoadedModel:
    """Return a tokenizer learnt from the texts of recorded calls, and a model without blocks, with random weights.

    Raises:
        InvalidInput: The rows contain no usable call.
    """
    tokenizer = _tokenizer(_texts(rows))
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=0,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=HIDDEN // 4,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=_LINEAR,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    model.to(pick_device()).train()
    torch.set_num_threads(1)
    return LoadedModel(model, tokenizer, CONTEXT)


def _texts(rows: Iterable[Row]) -> Iterator[str]:
    for row in rows:
        for call in calls_of_run(row.trajectory).calls if isinstance(row, DatasetRow) else ():
            yield from (call.need, call.document, *call.uncalled)


def _tokenizer(texts: Iterator[str]) -> Any:
    """Return a byte-level BPE tokenizer (Sennrich et al. 2016, arXiv 1508.07909) in lower case; digits are tokens of their own."""
    known = list(dict.fromkeys(texts))
    if not known:
        raise InvalidInput(
            "expected recorded calls of defined tools to learn a tokenizer from, got none; export runs that contain their `tools`",
            code="too_few_tools",
        )
    backend = Tokenizer(models.BPE())
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=True)]
    )
    special = ["<|pad|>", "<|end|>"]
    backend.train_from_iterator(
        known,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token=special[0], eos_token=special[1])
    tokenizer.chat_template = FALLBACK_TEMPLATE
    return tokenizer
