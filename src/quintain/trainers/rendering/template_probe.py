"""Conventions of a chat template, found by a probe episode: how turns end, and which form of calls parses back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, product
from typing import Any, NamedTuple, get_args

from quintain.errors import InvalidInput
from quintain.records.protocols import Message
from quintain.records.trajectory import Action
from quintain.trainers.rendering.call_forms import FORMS
from quintain.trainers.rendering.call_parsing import TurnReader
from quintain.trainers.rendering.chat_template import (
    ChatTemplate,
    ThinkingPlace,
    ThoughtPlace,
    Turn,
    common,
    shared_prefix,
)

_ARGUMENTS: dict[str, Any] = {
    "text": "\n é \"quoted\" 'so' \\n\n{}\n",
    "list": [1, 2.5, None, "é"],
    "flag": True,
    "number": -7,
    "nested": {"a": ["b", {"c": False}]},
    "digits": "42",
}
_TYPES = {"text": "string", "list": "array", "flag": "boolean", "number": "integer", "nested": "object"}
_PROPERTIES = {name: {"type": _TYPES.get(name, "string"), "description": name} for name in _ARGUMENTS}
PROBE_TOOLS: tuple[dict[str, Any], ...] = tuple(
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "probe description",
            "parameters": {"type": "object", "properties": _PROPERTIES, "required": ["text"]},
        },
    }
    for name in ("probe_tool", "second_tool")
)
_CALLS = (Action(tool="probe_tool", args=_ARGUMENTS), Action(tool="second_tool", args={}))
_ASKED = (Message(role="system", content="probe system"), Message(role="user", content="probe question"))
_CALLED = Message(role="assistant", thought="probe thought", actions=_CALLS[:1])
_AGAIN = Message(role="assistant", thought="another thought", actions=_CALLS[1:])
_ANSWERED = Message(role="assistant", thought="probe answer")
_CALL_TURN = (*_ASKED, _CALLED)
_SECOND_TURN = (*_CALL_TURN, Message(role="tool", content="probe observation"), _AGAIN)
_LAST_TURN = (*_SECOND_TURN, Message(role="tool", content="second observation"), _ANSWERED)
_REASONING = "probe reasoning"
_LATER = Message(role="system", content="later system")
_BARE_TOOL = {"type": "function", "function": {"name": "probe_tool"}}
_OTHER_TEXT = "\nprobe text"
_ALSO_END = ("<|eom_id|>", "<|call|>", "<|return|>")
"""Tokens that end a turn in some cases only, which the probe may not show: Llama 3.1 and gpt-oss."""


class Probe(NamedTuple):
    """Conventions found by the probe."""

    template: ChatTemplate
    reader: TurnReader
    end_turn: tuple[int, ...]
    end_call: tuple[int, ...]
    end_ids: frozenset[int]
    appendable: bool
    foreign: tuple[str, ...]
    """Texts that open a part of the environment behind an agent's turn: of a user, of a tool's result."""
    warnings: tuple[str, ...]


def probe(template: ChatTemplate) -> Probe:
    """Render the probe episode and parse it.

    Raises:
        InvalidInput: The template omits a part of the episode, or a turn does not parse back (`template_unfit`).
    """
    template = _with_parts(template)
    template = replace(template, whole_schemas=not template.accepts(template.chat(_ASKED, ()), [_BARE_TOOL]))
    template, around = _surroundings(template)
    prompt = template.text(_ASKED, PROBE_TOOLS, prompt=True)
    if template.style == "tools" and "probe_tool" not in prompt:
        template = replace(template, lists_tools=True)
        prompt = template.text(_ASKED, PROBE_TOOLS, prompt=True)
    _require_mentions(prompt, ("probe system", "probe question", "probe_tool"))
    if template.style == "react":
        reader = TurnReader("react", around)
        called = _turn(template, _CALL_TURN)
        _require_read(template, reader, called, _CALLED)
    else:
        template, reader, called = _native(template, around)
    template = _with_thinking(_with_orders(_with_late_ends(template), reader), reader)
    reader = replace(reader, closing=template.closes_thinking.strip())
    called = _turn(template, _CALL_TURN)
    again, answered = _turn(template, _SECOND_TURN), _turn(template, _LAST_TURN)
    _require_read(template, reader, again, _AGAIN)
    _require_mentions(answered.prompt, ("probe observation", "second observation"))
    _require_read(template, reader, answered, _ANSWERED)
    turns = (called, again, answered)
    ends = [_end(template, turn) for turn in turns]
    reader = replace(reader, after_calls=_after_calls(template, reader, called))
    return Probe(
        template,
        reader,
        end_turn=tuple(template.encode(ends[-1])),
        end_call=tuple(template.encode(ends[0])),
        end_ids=frozenset(_end_ids(template, ends)),
        appendable=all(turn.finished.startswith(turn.prompt) for turn in turns),
        foreign=_foreign(template, again, called, answered),
        warnings=tuple(_warnings(template, ends)),
    )


def _with_parts(template: ChatTemplate) -> ChatTemplate:
    """Return a template that writes a message only if its content is a list of parts, marked as such; others as they are."""
    parts = replace(template, content_as_parts=True)
    asked = template.chat(_ASKED, ())
    if template.accepts(asked, None) and str(_ASKED[1].content) in template.written(asked, None, prompt=True):
        return template
    return parts if parts.accepts(asked, None) else template


def _with_orders(template: ChatTemplate, reader: TurnReader) -> ChatTemplate:
    """Return the template with the orders of messages that it does not write."""
    systems = (_ASKED[0], _LATER.model_copy(update={"content": "second system"}), _ASKED[1], _ANSWERED, _LATER)
    answered = (*_LAST_TURN, _ANSWERED.model_copy(update={"thought": "last answer"}))
    return replace(
        template,
        one_system=not _mentions(template, systems, "probe system", "second system", "later system"),
        result_before_agent=not _mentions(
            template, (*_SECOND_TURN[:-1], _ASKED[1]), "probe observation", "probe question"
        ),
        adjacent_turns=all(_also_reads(template, reader, *turns) for turns in ((*_LAST_TURN, _CALLED), answered)),
    )


def _with_thinking(template: ChatTemplate, reader: TurnReader) -> ChatTemplate:
    """Return the template with the way in which it takes what an agent thought, if its model thinks."""
    for place in get_args(ThinkingPlace)[1:]:
        if place != "tags" or "</think>" in template.source:
            for beside in (True, False):
                candidate = replace(template, thinking=place, thinks_beside_text=beside)
                if _writes_thinking(candidate, reader):
                    return replace(candidate, closes_thinking=_closing(candidate))
    return template


def _closing(template: ChatTemplate) -> str:
    """Return what closes the thinking that the prompt opens, if an answer without thinking begins behind it."""
    thought = f"<think>\n{_REASONING}\n</think>\n\n{_ANSWERED.thought}"
    thinking = _turn(template, (*_LAST_TURN[:-1], _ANSWERED.model_copy(update={"thought": thought}))).text
    before, _, after = thinking.partition(_REASONING)
    answer = _turn(template, _LAST_TURN).text
    closing = after.removesuffix(answer) if after.endswith(answer) and not before.strip() else ""
    return closing if closing.strip() else ""


def _writes_thinking(template: ChatTemplate, reader: TurnReader) -> bool:
    """Whether a turn with a call and an answer contain what the agent thought, once, before the rest and where it belongs."""
    for messages, text in ((_CALL_TURN, _CALLED.thought), (_CALL_TURN, ""), (_LAST_TURN, _ANSWERED.thought)):
        thought = f"<think>\n{_REASONING}\n</think>\n\n{text}"
        try:
            turn = _turn(template, (*messages[:-1], messages[-1].model_copy(update={"thought": thought})))
        except InvalidInput:
            return False
        before, _, after = turn.text.partition(_REASONING)
        if repr(_REASONING) in turn.text:
            return False  # the template writes the parts of the content as Python does
        tagged, prompt = template.thinking == "tags", turn.prompt.rstrip()
        if prompt.endswith("</think>") or not (tagged or messages is _LAST_TURN or turn.finished.startswith(prompt)):
            return False  # the prompt closes the thinking
        if str(text) not in after or _REASONING in prompt + after or not _can_be_sampled(template, turn):
            return False
        n_tags = before.count("<think>") + prompt.endswith("<think>")
        if tagged and not (n_tags == 1 and after.lstrip().startswith("</think>")):
            return False
        read = reader.read(_without_end(template, turn), PROBE_TOOLS)
        if [*map(_plain, read.actions)] != [*map(_plain, messages[-1].actions)]:
            return False
    return True


def _mentions(template: ChatTemplate, messages: Sequence[Message], *mentions: str) -> bool:
    chat, schemas = template.chat(messages, PROBE_TOOLS), template.schemas(PROBE_TOOLS)
    if not template.accepts(chat, schemas):
        return False
    text = template.written(chat, schemas, prompt=True)
    return all(mention in text for mention in mentions)


def _native(template: ChatTemplate, around: tuple[str, str]) -> tuple[ChatTemplate, TurnReader, Turn]:
    """Return the first convention for calls under which a turn parses back."""
    fault: InvalidInput | None = None
    for candidate, forms in chain(_ways(template), _written_ways(template)):
        try:
            called = _turn(candidate, _CALL_TURN)
        except InvalidInput as error:
            fault = fault or error
            continue
        for form in forms if "probe_tool" in called.text else ():
            reader = _with_thought(TurnReader(form, around), candidate, called)
            if not _reads(candidate, reader, called, _CALLED):
                continue
            if not _also_reads(candidate, reader, *_ASKED, _CALLED.model_copy(update={"thought": None})):
                continue
            one_call = not _also_reads(candidate, reader, *_ASKED, _CALLED.model_copy(update={"actions": _CALLS}))
            return replace(candidate, one_call=one_call), replace(reader, one_call=one_call), called
        fault = fault or _unread(called)
    raise fault or _unread(_turn(template, _CALL_TURN))


def _ways(template: ChatTemplate) -> Iterator[tuple[ChatTemplate, Sequence[str]]]:
    """Yield ways of passing calls to a template, each with the forms to try."""
    forms = [form for form in FORMS if form != "react"]
    for named, place, as_text in product((False, True), get_args(ThoughtPlace), (False, True)):
        yield replace(template, ids_name_tools=named, thought_place=place, arguments_as_text=as_text), forms


def _written_ways(template: ChatTemplate) -> Iterator[tuple[ChatTemplate, Sequence[str]]]:
    """Yield ways of writing calls into the content, for a template that omits them, or writes them without escapes.

    Its model may have been trained on a form nevertheless: then the template or the vocabulary contains the form's marks, or the
    template writes a call without arguments in that form.
    """
    try:
        turn = _turn(template, (*_ASKED, _AGAIN)).text
    except InvalidInput:
        return
    writes = "second_tool" in turn
    (entry,) = template.chat((_AGAIN,), ())
    vocabulary = template.tokenizer.get_added_vocab()
    for name, form in FORMS.items():
        marks = [mark.strip() for mark in form.written.split("%s") if mark.strip()]
        if not marks:
            continue
        known = all(mark in template.source or mark in vocabulary for mark in marks)
        if form.write([call["function"] for call in entry["tool_calls"]]) in turn if writes else known:
            yield replace(template, writes_calls=name), [name]


def _surroundings(template: ChatTemplate) -> tuple[ChatTemplate, tuple[str, str]]:
    """Return the template with its text after the last turn, and its text around an agent's text."""
    messages = (*_ASKED, _ANSWERED)
    asked, finished = (template.text(chat, PROBE_TOOLS, prompt=False) for chat in (_ASKED, messages))
    if not template.text((*messages, _ASKED[1]), PROBE_TOOLS, prompt=True).startswith(finished):
        ending = asked[len(asked) - shared_prefix(asked[::-1], finished[::-1]) :]
        opening = (
            ending.lstrip() if template.spellings.opens_with_control_token(ending) else ""
        )  # no end token before it
        template = replace(template, always_prompts=template.spellings.without_first(ending) or opening)
    finished = template.text(messages, PROBE_TOOLS, prompt=False)
    kept = common(finished, template.text((*messages, _ASKED[1]), PROBE_TOOLS, prompt=True))
    end = template.spellings.end
    if end.search(finished[:kept]) and end.fullmatch(finished[kept:].strip()):
        template = replace(template, closes_with=finished[kept:].strip())
    content = template.chat(messages, PROBE_TOOLS)[-1]["content"].strip()
    before, here, after = _without_end(template, _turn(template, messages)).partition(content)
    return template, (before.strip(), after.strip()) if here else ("", "")


