"""Rendering of messages by a tokenizer's chat template: the prompt, the agent's turn, the text between turns."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal, NamedTuple

from jinja2.exceptions import TemplateError

from quintain.errors import InvalidInput
from quintain.records.protocols import Message
from quintain.trainers.rendering.call_forms import FORMS
from quintain.trainers.rendering.control_tokens import Spellings
from quintain.trainers.rendering.styles import Chat, StyleName, split_parallel_calls, to_chat

_OPENING_TAG = re.compile(r"\A<think>\n?")
_THINKING = re.compile(r"\A\s*<think>\n?(.*?)\n?</think>\s*", re.DOTALL)


def turn_of(prompt: str, finished: str, *, before: str, content: str, plain: str = "") -> str:
    """Return the agent's text, with its end token.

    - Usually it is the text after the prompt.
    - If a finished turn does not repeat the generation prompt (an opened `<think>`), it is the text after the common prefix, and
      after the header.
    - If the template rewrites earlier turns when a later one follows (without their thinking), it is the text after the last
      header.
    - Thinking that the template omits is restored where the prompt opens it. Otherwise the model would learn to answer inside
      its thinking.

    Args:
        prompt: The chat up to the turn, with the generation prompt.
        finished: The chat with the turn, up to its end token.
        before: The chat up to the turn without the generation prompt; unused where `finished` starts with `prompt`.
        content: The text of the agent's message.
        plain: `finished` without the thinking, if that can be a message of its own, with a header, as in gpt-oss; else empty.

    Raises:
        InvalidInput: The turn cannot be separated from the text before it.
    """
    start = len(prompt)
    if not finished.startswith(prompt):
        start = common(prompt, finished)
        if prompt.startswith(before) and start < len(before):
            start = _after_header(prompt[len(before) :], plain or finished)
        elif "</think>" in prompt[start:] and "</think>" in finished[start:]:
            # The prompt opens and closes an empty thinking; the turn has its own.
            start = max(finished.rfind("<think>", 0, start), len(before))
        elif (header := prompt[start:].strip()) and finished[start:].lstrip().startswith(header):
            # Both have the header, with other white space before it.
            start = finished.index(header, start) + len(header)
            start += shared_prefix(finished[start:], prompt[len(prompt.rstrip()) :])
    turn = finished[start:]
    if prompt.rstrip().endswith("<think>"):
        turn = _OPENING_TAG.sub("", turn)  # a template that opens the thinking of its own accord, too
    if "</think>" not in content or "</think>" in turn or not prompt.rstrip().endswith("<think>"):
        return turn
    end = content.rindex("</think>") + len("</think>")
    if not turn[:1].isspace():
        end += len(content[end:]) - len(content[end:].lstrip())
    return put_back(content[max(content.find("<think>"), 0) : end], turn, prompt)


def put_back(omitted: str, turn: str, prompt: str, *, apart: bool = False) -> str:
    """Return the turn with omitted text before it; an opening `<think>` is dropped where the prompt has one.

    Args:
        omitted: Text that the template has left out.
        turn: The turn as the template writes it.
        prompt: The text before the turn.
        apart: Whether the text gets its own lines. A control token needs no line break before it.
    """
    if prompt.rstrip().endswith("<think>"):
        omitted = _OPENING_TAG.sub("", omitted)
    return f"{omitted}\n{turn}" if omitted and apart else omitted + turn


def shared_prefix(*sequences: Sequence[object]) -> int:
    """Return the number of leading items that the sequences share."""
    return sum(1 for _ in takewhile(lambda items: items.count(items[0]) == len(items), zip(*sequences, strict=False)))


def common(left: str, right: str) -> int:
    """Return the length of the common prefix of two texts, without a tag in which they differ.

    `<think>` and `<tool_call>` share two characters, which belong to neither prompt nor turn alone.
    """
    shared = shared_prefix(left, right)
    cut = re.search(r"<[^<>]*\Z", left[:shared])
    return cut.start() if cut else shared


def _after_header(header: str, finished: str) -> int:
    """Return the start of the last turn: behind its header, without a final tag of the header that is not repeated."""
    untagged = re.sub(r"<[^<>]*>\s*\Z", "", header)
    ends = [finished.rindex(h) + len(h) for h in (header, untagged) if h and h in finished]
    if not ends:
        raise InvalidInput(
            f"expected the header {header!r} before the last turn of a chat template that rewrites earlier turns, got none: "
            "the agent's text cannot be located; take what register_agent(name=..., model=..., template='react') gives, or use "
            "another model",
            code="template_refused",
        )
    return max(ends)


_FIXED_DATE = "26 Jul 2024"
"""Date for Llama templates, which otherwise write today's into the prompt."""

ThoughtPlace = Literal["content", "tool_plan", "left_out"]
"""Where a template takes the thought of a turn with a call: the message's content; Cohere's `tool_plan`; or nowhere, so that the
renderer restores the thought before the call."""


ThinkingPlace = Literal["", "reasoning_content", "reasoning", "thinking", "part", "tags"]
"""Where a template takes what an agent thought: a key of the message; a part of the content, as Mistral's reasoning models do;
between `<think>` tags in the content; or nowhere."""


