"""A chat template in the language of Ollama's Modelfile (Go's text/template), derived by measurement."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from quintain.errors import InvalidInput
from quintain.records.protocols import Message
from quintain.trainers.rendering.chat_template import shared_prefix
from quintain.trainers.rendering.renderer import Renderer

_SYSTEM, _USER, _ASSISTANT = "SYSTEM-TEXT", "USER-TEXT", "ASSISTANT-TEXT"
_TEXTS = {"system": _SYSTEM, "user": _USER, "assistant": _ASSISTANT}


class _Parts(NamedTuple):
    """Texts of a template that writes each message between a prefix and a suffix of its role."""

    start: str
    around: dict[str, tuple[str, str]]
    prompt: str
    """Generation prompt."""

    def text(self, roles: Sequence[str]) -> str:
        """Return the text of a chat whose messages are the placeholder texts of their roles."""
        return self.start + "".join(_TEXTS[role].join(self.around[role]) for role in roles) + self.prompt


def go_template(renderer: Renderer) -> str | None:
    """Return the template of a Modelfile; None if messages are not written one after the other in a fixed frame.

    Tools are not part of it: they belong into the system message. Nor is the bos token, which Ollama puts before each prompt.
    """
    try:
        parts = _measure(renderer)
    except (InvalidInput, ValueError):
        return None
    cases = [
        f'{{{{ {"else " if place else ""}if eq .Role "{role}" }}}}{_literal(before)}{{{{ .Content }}}}{_literal(after)}'
        for place, (role, (before, after)) in enumerate(parts.around.items())
    ]
    start = parts.start.removeprefix(renderer.tokenizer.bos_token) if renderer.writer.begins_with_bos else parts.start
    return (
        f"{_literal(start)}{{{{ range .Messages }}}}{''.join(cases)}{{{{ end }}}}{{{{ end }}}}{_literal(parts.prompt)}"
    )


def _measure(renderer: Renderer) -> _Parts:
    """Find the frame of each role from short chats, and confirm it on longer ones."""
    opening, closing = _rendered(renderer, "user").split(_USER)
    _, between, after = _split(_rendered(renderer, "user", "assistant", "user"), _USER, _ASSISTANT)
    before_user = _common_suffix(opening, after)
    start, after_assistant = opening[: len(opening) - len(before_user)], after[: len(after) - len(before_user)]
    after_user = between[: shared_prefix(between, closing)]
    prompt, before_assistant = closing[len(after_user) :], between[len(after_user) :]
    head, rest, _ = _split(_rendered(renderer, "system", "user"), _SYSTEM, _USER)
    if not head.startswith(start) or not rest.endswith(before_user):
        raise ValueError("the template has no separate frame for the system message")
    around = {
        "system": (head[len(start) :], rest[: len(rest) - len(before_user)]),
        "user": (before_user, after_user),
        "assistant": (before_assistant, after_assistant),
    }
    parts = _Parts(start, around, prompt)
    for roles in (("user",), ("system", "user"), ("system", "user", "assistant", "user", "assistant", "user")):
        if parts.text(roles) != _rendered(renderer, *roles):
            raise ValueError("longer chats are written in another way")
    return parts


def _rendered(renderer: Renderer, *roles: str) -> str:
    messages = [Message.model_validate({"role": role, "content": _TEXTS[role]}) for role in roles]
    return renderer.writer.text(messages, (), prompt=True)


def _split(text: str, first: str, second: str) -> tuple[str, str, str]:
    """Return the text before the first mark, between both, and from the second to the next `first` or the end."""
    head, rest = text.split(first, 1)
    between, tail = rest.split(second, 1)
    return head, between, tail.split(first, 1)[0]


def _common_suffix(first: str, second: str) -> str:
    return first[len(first) - shared_prefix(first[::-1], second[::-1]) :]


def _literal(text: str) -> str:
    """Return literal text of a template: braces and quotes are written as a Go string."""
    if not text:
        return ""
    return f"{{{{ {json.dumps(text, ensure_ascii=False)} }}}}"
