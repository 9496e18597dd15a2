"""Chat templates in the manner of well-known models, each with the trait that makes it hard."""

from __future__ import annotations

from typing import Any, NamedTuple

from tiny_models import CHATML_TOOLS, SPECIAL, tiny_tokenizer

QWEN3 = """\
{%- if messages[0].role == 'system' or tools %}<|im_start|>system
{{ messages[0].content if messages[0].role == 'system' }}
{%- for tool in tools or [] %}
{{ tool | tojson }}{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == 'user' %}<|im_start|>user
{{ message.content }}<|im_end|>
{% elif message.role == 'assistant' %}
{%- set content = message.content %}
{%- if '</think>' in content %}{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}
{%- if loop.last %}<|im_start|>assistant
{% if '</think>' not in message.content %}<think>

</think>

{% endif %}{{ message.content }}
{%- else %}<|im_start|>assistant
{{ content }}
{%- endif %}
{%- for call in message.tool_calls %}{% if message.content or not loop.first %}{{ '\\n' }}{% endif %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% elif message.role == 'tool' %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""Strips thinking from past turns, and puts an empty one into the last."""

LLAMA3 = """\
{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message.role }}<|end_header_id|>

{{ message.content | trim }}<|eot_id|>{% endfor %}
{%- if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>

{% endif %}"""
"""Ends a turn with a token that is not the tokenizer's eos token, begins with bos, and ignores tool calls."""
LLAMA3_SPECIAL = ("<|end_of_text|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")

MISTRAL = """\
{{ bos_token }}
{%- if messages[0].role == 'system' %}{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}
{%- for message in rest %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate user/assistant') }}{% endif %}
{%- if message.role == 'user' %}[INST] {% if loop.last and messages[0].role == 'system' %}{{ messages[0].content }}

{% endif %}{{ message.content }} [/INST]
{%- else %} {{ message.content }}{{ eos_token }}{% endif %}
{%- endfor %}"""
"""Insists on alternating roles, has no generation prompt, and moves the system text to the last user message."""
MISTRAL_SPECIAL = ("<pad>", "<s>", "</s>", "[INST]", "[/INST]")

GEMMA = """\
{{ bos_token }}{% for message in messages %}
{%- if message.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}
{%- set role = 'model' if message.role == 'assistant' else message.role %}<start_of_turn>{{ role }}
{{ message.content | trim }}<end_of_turn>
{% endfor %}
{%- if add_generation_prompt %}<start_of_turn>model
{% endif %}"""
"""Knows no system role and calls the assistant `model`."""
GEMMA_SPECIAL = ("<pad>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>")

NO_END = """\
{% for message in messages %}{{ message.role }}: {{ message.content }}
{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"""
"""Ends a turn with a line break only."""


class Family(NamedTuple):
    """A template in three forms, and the tokens that it needs."""

    template: str
    marked: str
    """The same with `{% generation %}` around what the agent writes and its end token."""
    bare: str
    """The same, the end token outside of the markers."""
    end: str
    """What ends an agent turn."""
    special: tuple[str, ...] = SPECIAL
    eos: str = "<|im_end|>"
    bos: str | None = None

    def tokenizer(self, template: str | None = None) -> Any:
        """A tokenizer with the template, or another form of it."""
        return tiny_tokenizer(template or self.template, special=self.special, eos=self.eos, bos=self.bos)


def _family(template: str, old: str, new: str, ending: str, **tokens: Any) -> Family:
    """A family whose marked form has `new`, with GEN, END and `ending` in it, where the plain one has `old`."""
    assert old in template
    assert f"{ending}END" in new
    marked, bare = (
        template.replace(old, text.replace("GEN", "{% generation %}").replace("END", "{% endgeneration %}"))
        for text in (new, new.replace(f"{ending}END", f"END{ending}"))
    )
    return Family(marked=marked, bare=bare, template=template, **tokens)


def _for_agent(text: str, role: str) -> str:
    return f"{{% if {role} %}}GEN{text}END{{% else %}}{text}{{% endif %}}"


_CALLS = """\
{% for call in message.tool_calls %}{% if message.content or not loop.first %}{{ '\\n' }}{% endif %}<tool_call>
{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>"""
_LLAMA3_TEXT = "{{ message.content | trim }}<|eot_id|>"
_GEMMA_TEXT = "{{ message.content | trim }}<end_of_turn>"
_QWEN3_TURN = QWEN3[QWEN3.index("{%- if loop.last %}") : QWEN3.index("{% elif message.role == 'tool' %}")]
_QWEN3_MARKED = (
    _QWEN3_TURN.replace("{%- if loop.last %}<|im_start|>assistant\n", "<|im_start|>assistant\nGEN{% if loop.last %}")
    .replace("{%- else %}<|im_start|>assistant\n", "{%- else %}")
    .replace("<|im_end|>\n", "<|im_end|>END{{ '\\n' }}")
)

FAMILIES = {
    "chatml": _family(
        CHATML_TOOLS,
        "{{ message.content }}" + _CALLS + "\n",
        "GEN{{ message.content }}" + _CALLS + "END{{ '\\n' }}",
        "<|im_end|>",
        end="<|im_end|>",
    ),
    "qwen3": _family(QWEN3, _QWEN3_TURN, _QWEN3_MARKED, "<|im_end|>", end="<|im_end|>"),
    "llama3": _family(
        LLAMA3,
        _LLAMA3_TEXT,
        _for_agent(_LLAMA3_TEXT, "message.role == 'assistant'"),
        "<|eot_id|>",
        end="<|eot_id|>",
        special=LLAMA3_SPECIAL,
        eos="<|end_of_text|>",
        bos="<|begin_of_text|>",
    ),
    "mistral": _family(
        MISTRAL,
        " {{ message.content }}{{ eos_token }}{% endif %}",
        "GEN {{ message.content }}{{ eos_token }}END{% endif %}",
        "{{ eos_token }}",
        end="</s>",
        special=MISTRAL_SPECIAL,
        eos="</s>",
        bos="<s>",
    ),
    "gemma": _family(
        GEMMA,
        _GEMMA_TEXT + "\n",
        _for_agent(_GEMMA_TEXT, "role == 'model'") + "{{ '\\n' }}",
        "<end_of_turn>",
        end="<end_of_turn>",
        special=GEMMA_SPECIAL,
        eos="<eos>",
        bos="<bos>",
    ),
}
"""The templates by name."""