def _with_late_ends(template: ChatTemplate) -> ChatTemplate:
    """Return the template with the ends of turns that it writes only where something follows."""
    answer = _late_end(template, _LAST_TURN, _ASKED[1])
    return replace(template, late_ends=(answer, _late_end(template, _CALL_TURN, _SECOND_TURN[-2])))


def _late_end(template: ChatTemplate, messages: Sequence[Message], following: Message) -> str:
    """Return the first control token behind a turn without an end token; empty if there is none, or other text before it."""
    turn, text = _turn(template, messages), template.text((*messages, following), PROBE_TOOLS, prompt=True)
    written = turn.text.rpartition("</think>")[2]  # thinking can be rewritten when something follows
    if _end(template, turn) or not written:
        return ""
    _, is_kept, rest = text.rpartition(written)
    opening = rest.lstrip()
    found = template.spellings.first.match(opening)
    return rest[: len(rest) - len(opening) + found.end()] if found and is_kept else ""


def _with_thought(reader: TurnReader, template: ChatTemplate, called: Turn) -> TurnReader:
    """Return the reader with the template's text around the thought before a call."""
    read = reader.read(_without_end(template, called), PROBE_TOOLS)
    before, here, after = (read.thought or "").partition(str(_CALLED.thought))
    return replace(reader, around_thought=(before.strip(), after.strip())) if here else reader


