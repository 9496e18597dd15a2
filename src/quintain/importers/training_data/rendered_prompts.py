"""Split chats that a template rendered to one text at its special tokens: ChatML (Qwen and many others) and Llama 3.

Only where every turn is plainly marked; what a model wrote in its turn (thoughts, tool calls) stays as it wrote it.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from quintain.importers.transcripts.chat_messages import ROLES


class _Template(NamedTuple):
    opening: re.Pattern[str]
    """Matches up to the first character of a turn; its group is the role."""
    closing: re.Pattern[str]
    begins: re.Pattern[str]
    """Matches text allowed before the first turn."""


_ROLE = r"(?P<role>[a-zA-Z_]{1,20})"
_TEMPLATES = (
    _Template(re.compile(rf"<\|im_start\|>{_ROLE}\n"), re.compile(r"<\|im_end\|>|<\|endoftext\|>"), re.compile(r"\s*")),
    _Template(
        re.compile(rf"<\|start_header_id\|>{_ROLE}<\|end_header_id\|>\n\n"),
        re.compile(r"<\|eot_id\|>|<\|eom_id\|>|<\|end_of_text\|>"),
        re.compile(r"\s*(<\|begin_of_text\|>)*\s*"),
    ),
)
_BARE = re.compile(r"\A(system|user)\n.*\nassistant\n\s*\Z", re.DOTALL)
UNMARKED = "the prompts were rendered by a template without its special tokens: each prompt is one user turn"


def rendered_messages(prompt: str, completion: str) -> list[dict[str, Any]] | None:
    """Return the messages of a rendered prompt and its completion; None if turns are not clearly marked.

    Turns of the agent in the prompt are context, and not in the loss (`weight` 0).
    """
    whole = prompt + completion
    for opening, closing, begins in _TEMPLATES:
        found = list(opening.finditer(whole))
        if not found or not begins.fullmatch(whole[: found[0].start()]):
            continue
        messages = []
        for turn, after in zip(found, [*found[1:], None], strict=True):
            body = whole[turn.end() : after.start() if after else len(whole)]
            content = closing.split(body, maxsplit=1)[0]
            role = ROLES.get(turn["role"])
            if role is None or (after and not closing.search(body)):
                return None
            is_context = role == "assistant" and turn.end() < len(prompt) and content.strip() != ""
            is_context = is_context and turn.end() + len(content) <= len(prompt)
            messages.append({"role": role, "content": content, **({"weight": 0} if is_context else {})})
        return messages
    return None


def is_unmarked(prompt: str) -> bool:
    """Whether a text looks like a rendered prompt without its special tokens."""
    return _BARE.match(prompt) is not None
