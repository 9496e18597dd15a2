"""Chat templates that write calls in forms of their own, close to the official ones of well-known models."""

from __future__ import annotations

from typing import Any, NamedTuple

from tiny_models import tiny_tokenizer

LLAMA31 = """\
{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = '' %}
{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' + system_message + '<|eot_id|>' }}
{%- if tools %}
    {{- '<|start_header_id|>user<|end_header_id|>\\n\\nRespond in the format {"name": function name, "parameters": ' }}
    {{- 'dictionary of argument name and its value}.\\n\\n' }}
    {%- for t in tools %}{{ t | tojson(indent=4) }}{{ '\\n\\n' }}{% endfor %}
    {{- messages[0]['content'] | trim + '<|eot_id|>' }}
    {%- set messages = messages[1:] %}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", "parameters": ' + tool_call.arguments | tojson + "}" }}
        {{- "<|eom_id|>" if builtin_tools is defined else "<|eot_id|>" }}
    {%- else %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" + message.content + "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"""
"""Refuses two calls in a turn, and writes no thought beside one."""

_MISTRAL = """\
{{- bos_token }}
{%- for message in messages %}
    {%- if message.role == "system" %}{{- "[SYSTEM_PROMPT]" + message.content + "[/SYSTEM_PROMPT]" }}
        {%- if tools %}{{- "[AVAILABLE_TOOLS]" + tools | tojson + "[/AVAILABLE_TOOLS]" }}{% endif %}
    {%- elif message.role == "user" %}{{- "[INST]" + message.content + "[/INST]" }}
    {%- elif message.tool_calls %}CALLS{{- eos_token }}
    {%- elif message.role == "assistant" %}{{- message.content + eos_token }}
    {%- else %}{{- "[TOOL_RESULTS]" + message.content + "[/TOOL_RESULTS]" }}
    {%- endif %}
{%- endfor %}"""
NEMO = _MISTRAL.replace(
    "CALLS",
    """{{- "[TOOL_CALLS][" }}{%- for call in message.tool_calls %}
        {%- if call.id|length != 9 %}{{- raise_exception("Tool call IDs should be alphanumeric strings with length 9!") }}{%- endif %}
        {{- (call.function | tojson)[:-1] + ', "id": "' + call.id + '"}' }}{%- if not loop.last %}, {% endif %}
    {%- endfor %}{{- "]" }}""",
)
"""Writes no thought beside calls."""
MINISTRAL = _MISTRAL.replace(
    "CALLS",
    """{{- message.content }}{%- for call in message.tool_calls %}
        {{- "[TOOL_CALLS]" + call.function.name + "[CALL_ID]" + call.id + "[ARGS]" + call.function.arguments | tojson }}
    {%- endfor %}""",
)

DEEPSEEK_V31 = """\
{{- bos_token }}{% for message in messages %}
{%- if message.role == 'system' %}{{ message.content }}
{%- elif message.role == 'user' %}{{ '<｜User｜>' + message.content }}
{%- elif message.role == 'assistant' %}
{%- if loop.index0 and messages[loop.index0 - 1].role == 'user' %}{{ '<｜Assistant｜></think>' }}{% endif %}{{ message.content }}
{%- if message.tool_calls %}{{ '<｜tool▁calls▁begin｜>' }}{% for call in message.tool_calls %}
{{- '<｜tool▁call▁begin｜>' + call.function.name + '<｜tool▁sep｜>' + call.function.arguments + '<｜tool▁call▁end｜>' }}
{%- endfor %}{{ '<｜tool▁calls▁end｜>' }}{% endif %}{{ '<｜end▁of▁sentence｜>' }}
{%- else %}{{ '<｜tool▁output▁begin｜>' + message.content + '<｜tool▁output▁end｜>' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt and messages[-1].role == 'user' %}{{ '<｜Assistant｜></think>' }}{% endif %}"""
"""Shows no tools, and takes arguments as JSON text only."""
KIMI_K2 = """\
{%- if tools %}<|im_system|>tool_declare<|im_middle|>{{ tools | tojson }}<|im_end|>{% endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}<|im_system|>tool<|im_middle|>## Return of {{ message.tool_call_id }}
{{ message.content }}<|im_end|>
{%- else %}<|im_{{ message.role }}|>{{ message.role }}<|im_middle|>{{ message.content }}
{%- if message.tool_calls %}<|tool_calls_section_begin|>{% for call in message.tool_calls -%}
<|tool_call_begin|>{{ call.id }}<|tool_call_argument_begin|>{{ call.function.arguments | tojson -}}
<|tool_call_end|>{% endfor %}<|tool_calls_section_end|>{% endif %}<|im_end|>
{%- endif %}{% endfor %}
{%- if add_generation_prompt %}<|im_assistant|>assistant<|im_middle|>{% endif %}"""