def _after_calls(template: ChatTemplate, reader: TurnReader, called: Turn) -> str:
    """Return the template's text between a turn's call and its end token."""
    text = _without_end(template, called)
    end = reader.end_of_calls(f"{text}{_OTHER_TEXT}", PROBE_TOOLS)
    return "" if end is None else text[end:].strip()


def _foreign(template: ChatTemplate, again: Turn, called: Turn, answered: Turn) -> tuple[str, ...]:
    """Return the texts with which the template opens a tool's result and a user's message behind an agent's turn."""
    asked = template.text((*_LAST_TURN, _ASKED[1]), PROBE_TOOLS, prompt=True)
    of_tool = _between(called.finished, again.prompt, "probe observation")
    of_user = _between(answered.finished, asked, "probe question")
    label = of_tool.removeprefix(of_user).lstrip() if of_user else ""
    return tuple(dict.fromkeys(text for text in (of_user, of_tool, label) if text.strip()))


def _between(before: str, text: str, content: str) -> str:
    """Return the text between a beginning and a content; empty if it begins otherwise."""
    opening = text[len(before) :].partition(content)[0] if text.startswith(before) else ""
    return opening.lstrip().rstrip(" ")


def _turn(template: ChatTemplate, messages: Sequence[Message]) -> Turn:
    return template.turn(template.chat(messages, PROBE_TOOLS), template.schemas(PROBE_TOOLS))