class Turn(NamedTuple):
    """An agent turn as the template writes it."""

    prompt: str
    """The text before it, generation prompt included."""
    finished: str
    """The whole chat up to the turn's end token."""
    text: str
    """The agent's text, with its end token."""
    can_be_appended_to: bool
    """Whether the whole chat is the prompt followed by the turn's text."""


@dataclass(frozen=True)
class ChatTemplate:
    """A chat template with its conventions, found by `template_probe`."""

    tokenizer: Any
    style: StyleName
    source: str
    has_system_role: bool
    spellings: Spellings
    thought_place: ThoughtPlace = "content"
    ids_name_tools: bool = False
    """Whether it writes the id of a call in place of the tool's name, as Kimi K2 does."""
    arguments_as_text: bool = False
    """Whether it takes arguments as JSON text, as DeepSeek V3 does."""
    thinking: ThinkingPlace = ""
    thinks_beside_text: bool = True
    """Whether it takes thinking and text of a turn with a call, as that of gpt-oss does not."""
    closes_thinking: str = ""
    """Text that closes the thinking which the prompt opens, where a turn without thinking does not, as Cohere's; else empty."""
    content_as_parts: bool = False
    """Whether it takes content as a list of parts, as those of models with images do that ignore text alone."""
    lists_tools: bool = False
    """Whether tools are listed in the system text, because the template shows none."""
    writes_calls: str = ""
    """Name in `FORMS` of the form in which calls are written into the content, if the template writes none."""
    one_call: bool = False
    """Whether it supports only one tool call per turn."""
    adjacent_turns: bool = True
    """Whether it keeps two agent turns apart with nothing between them."""
    one_system: bool = False
    """Whether it writes a system message at the start only."""
    result_before_agent: bool = False
    """Whether it needs an agent turn behind a tool's result, as Mistral's does."""
    whole_schemas: bool = False
    """Whether it needs a description and parameters of each tool, as that of gpt-oss does."""
    without_tools: str = ""
    """The template for chats without tools, if the tokenizer has another one for them, as that of Hermes 3; else empty."""
    always_prompts: str = ""
    """The generation prompt, if it always writes one, as Command R7B's does; else empty."""
    closes_with: str = ""
    """Text after the last end token at the end of a conversation, as Phi-3's writes; else empty."""
    late_ends: tuple[str, str] = ("", "")
    """Ends of an answer and of a turn with calls that it writes only where something follows, as GLM's, which ends a turn by the
    token that opens the next one; else empty."""

    @property
    def begins_with_bos(self) -> bool:
        """Whether prompts begin with the tokenizer's bos token."""
        prompt = self.text([Message(role="user", content="a")], (), prompt=True)
        return self.encode(prompt)[:1] == [self.tokenizer.bos_token_id]

    def chat(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Chat:
        """Return messages as the entries of a chat that the template writes."""
        return self.joined(self.entries(messages, tools))

    def joined(self, chat: Chat) -> Chat:
        """Return a chat with adjacent agent turns as one, if the template does not keep them apart, as mistral-common joins them."""
        joined: Chat = []
        for entry in chat:
            before = joined[-1] if joined and not self.adjacent_turns else {}
            if (entry["role"], before.get("role"), before.get("tool_calls")) == ("assistant", "assistant", None):
                texts = joined.pop()["content"], entry["content"]
                entry = {**entry, "content": "\n\n".join(text for text in texts if text.strip())}
            joined.append(entry)
        return joined

    def entries(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Chat:
        """Return messages as entries of a chat, one for each agent turn, with control tokens in their text defused."""
        if self.one_call:
            messages = [message for message, _ in split_parallel_calls((message, 0) for message in messages)]
        guide = ("Write a call as:", FORMS[self.writes_calls].shape) if self.writes_calls else ()
        chat = to_chat(
            messages,
            tools,
            style=self.style,
            has_system_role=self.has_system_role,
            one_system=self.one_system,
            result_before_agent=self.result_before_agent,
            ids_name_tools=self.ids_name_tools,
            guide=guide if self.lists_tools else None,
        )
        chat = [self.spellings.defuse(entry, own=entry["role"] == "assistant") for entry in chat]
        return [self._with_calls_written(entry) for entry in chat] if self.writes_calls else chat

    def schemas(self, tools: Sequence[dict[str, Any]]) -> list[dict[str, Any]] | None:
        """Return tool schemas for the template; None if it should show none."""
        if not tools or self.style != "tools" or self.lists_tools:
            return None
        return self.spellings.defuse([*map(_whole, tools)] if self.whole_schemas else list(tools), own=False)

    def text(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], *, prompt: bool) -> str:
        """Render messages, with or without a generation prompt."""
        return self.written(self.chat(messages, tools), self.schemas(tools), prompt=prompt)

    def written(self, chat: Chat, schemas: list[dict[str, Any]] | None, *, prompt: bool) -> str:
        """Render a chat.

        Raises:
            InvalidInput: The template refuses the chat (`template_refused`).
        """
        try:
            text: str = self.tokenizer.apply_chat_template(
                [self._as_it_takes(entry) for entry in chat],
                tools=schemas,
                chat_template=self.source if schemas is not None else self.without_tools or self.source,
                add_generation_prompt=prompt,
                tokenize=False,
                date_string=_FIXED_DATE,
            )
        except (TemplateError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise InvalidInput(
                f"the model's chat template refused the messages: {error}; check that their roles alternate as it expects",
                code="template_refused",
            ) from None
        return text if prompt else text.removesuffix(self.always_prompts)

    def accepts(self, chat: Chat, schemas: list[dict[str, Any]] | None) -> bool:
        """Whether the template can render a chat."""
        try:
            self.written(chat, schemas, prompt=True)
        except InvalidInput:
            return False
        return True

    def turn(self, chat: Chat, schemas: list[dict[str, Any]] | None) -> Turn:
        """Return the last agent turn of a chat as the template writes it.

        Raises:
            InvalidInput: The template refuses the chat, or the turn cannot be separated from the text before it.
        """
        prompt = self.written(chat[:-1], schemas, prompt=True)
        finished = self._finished(self.written(chat, schemas, prompt=False))
        finished += self.late_ends["tool_calls" in chat[-1]]
        before = "" if finished.startswith(prompt) else self.written(chat[:-1], schemas, prompt=False)
        split = self._split_thinking(chat[-1])
        content, plain = split["content"], ""
        if before and self.thinking in split:
            bare = {key: value for key, value in split.items() if key != self.thinking}
            plain = self.written([*chat[:-1], bare], schemas, prompt=False)
        left_out = self.thought_place == "left_out" and chat[-1].get("tool_calls")
        text = turn_of(prompt, finished, before=before, content="" if left_out else content, plain=plain)
        whole = finished == prompt + text
        if left_out:
            text = put_back(content, text, prompt, apart=not self.spellings.opens_with_control_token(text))
        if prompt.rstrip().endswith("<think>") and "</think>" not in text:
            text = f"\n</think>\n\n{text}"  # or the model would learn to answer inside its thinking
        if self.closes_thinking.strip() not in text:
            text = self.closes_thinking + text
        return Turn(prompt, finished, text, whole)

    def encode(self, text: str, *, after: str = "") -> list[int]:
        """Return the ids of rendered text that stands after another one."""
        return self.spellings.encode(self.tokenizer, text, after=after)

    def _with_calls_written(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Return an entry with its calls in the content; its text is defused already, the marks of a call are not."""
        if not entry.get("tool_calls"):
            return entry
        calls = FORMS[self.writes_calls].write([call["function"] for call in entry["tool_calls"]])
        apart = not self.spellings.opens_with_control_token(calls)
        content = put_back(entry["content"], calls, "", apart=apart)
        return {key: value for key, value in entry.items() if key != "tool_calls"} | {"content": content}

    def _as_it_takes(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Return an entry in the form in which the template takes content and calls."""
        entry = self._split_thinking(entry)
        has_calls = bool(entry.get("tool_calls"))
        if has_calls and self.thought_place != "content":
            plan = {"tool_plan": entry["content"]} if self.thought_place == "tool_plan" else {}
            entry = {**entry, "content": "", **plan}
        if has_calls and self.arguments_as_text:
            calls = [{**call, "function": _with_text(call["function"])} for call in entry["tool_calls"]]
            entry = {**entry, "tool_calls": calls}
        thinking = [{"type": "thinking", "thinking": entry["part"]}] if "part" in entry else []
        if self.content_as_parts or thinking:
            text = [{"type": "text", "text": entry["content"]}] if entry["content"] or not thinking else []
            entry = {**{key: value for key, value in entry.items() if key != "part"}, "content": thinking + text}
        return entry

    def _split_thinking(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Return an agent's entry with its thinking under the key by which the template takes it."""
        if self.thinking in ("", "tags") or entry["role"] != "assistant":
            return entry
        if (found := _THINKING.match(entry["content"])) is None:
            return entry
        thinking, text = found[1], entry["content"][found.end() :]
        if text and entry.get("tool_calls") and not self.thinks_beside_text:
            return {**entry, "content": f"{thinking}\n\n{text}"}
        return {**entry, "content": text, self.thinking: thinking}

    def _finished(self, text: str) -> str:
        """Return rendered text up to and including its last end token."""
        if self.closes_with:
            text = text.rstrip().removesuffix(self.closes_with)
        found = self.spellings.end.search(text)
        return text[: found.end()] if found else text.rstrip()


def _whole(tool: dict[str, Any]) -> dict[str, Any]:
    function = {key: value for key, value in tool.get("function", tool).items() if value is not None}
    parameters = {"type": "object", "properties": {}} | function.get("parameters", {})
    return {"type": "function", "function": {"description": "", **function, "parameters": parameters}}


def _with_text(function: dict[str, Any]) -> dict[str, Any]:
    arguments = function["arguments"]
    return {
        **function,
        "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False),
    }