HARMONY = """\
{%- if tools %}<|start|>developer<|message|># Tools
{{ tools | tojson }}<|end|>{% endif %}
{%- for message in messages %}
{%- if message.tool_calls %}
    {%- set call = message.tool_calls[0].function %}
    {%- if message.content %}{{ '<|start|>assistant<|channel|>analysis<|message|>' + message.content + '<|end|>' }}{% endif %}
    {{- '<|start|>assistant to=functions.' + call.name + '<|channel|>commentary json<|message|>' + call.arguments | tojson + '<|call|>' }}
{%- elif message.role == 'tool' %}
    {{- '<|start|>functions.' + message.name + ' to=assistant<|channel|>commentary<|message|>' }}
    {{- message.content | tojson + '<|end|>' }}
{%- elif message.role == 'assistant' %}{{ '<|start|>assistant<|channel|>final<|message|>' + message.content }}
    {{- '<|return|>' if loop.last else '<|end|>' }}
{%- else %}{{ '<|start|>' + message.role + '<|message|>' + message.content + '<|end|>' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}"""
"""Writes the first call of a turn only, and ends it with another token than an answer."""

GLM45 = """\
[gMASK]<sop>
{%- if tools %}<|system|>
# Tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}{% endif %}
{%- for m in messages %}
{%- if m.role == 'tool' %}<|observation|>
<tool_response>
{{ m.content }}
</tool_response>
{%- elif m.role == 'assistant' %}<|assistant|>
<think></think>
{%- if m.content %}
{{ '\\n' + m.content }}{% endif %}
{%- for call in m.tool_calls %}
{{ '\\n<tool_call>' + call.function.name }}
{% for k, v in call.function.arguments.items() %}<arg_key>{{ k }}</arg_key>
<arg_value>{{ v if v is string else v | tojson }}</arg_value>
{% endfor %}</tool_call>{% endfor %}
{%- else %}<|{{ m.role }}|>
{{ m.content }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"""
"""Ends a turn by the token that opens what follows."""

