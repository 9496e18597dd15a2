"""Tiny models and tokenizers, built in the process: no file of them is in the repository, and none is downloaded."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

CHATML_TOOLS = """\
{%- if tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content + '\\n\\n' }}{% endif %}# Tools
<tools>{% for tool in tools %}
{{ tool | tojson }}{% endfor %}
</tools><|im_end|>
{% elif messages[0].role == 'system' %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% elif message.role == 'assistant' %}<|im_start|>assistant
{{ message.content }}{% for call in message.tool_calls %}{% if message.content or not loop.first %}{{ '\\n' }}{% endif %}<tool_call>
{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% elif message.role == 'tool' %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""ChatML with tool calls as Qwen 2.5 writes them."""

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
"""Special tokens; the first pads."""

_CORPUS = (
    "You are an agent. Look up the price and the stock of items with the tools, then submit the answer. ",
    '<tool_call>\n{"name": "search", "arguments": {"query": "mango"}}\n</tool_call> <tool_response> </tool_response>',
    'Thought: search first\nAction: search {"query": "lamp"}\nObservation: lamp has id 12, price 40, stock 7',
    '{"type": "function", "function": {"name": "open", "description": "Open an item", "parameters": {"type": "object"}}}',
    "system user assistant tool\n0 1 2 3 4 5 6 7 8 9 10 20 30 the quick brown fox jumps over the lazy dog. Ünïcödé äöüß",
)


@cache
def _backend(special: tuple[str, ...], vocab: int) -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        list(_CORPUS) * 20,
        trainers.BpeTrainer(
            vocab_size=vocab, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False
        ),
    )
    return tokenizer.to_str()


def tiny_tokenizer(
    template: str | None = CHATML_TOOLS,
    *,
    special: tuple[str, ...] = SPECIAL,
    eos: str | None = "<|im_end|>",
    bos: str | None = None,
    vocab: int = 512,
) -> Any:
    """A byte-level BPE tokenizer with the special tokens and the chat template given."""
    backend = Tokenizer.from_str(_backend(special, vocab))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=eos, bos_token=bos, pad_token=special[0])
    tokenizer.chat_template = template
    return tokenizer


def with_bos_first(tokenizer: Any) -> Any:
    """The tokenizer, which now begins texts with its first special token, as those of Llama, Gemma and Mistral do."""
    tokenizer.bos_token = SPECIAL[0]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{SPECIAL[0]} $A", special_tokens=[(SPECIAL[0], tokenizer.bos_token_id)]
    )
    return tokenizer


TINY_SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
}
"""Sizes of a model of any architecture, by their names in its configuration."""


def tiny_model(tokenizer: Any, *, hidden: int = 32, layers: int = 2, context: int = 1024, seed: int = 0) -> Any:
    """A random Qwen3 model of two layers for a tokenizer; the same seed gives the same weights."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=hidden // 4,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(config)


def save_tiny_model(
    folder: Path, *, template: str | None = CHATML_TOOLS, tokenizer: Any = None, seed: int = 0, **sizes: int
) -> Path:
    """A tiny model and its tokenizer in a folder, ready for `load_model`."""
    tokenizer = tokenizer or tiny_tokenizer(template)
    tiny_model(tokenizer, seed=seed, **sizes).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
