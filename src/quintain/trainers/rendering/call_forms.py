"""Table of the forms in which models write tool calls.

Forms differ in what opens a call, whether the name is outside of the arguments, and how arguments are written. All patterns are
anchored at a literal or bounded, because their input is hostile.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from quintain.trainers.rendering.values import python_call

_NAME = r"(?P<name>[^\s<>\[\]{}\"']{1,200})"


@dataclass(frozen=True)
class CallForm:
    """A form of tool calls; patterns are regular expressions."""

    mark: str
    """Start of a call. Text before the first one is the thought."""
    shape: str
    """An example call, for error messages."""
    section: str = "(?!)"
    """Optional opening of all calls of a turn."""
    head: str = ""
    """Text from the start to the arguments, with the group `name` where the name is outside of them."""
    tail: str = ""
    """End of a call."""
    key: str = ""
    """Opening of one argument written as tagged text, with the group `key`, and `kind` if the form marks strings; empty where
    arguments are JSON."""
    close: str = ""
    """Closing of such an argument, literally."""
    own_lines: bool = False
    """Whether such values are on lines of their own."""
    label: str = ""
    """Optional label before the thought."""
    may_be_bare: bool = False
    """Whether arguments may be missing at the end of a line."""
    python: bool = False
    """Whether calls are a Python list of calls, up to `close`."""
    quote: str = ""
    """Literal around strings, where arguments are JSON with bare keys, up to `close`."""
    written: str = ""
    """How calls are written into the content where a template omits or garbles them: `%s` is a call, or a list of them."""
    listed: bool = True
    """Whether `%s` is a list."""

    def write(self, calls: Sequence[dict[str, Any]]) -> str:
        """Return calls `{"name": ..., "arguments": ...}` as text."""
        texts = [python_call(**call) if self.python else json.dumps(call, ensure_ascii=False) for call in calls]
        if self.listed:
            return self.written.replace("%s", f"[{', '.join(texts)}]")
        return "\n".join(self.written.replace("%s", text) for text in texts)


def _json(mark: str, tail: str = "", *, listed: bool = True) -> CallForm:
    """Return a form with names inside of the JSON, of one call or a list of calls."""
    written = f"{mark}%s{tail}" if listed else f"{mark}\n%s\n{tail}".rstrip()
    call = '{"name": tool, "arguments": {...}}'
    return CallForm(
        re.escape(mark),
        written.replace("%s", f"[{call}]" if listed else call),
        tail=rf"\s*{re.escape(tail)}" if tail else "",
        written=written,
        listed=listed,
    )


_BARE = (
    r'\{\s{0,9}(?:"type"\s{0,9}:\s{0,9}"function"\s{0,9},\s{0,9})?"name"\s{0,9}:\s{0,9}"[^"\n]{1,200}"\s{0,9},\s{0,9}'
)
_ARGUMENTS = r'"(?:parameters|arguments)"\s{0,9}:'
_FUNCTION = "<function=tool>\n<parameter=argument>\nvalue\n</parameter>\n</function>"

FORMS: dict[str, CallForm] = {
    "react": CallForm(
        r"(?:^|(?<=</think>))Action:",
        'Action: tool {"argument": value}',
        head=r"[ \t]*(?P<name>\S+)[ \t]*",
        label="Thought:",
        may_be_bare=True,
    ),
    # Hermes, Qwen 2.5 and 3, Granite 4, and many more.
    "hermes": _json("<tool_call>", "</tool_call>", listed=False),
    "qwen3_coder": CallForm(
        r"<tool_call>\s*<function=",
        f"<tool_call>\n{_FUNCTION}\n</tool_call>",
        head=rf"{_NAME}>",
        tail=r"\s*</function>\s*</tool_call>",
        key=r"<parameter=(?P<key>[^>\n]{1,200})>\n?",
        close="</parameter>",
        own_lines=True,
    ),
    "glm": CallForm(
        r"<tool_call>(?=[^\s<{])",
        "<tool_call>tool\n<arg_key>argument</arg_key>\n<arg_value>value</arg_value>\n</tool_call>",
        head=_NAME,
        tail=r"\s*</tool_call>",
        key=r"<arg_key>(?P<key>[^<]{1,200})</arg_key>\s*<arg_value>",
        close="</arg_value>",
    ),
    # Mistral up to Small 3.1: a list; since then: one mark a call.
    "mistral": _json("[TOOL_CALLS]"),
    "mistral_args": CallForm(
        r"\[TOOL_CALLS\]",
        "[TOOL_CALLS]tool[ARGS]{...}",
        head=rf"\s?{_NAME}(?:\[CALL_ID\][\w-]{{1,64}})?\[ARGS\]",
    ),
    # Llama 3.1 to 3.3, and lists as xLAM writes them: only the JSON marks a call.
    "llama": CallForm(
        rf"(?:^|(?<=;)|(?<=; ))(?:<\|python_(?:tag|start)\|>)?(?=\[?\s{{0,9}}{_BARE}{_ARGUMENTS})",
        '{"name": tool, "parameters": {...}}',
        tail=r"(?:<\|python_end\|>)?",
    ),
    "deepseek": CallForm(
        "<｜tool▁call▁begin｜>",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>tool\n```json\n{...}\n```<｜tool▁call▁end｜>",
        section="<｜tool▁calls▁begin｜>",
        head=rf"\w{{0,20}}<｜tool▁sep｜>{_NAME}\s{{0,9}}```json",
        tail=r"\s*```\s{0,9}<｜tool▁call▁end｜>",
    ),
    "deepseek_v31": CallForm(
        "<｜tool▁call▁begin｜>",
        "<｜tool▁call▁begin｜>tool<｜tool▁sep｜>{...}<｜tool▁call▁end｜>",
        section="<｜tool▁calls▁begin｜>",
        head=rf"{_NAME}<｜tool▁sep｜>",
        tail=r"\s*<｜tool▁call▁end｜>",
    ),
    "deepseek_dsml": CallForm(
        r'<｜DSML｜invoke name="',
        '<｜DSML｜invoke name="tool">\n<｜DSML｜parameter name="argument" string="true">value</｜DSML｜parameter>\n</｜DSML｜invoke>',
        section="<｜DSML｜(?:function|tool)_calls>",
        head=rf'{_NAME}">',
        tail=r"\s*</｜DSML｜invoke>",
        key=r'<｜DSML｜parameter name="(?P<key>[^"\n]{1,200})" string="(?P<kind>true|false)">',
        close="</｜DSML｜parameter>",
    ),
    "kimi_k2": CallForm(
        r"<\|tool_call_begin\|>",
        "<|tool_call_begin|>functions.tool:0<|tool_call_argument_begin|>{...}<|tool_call_end|>",
        section=r"<\|tool_calls_section_begin\|>",
        head=r"\s*(?:functions\.)?(?P<name>[^\s<>|]{1,200}):\d{1,9}\s*<\|tool_call_argument_begin\|>",
        tail=r"\s*<\|tool_call_end\|>",
    ),
    "phi4": _json("<|tool_call|>", "<|/tool_call|>"),
    "granite": _json("<|tool_call|>"),
    "cohere": CallForm(
        r"<\|START_ACTION\|>",
        '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": tool, "parameters": {...}}]<|END_ACTION|>',
        tail=r"\s*<\|END_ACTION\|>",
    ),
    # gpt-oss: the template names the recipient before the channel, the model after it.
    "harmony": CallForm(
        r"(?:<\|start\|>assistant)?(?:<\|channel\|>(?:commentary|analysis))? ?to=functions\.",
        "<|channel|>commentary to=functions.tool <|constrain|>json<|message|>{...}<|call|>",
        head=rf"{_NAME}(?:<\|channel\|>(?:commentary|analysis))? ?(?:<\|constrain\|>)?(?:json)?<\|message\|>",
    ),
    "functionary_v31": CallForm(
        "<function=",
        "<function=tool>{...}</function>",
        head=rf"{_NAME}>",
        tail=r"\s*</function>",
    ),
    "functionary_v32": CallForm(r"(?:\A|>>>)(?!all\n)(?=[\w.-]{1,200}\n\{)", ">>>tool\n{...}", head=rf"{_NAME}\n"),
    "firefunction": _json("functools"),
    "nemotron": _json("<TOOLCALL>", "</TOOLCALL>"),
    "apriel": _json("<tool_calls>", "</tool_calls>"),
    "apertus": CallForm(
        r"<\|tools_prefix\|>", '<|tools_prefix|>[{"tool": {...}}]<|tools_suffix|>', tail=r"(?:\s*<\|tools_suffix\|>)?"
    ),
    "gigachat": _json("<|function_call|>", listed=False),
    "solar": CallForm(
        r"<\|tool_call:begin\|>",
        "<|tool_call:begin|>id<|tool_call:name|>tool<|tool_call:args|>{...}<|tool_call:end|>",
        section=r"<\|tool_calls\|>",
        head=rf"[\w-]{{0,64}}<\|tool_call:name\|>{_NAME}<\|tool_call:args\|>",
        tail=r"\s*<\|tool_call:end\|>",
    ),
    "minimax_m2": CallForm(
        r'<invoke name="',
        '<invoke name="tool">\n<parameter name="argument">value</parameter>\n</invoke>',
        section="<minimax:tool_call>",
        head=rf'{_NAME}">',
        tail=r"\s*</invoke>",
        key=r'<parameter name="(?P<key>[^"\n]{1,200})">',
        close="</parameter>",
    ),
    "seed_oss": CallForm(
        r"<seed:tool_call>\s*<function=",
        f"<seed:tool_call>\n{_FUNCTION}\n</seed:tool_call>",
        head=rf"{_NAME}>",
        tail=r"\s*</function>\s*</seed:tool_call>",
        key=r"<parameter=(?P<key>[^>\n]{1,200})>",
        close="</parameter>",
    ),
    "gemma4": CallForm(
        r"<\|tool_call>call:",
        '<|tool_call>call:tool{argument:<|"|>text<|"|>}<tool_call|>',
        head=rf"{_NAME}(?=\{{)",
        close="<tool_call|>",
        quote='<|"|>',
    ),
    "lfm2": CallForm(
        r"<\|tool_call_start\|>",
        "<|tool_call_start|>[tool(argument=value)]<|tool_call_end|>",
        close="<|tool_call_end|>",
        python=True,
        written="<|tool_call_start|>%s<|tool_call_end|>",
    ),
    "pythonic": CallForm(
        r"^(?:<\|python_start\|>)?(?=\[[A-Za-z_][\w.]{0,199}\()",
        "[tool(argument=value)]",
        close="<|python_end|>",
        python=True,
    ),
}
"""Forms by name, in the order in which they are tried."""