QWEN3_CODER = """\
<|im_start|>system
{{ messages[0].content }}
{%- for tool in tools or [] %}
{{ tool | tojson }}{% endfor %}<|im_end|>
{% for message in messages[1:] %}
{%- if message.role == 'tool' %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% else %}<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls %}{{ '\\n<tool_call>\\n<function=' + call.function.name + '>\\n' }}
{%- for name, value in call.function.arguments | items %}
{{- '<parameter=' + name + '>\\n' }}
{{- value | tojson if value is mapping or (value is sequence and value is not string) else value | string }}
{{- '\\n</parameter>\\n' }}
{%- endfor %}{{ '</function>\\n</tool_call>' }}{% endfor %}<|im_end|>
{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

COMMAND_R7B = """\
{{ bos_token }}<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>
{%- if tools %}# Available Tools
{{ tools | tojson }}{% endif %}<|END_OF_TURN_TOKEN|>
{%- for message in messages %}
{%- if message.role == 'tool' %}<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|><|START_TOOL_RESULT|>
{{- message.content | tojson }}<|END_TOOL_RESULT|><|END_OF_TURN_TOKEN|>
{%- elif message.role == 'assistant' %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>
{%- if message.tool_calls %}<|START_THINKING|>{{ message.tool_plan }}<|END_THINKING|><|START_ACTION|>[
    {%- for call in message.tool_calls %}{{ '\\n    {"tool_call_id": "' + loop.index0 | string + '", "tool_name": "' }}
    {{- call.function.name + '", "parameters": ' + call.function.arguments | tojson + '}' + ('' if loop.last else ',') }}
    {%- endfor %}{{ '\\n' }}]<|END_ACTION|>{% else %}<|START_RESPONSE|>{{ message.content }}<|END_RESPONSE|>{% endif %}<|END_OF_TURN_TOKEN|>
{%- else %}<|START_OF_TURN_TOKEN|><|{{ message.role | upper }}_TOKEN|>{{ message.content }}<|END_OF_TURN_TOKEN|>
{%- endif %}{% endfor %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"""
"""Wants the thought as `tool_plan`, and writes a generation prompt whether it is asked to or not."""

GRANITE3 = """\
{%- if tools %}<|start_of_role|>system<|end_of_role|>Respond with <|tool_call|> followed by a JSON list of tools.<|end_of_text|>
<|start_of_role|>available_tools<|end_of_role|>{{ tools | tojson(indent=4) }}<|end_of_text|>
{% endif %}
{%- for message in messages %}<|start_of_role|>{{ message.role }}<|end_of_role|>{{ message.content }}<|end_of_text|>
{% endfor %}
{%- if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}"""
"""Leaves calls out, though the model was trained on a form that the template names."""

LFM25 = """\
{%- if tools %}<|im_start|>system
List of tools: {{ tools | tojson }}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}
{%- if message.tool_calls %}<|tool_call_start|>[{% for call in message.tool_calls %}{{ call.function.name }}(
{%- for key, value in call.function.arguments.items() %}{{ key }}="{{ value }}"{{ '' if loop.last else ', ' }}{% endfor %})
{{- '' if loop.last else ', ' }}{% endfor %}]<|tool_call_end|>{% endif %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""Writes the strings of a call as they are, without escapes."""


class Called(NamedTuple):
    """A template, what it needs, and what a turn looks like in it."""

    template: str
    form: str
    turn: str
    """`look it up` and a call `search(query="mango")`, with its end token."""
    answer: str
    """`It costs 40.`, with its end token."""
    special: tuple[str, ...]
    eos: str
    bos: str | None = None
    one_call: bool = False

    def tokenizer(self) -> Any:
        return tiny_tokenizer(self.template, special=self.special, eos=self.eos, bos=self.bos)


_CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_MISTRAL_SPECIAL = (
    "<pad>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[CALL_ID]",
    "[TOOL_RESULTS]",
)
_DEEPSEEK = ("calls▁begin", "call▁begin", "sep", "call▁end", "calls▁end")
_KIMI = ("calls_section_begin", "call_begin", "call_argument_begin", "call_end", "calls_section_end")
_CALL = '{"name": "search", "arguments": {"query": "mango"}}'

CALLED = {
    "llama31": Called(
        LLAMA31,
        "llama",
        'look it up\n{"name": "search", "parameters": {"query": "mango"}}<|eot_id|>',
        "It costs 40.<|eot_id|>",
        ("<|pad|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>"),
        "<|eot_id|>",
        "<|begin_of_text|>",
        one_call=True,
    ),
    "nemo": Called(
        NEMO,
        "mistral",
        f'look it up[TOOL_CALLS][{_CALL[:-1]}, "id": "call00000"}}]</s>',
        "It costs 40.</s>",
        _MISTRAL_SPECIAL,
        "</s>",
        "<s>",
    ),
    "ministral": Called(
        MINISTRAL,
        "mistral_args",
        'look it up[TOOL_CALLS]search[CALL_ID]call00000[ARGS]{"query": "mango"}</s>',
        "It costs 40.</s>",
        _MISTRAL_SPECIAL,
        "</s>",
        "<s>",
    ),
    "deepseek_v31": Called(
        DEEPSEEK_V31,
        "deepseek_v31",
        "look it up<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search<｜tool▁sep｜>"
        '{"query": "mango"}<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>',
        "It costs 40.<｜end▁of▁sentence｜>",
        (
            "<｜begin▁of▁sentence｜>",
            "<｜end▁of▁sentence｜>",
            "<｜User｜>",
            *(f"<｜tool▁{name}｜>" for name in _DEEPSEEK),
        ),
        "<｜end▁of▁sentence｜>",
        "<｜begin▁of▁sentence｜>",
    ),
    "kimi_k2": Called(
        KIMI_K2,
        "kimi_k2",
        "look it up<|tool_calls_section_begin|><|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>"
        '{"query": "mango"}<|tool_call_end|><|tool_calls_section_end|><|im_end|>',
        "It costs 40.<|im_end|>",
        ("[PAD]", "<|im_end|>", "<|im_middle|>", *(f"<|tool_{name}|>" for name in _KIMI)),
        "<|im_end|>",
    ),
    "harmony": Called(
        HARMONY,
        "harmony",
        "<|channel|>analysis<|message|>look it up<|end|><|start|>assistant to=functions.search<|channel|>commentary json"
        '<|message|>{"query": "mango"}<|call|>',
        "<|channel|>final<|message|>It costs 40.<|return|>",
        ("<|endoftext|>", "<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>"),
        "<|return|>",
        one_call=True,
    ),
    "glm45": Called(
        GLM45,
        "glm",
        "\n<think></think>\nlook it up\n<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>mango</arg_value>\n</tool_call>"
        "<|observation|>",
        "\n<think></think>\nIt costs 40.<|user|>",
        ("<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
        "<|endoftext|>",
    ),
    "qwen3_coder": Called(
        QWEN3_CODER,
        "qwen3_coder",
        "look it up\n<tool_call>\n<function=search>\n<parameter=query>\nmango\n</parameter>\n</function>\n</tool_call><|im_end|>",
        "It costs 40.<|im_end|>",
        _CHATML,
        "<|im_end|>",
    ),
    "command_r7b": Called(
        COMMAND_R7B,
        "cohere",
        '<|START_THINKING|>look it up<|END_THINKING|><|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "search", '
        '"parameters": {"query": "mango"}}\n]<|END_ACTION|><|END_OF_TURN_TOKEN|>',
        "<|START_RESPONSE|>It costs 40.<|END_RESPONSE|><|END_OF_TURN_TOKEN|>",
        ("<PAD>", "<BOS>", "<|END_OF_TURN_TOKEN|>", "<|START_OF_TURN_TOKEN|>", "<|START_ACTION|>", "<|END_ACTION|>"),
        "<|END_OF_TURN_TOKEN|>",
        "<BOS>",
    ),
    "granite3": Called(
        GRANITE3,
        "granite",
        f"look it up<|tool_call|>[{_CALL}]<|end_of_text|>",
        "It costs 40.<|end_of_text|>",
        ("<|pad|>", "<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>", "<|tool_call|>"),
        "<|end_of_text|>",
    ),
    "lfm25": Called(
        LFM25,
        "lfm2",
        'look it up<|tool_call_start|>[search(query="mango")]<|tool_call_end|><|im_end|>',
        "It costs 40.<|im_end|>",
        (*_CHATML, "<|tool_call_start|>", "<|tool_call_end|>"),
        "<|im_end|>",
    ),
}
"""The templates by name."""
