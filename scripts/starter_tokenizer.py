"""The tokenizer and chat template of `starter`: byte-level BPE with single digits, turns in the Hermes and Qwen style."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from random import Random

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from quintain.records.trajectory import Trajectory, text_of

SEED = 20260
VOCABULARY = 1536
CONTEXT = 4096

CHAT_TEMPLATE = """\
{%- if messages and messages[0].role == 'system' %}{% set system = messages[0].content %}{% set rest = messages[1:] %}
{%- else %}{% set system = '' %}{% set rest = messages %}{% endif %}
{%- if system or tools %}{{ '<|im_start|>system\\n' + system }}
{%- if tools %}{{ ('\\n\\n' if system else '') + '# Tools\\n<tools>' }}
{%- for tool in tools %}{{ '\\n' + tool | tojson }}{% endfor %}
{{- '\\n</tools>\\nCall a tool like this:\\n<tool_call>\\n{"name": tool, "arguments": object}\\n</tool_call>' }}
{%- endif %}{{ '<|im_end|>\\n' }}{% endif %}
{%- for message in rest %}{{ '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}{% set call = call.function or call %}
{{- '\\n' if message.content or not loop.first }}{{ '<tool_call>\\n{"name": ' + call.name | tojson + ', "arguments": ' }}
{{- call.arguments if call.arguments is string else call.arguments | tojson }}{{ '}\\n</tool_call>' }}
{%- endfor %}{{ '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""

WORDS = """
the of and to in is you that it he was for on are with as his they be at one have this from or had by hot but some what
there we can out other were all your when up use how said an each she which do their time if will way about many then
them would write like so these her long make thing see him two has look more day could go come did my no most who over
know than call first people may down side been now find any new work part take get place made where after back little
only round man year came show every good me give our under name very through just form much great think say help low
line before turn cause same mean differ move right boy old too does tell sentence set three want air well also play
small end put home read hand large spell add even land here must big high such follow act why ask men change went light
kind off need house picture try us again animal point mother world near build self earth father head stand own page
should country found answer school grow study still learn plant cover food sun four thought let keep eye never last
"""
TERMS = """
name type description parameters properties required string number integer boolean array object items enum default title
arguments function tool tools query path file content text message user system assistant result error value status id url
search open read write edit run command shell list delete update create get set send fetch submit answer data date time
limit offset page user_id email city country price amount currency unit language code output input token model key index
true false null maximum minimum format pattern additionalProperties format schema json http https api request response
weather order customer product account book flight hotel location latitude longitude temperature calendar event start end
"""


def generic_texts(rng: Random) -> Iterator[str]:
    """Sentences, tool schemas and calls of made-up tools, so that other environments do not fall apart into bytes."""
    words, terms = WORDS.split(), TERMS.split()
    for _ in range(2500):
        said = rng.choices(words, k=rng.randint(6, 14))
        yield f"{' '.join(said).capitalize()}, {' '.join(rng.choices(words + terms, k=6))}."
        name = "_".join(rng.choices(terms, k=rng.randint(1, 2)))
        keys = rng.sample(terms, rng.randint(1, 3))
        kinds = rng.choices(["string", "integer", "number", "boolean"], k=len(keys))
        properties = {
            key: {"type": kind, "description": " ".join(rng.choices(words + terms, k=4)).capitalize()}
            for key, kind in zip(keys, kinds, strict=True)
        }
        parameters = {"type": "object", "properties": properties, "required": keys}
        yield json.dumps({"type": "function", "function": {"name": name, "description": "", "parameters": parameters}})
        yield json.dumps(
            {"name": name, "arguments": {key: rng.choice(words) for key in keys}}, indent=rng.choice([None, 2])
        )


def make_tokenizer(texts: Iterator[str]) -> PreTrainedTokenizerFast:
    """Byte-level BPE with single digits, and the chat template."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - 2,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens(["<tool_call>", "</tool_call>"])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def tokenizer_texts(trajectories: Sequence[Trajectory]) -> Iterator[str]:
    """What the tokenizer is fit for: the episodes' texts, and generic ones."""
    for trajectory in trajectories:
        for step in trajectory.steps:
            yield text_of(step.message)
            yield step.thought or ""
            yield from (json.dumps({"name": a.tool, "arguments": a.args}) for a in step.actions)
            yield from (text_of(o.content) for o in step.observations)
    for _ in range(200):
        yield "\n".join(json.dumps(tool) for tool in trajectories[0].tools)
    yield from generic_texts(Random(SEED))
