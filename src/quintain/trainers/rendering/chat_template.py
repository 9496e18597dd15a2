"""What a tokenizer's chat template makes of messages: text before a turn, the turn, and what stands between turns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from jinja2.exceptions import TemplateError

from quintain.errors import InvalidInput
from quintain.records.seams import Message
from quintain.trainers.rendering.call_forms import FORMS
from quintain.trainers.rendering.control_tokens import Spellings, encode
from quintain.trainers.rendering.styles import Chat, StyleName, one_call_each, to_chat
from quintain.trainers.rendering.turn_text import put_back, turn_of

_FIXED_DATE = "26 Jul 2024"
"""The date that Llama templates show when none is given; without it the prompt would change from day to day."""

ThoughtPlace = Literal["content", "tool_plan", "left_out"]
"""How a template is given the thought beside a call: as the message's content; as the `tool_plan` of Cohere; or not, since it
would leave it out: then the thought is put back before the call."""


class Turn(NamedTuple):
    """How a template writes a turn of the agent, as text."""

    prompt: str
    """What stands before it, generation prompt included."""
    finished: str
    """The whole chat up to the turn's end token, as the template writes it."""
    text: str
    """What the agent wrote, with its end token."""
    can_be_appended_to: bool
    """Is the whole chat the prompt and what the template writes of the turn?"""


@dataclass(frozen=True)
class ChatTemplate:
    """A template, and how messages are put to it."""

    tokenizer: Any
    style: StyleName
    source: str
    has_system_role: bool
    spellings: Spellings
    thought_place: ThoughtPlace = "content"
    arguments_as_text: bool = False
    """Does it take arguments as JSON text, as DeepSeek V3 does?"""
    lists_tools: bool = False
    """Are tools listed in the system text, since it shows none?"""
    writes_calls: str = ""
    """The form in which calls are put into the content, since it writes none; a name in `FORMS`."""
    one_call: bool = False
    """Does it bear but one call a turn?"""
    always_prompts: str = ""
    """The generation prompt, where it writes one whether it is asked to or not, as that of Command R7B; else empty."""
    closes_with: str = ""
    """What it writes behind the last end token where the conversation ends, as Phi-3 does; else empty."""

    def chat(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Chat:
        """Messages for the template, with every control token defused that somebody spelled in one."""
        if self.one_call:
            messages = [message for message, _ in one_call_each((message, 0) for message in messages)]
        guide = ("Write a call as:", FORMS[self.writes_calls].shape) if self.writes_calls else ()
        chat = to_chat(
            messages,
            tools,
            style=self.style,
            has_system_role=self.has_system_role,
            guide=guide if self.lists_tools else None,
        )
        chat = [self.spellings.defuse(entry, own=entry["role"] == "assistant") for entry in chat]
        return [self._with_calls_written(entry) for entry in chat] if self.writes_calls else chat

    def schemas(self, tools: Sequence[dict[str, Any]]) -> list[dict[str, Any]] | None:
        """Tool schemas for the template; None where it is not to show any."""
        if not tools or self.style != "tools" or self.lists_tools:
            return None
        return self.spellings.defuse(list(tools), own=False)

    def text(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], *, prompt: bool) -> str:
        """What the template makes of messages, with a generation prompt or without."""
        return self.written(self.chat(messages, tools), self.schemas(tools), prompt=prompt)

    def written(self, chat: Chat, schemas: list[dict[str, Any]] | None, *, prompt: bool) -> str:
        """What the template makes of a chat.

        Raises:
            InvalidInput: it refuses the chat.
        """
        try:
            text: str = self.tokenizer.apply_chat_template(
                [self._as_it_takes(entry) for entry in chat],
                tools=schemas,
                chat_template=self.source,
                add_generation_prompt=prompt,
                tokenize=False,
                date_string=_FIXED_DATE,
            )
        except (TemplateError, TypeError, ValueError) as error:
            raise InvalidInput(
                f"the model's chat template refused the messages: {error}; their roles may not alternate as it wants",
                code="template_refused",
            ) from None
        return text if prompt else text.removesuffix(self.always_prompts)

    def turn(self, chat: Chat, schemas: list[dict[str, Any]] | None) -> Turn:
        """How the template writes the turn of the agent that a chat ends with.

        Raises:
            InvalidInput: the template refuses the chat, or rewrites it past recognition.
        """
        prompt = self.written(chat[:-1], schemas, prompt=True)
        finished = self._finished(self.written(chat, schemas, prompt=False))
        before = "" if finished.startswith(prompt) else self.written(chat[:-1], schemas, prompt=False)
        said = chat[-1]["content"]
        if not (self.thought_place == "left_out" and chat[-1].get("tool_calls")):
            text = turn_of(prompt, finished, before=before, said=said)
            return Turn(prompt, finished, text, finished == prompt + text)
        text = turn_of(prompt, finished, before=before, said="")
        marked = self.spellings.opens_with_control_token(text)
        return Turn(prompt, finished, put_back(said, text, prompt, apart=not marked), finished == prompt + text)

    def encode(self, text: str) -> list[int]:
        """Ids of rendered text."""
        return encode(self.tokenizer, text)

    def _with_calls_written(self, entry: dict[str, Any]) -> dict[str, Any]:
        """A chat's entry with its calls in the content; what the agent said is defused by now, what opens a call is not."""
        if not entry.get("tool_calls"):
            return entry
        calls = FORMS[self.writes_calls].write([call["function"] for call in entry["tool_calls"]])
        apart = not self.spellings.opens_with_control_token(calls)
        content = put_back(entry["content"], calls, "", apart=apart)
        return {key: value for key, value in entry.items() if key != "tool_calls"} | {"content": content}

    def _as_it_takes(self, entry: dict[str, Any]) -> dict[str, Any]:
        """A chat's entry in the way in which the template takes calls."""
        if not entry.get("tool_calls"):
            return entry
        if self.thought_place != "content":
            plan = {"tool_plan": entry["content"]} if self.thought_place == "tool_plan" else {}
            entry = {**entry, "content": "", **plan}
        if self.arguments_as_text:
            calls = [{**call, "function": _with_text(call["function"])} for call in entry["tool_calls"]]
            entry = {**entry, "tool_calls": calls}
        return entry

    def _finished(self, text: str) -> str:
        """Rendered text up to and including its last end token."""
        if self.closes_with:
            text = text.rstrip().removesuffix(self.closes_with)
        found = self.spellings.end.search(text)
        return text[: found.end()] if found else text.rstrip()


def _with_text(function: dict[str, Any]) -> dict[str, Any]:
    given = function["arguments"]
    return {**function, "arguments": given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)}