def _end(template: ChatTemplate, turn: Turn) -> str:
    found = template.spellings.end.search(turn.text)
    return found[0] if found else ""


def _without_end(template: ChatTemplate, turn: Turn) -> str:
    return turn.text.rstrip().removesuffix(_end(template, turn))


def _reads(template: ChatTemplate, reader: TurnReader, turn: Turn, message: Message) -> bool:
    """Whether the turn parses back to the message, and could be sampled."""
    read = reader.read(_without_end(template, turn), PROBE_TOOLS)
    return _can_be_sampled(template, turn) and (read.thought, [*map(_plain, read.actions)]) == (
        message.thought,
        [*map(_plain, message.actions)],
    )


def _can_be_sampled(template: ChatTemplate, turn: Turn) -> bool:
    """Whether no text follows the first end token of a turn."""
    end = _end(template, turn)
    return not end or not _without_end(template, turn).partition(end)[2].replace(end, "").strip()


def _plain(action: Action) -> tuple[str, str]:
    return action.tool, json.dumps(action.args, sort_keys=True)  # in Python, 1, 1.0 and True are equal


def _also_reads(template: ChatTemplate, reader: TurnReader, *messages: Message) -> bool:
    """Whether the last turn of another episode parses back as well."""
    try:
        return _reads(template, reader, _turn(template, messages), messages[-1])
    except InvalidInput:
        return False


def _require_mentions(prompt: str, mentions: Sequence[str]) -> None:
    if missing := [mention for mention in mentions if mention not in prompt]:
        raise InvalidInput(f"the template omits {missing[0]!r}", code="template_unfit")


def _require_read(template: ChatTemplate, reader: TurnReader, turn: Turn, message: Message) -> None:
    if not _reads(template, reader, turn, message):
        raise _unread(turn)


def _unread(turn: Turn) -> InvalidInput:
    return InvalidInput(f"a turn does not parse back: {turn.text!r}", code="template_unfit")


def _end_ids(template: ChatTemplate, ends: Sequence[str]) -> Iterator[int]:
    """Yield the last id of each end token, and further end tokens of tokenizer and template."""
    yield from (template.encode(end)[-1] for end in ends if end)
    if template.tokenizer.eos_token_id is not None:
        yield template.tokenizer.eos_token_id
    for spelling in _ALSO_END:
        if spelling in template.source and len(ids := template.encode(spelling)) == 1:
            yield ids[0]


def _warnings(template: ChatTemplate, ends: Sequence[str]) -> Iterator[str]:
    if not all(ends):
        yield "the chat template writes no end token after a turn, so the model does not learn to stop"
    if template.one_call:
        yield (
            "the chat template supports one tool call per turn, so a turn with several calls becomes several turns, "
            "each with its result"
        )
