"""Chat templates in the manner of well-known models, each with the trait that makes it hard."""

QWEN3 = """\
{%- if messages[0].role == 'system' or tools %}<|im_start|>system
{{ messages[0].content if messages[0].role == 'system' }}
{%- for tool in tools %}
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
