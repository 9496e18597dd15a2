"""Find the messages of a chat record: a column, a request with its response, or items of the Responses API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.files.spooled_list import SpooledList
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Report, Run
from quintain.importers.row_reader import SESSIONS, build_chat_run, first_name, read_row
from quintain.importers.run_builder import NO_RUN
from quintain.importers.training_data.batches import BatchRequests
from quintain.importers.training_data.loose_messages import LooseMessages
from quintain.importers.transcripts.chat_messages import role_of
from quintain.importers.transcripts.responses_api import is_item, is_items, items_to_messages
from quintain.importers.transcripts.vendor_messages import (
    CHUNKS,
    CODE_RESULT,
    chat_message,
    is_langchain_dump,
    words_of,
)
from quintain.importers.values import (
    as_dict,
    as_list,
    as_text,
    dicts_in,
    nonblank,
    parse_json_text,
    parse_time,
    transpose_columns,
)

COLUMNS = ("messages", "conversations", "conversation", "trajectory")
FIELDS = (*COLUMNS, "request", "body", "response", "input", "output", "choices", "stop_reason")
"""A record with messages has one of these fields, or its only chat under any other name."""
_REPLIES = ("response", "output", "outputs", "completion")
"""Fields with what the model answered to the messages beside them: a response, a message or text."""

_WORDS = ("parts", "contentParts", "text", "message", *CHUNKS)
"""Fields with what a message says, where it has no `content`."""
_EXCHANGES = (
    ("input", "output"),
    ("human", "assistant"),
    ("user", "assistant"),
    ("question", "answer"),
    ("query", "response"),
)
"""Names of what was asked and answered in one object of a chat: Capybara and xtuner, Firefly and ms-swift, ..."""
_BLOCKS = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use"})
_STRANGE = frozenset({"email", "username", "password", "phone", "first_name", "last_name", "avatar", "permissions"})
"""Fields of user records, which chat messages do not have."""
_DEPTH = 3
"""Objects around a chat that none of the columns names."""


def is_message(value: Any) -> bool:
    """Whether a value is a chat message or a LangChain dump of one, rather than a record that contains messages."""
    return is_langchain_dump(value) or (
        isinstance(value, Mapping)
        and isinstance(value.get("role"), str)
        and ("content" in value or "tool_calls" in value or "function_call" in value or words_of(value) is not None)
        and not any(isinstance(value.get(key), list) for key in COLUMNS)
    )


def carried(row: Any) -> Any:
    """Return the LangChain message that a row of a table of messages carries, with its columns; any other row unchanged."""
    held = parse_json_text(row.get("message")) if isinstance(row, Mapping) and "role" not in row else None
    if not isinstance(held, Mapping) or not is_langchain_dump(held):
        return row
    return {**{name: value for name, value in row.items() if name not in ("id", "message")}, **held}


def is_plain(message: Mapping[str, Any]) -> bool:
    """Whether a message has no fields of a user record; a list of users with roles is not a chat."""
    return not message.keys() & _STRANGE


def is_chat(value: Any) -> bool:
    """Whether a value is a list of chat messages."""
    return isinstance(value, list) and bool(value) and all(is_message(message) for message in value[:3])


def has_blocks(messages: Iterable[Any]) -> bool:
    """Whether a message has a content block unique to Anthropic's style."""
    spoken = [m for m in messages if isinstance(m, Mapping) and not is_langchain_dump(m)]
    contents = [m["content"] for m in spoken if isinstance(m.get("content"), list)]
    kinds = [part.get("type") for content in contents for part in content if isinstance(part, Mapping)]
    return any(isinstance(kind, str) and kind in _BLOCKS for kind in kinds)


def messages_of(row: Mapping[str, Any]) -> tuple[Iterable[Any], Mapping[str, Any]] | None:
    """Return the messages of a record and the record with their other fields; None if it has no chat.

    The messages are a list, except where the record has a `SpooledList`: then they can be read once.
    """
    request = parse_json_text(row.get("request", row.get("body", row.get("input"))))
    request = as_dict(request).get("inputBodyJson", request)  # a log of Amazon Bedrock
    response = row.get("response", as_dict(row.get("output")).get("outputBodyJson"))
    if isinstance(request, Mapping) and not isinstance(request.get("request"), Mapping):
        held = messages_of(request)
        if held is None and answer_of(response):
            held = _asked(request), request
        if held is not None:
            return _answered(held[0], row, answer_of(response)), {**row, **request}
    for key in COLUMNS:
        messages = _exchanged(transpose_columns(row.get(key)))
        if isinstance(messages, list | SpooledList) and any(is_message(each) or is_item(each) for each in messages):
            converted = items_to_messages(messages) if any(map(is_item, messages)) else messages
            chat = list(converted) if isinstance(messages, list) else converted
            return _answered(chat, row, [*answer_of(row), *answer_of(response)]), row
    if any(is_items(parse_json_text(row.get(key))) for key in ("input", "output")):
        return _of_items(row), row
    replies = [reply for each in row.values() if isinstance(each, Mapping) and (reply := answer_of(each))]
    if answer := answer_of(row) or answer_of(response) or (replies[0] if len(replies) == 1 else []):
        # Gateways keep the request as it came and as they sent it on, under names of their own.
        requests = [each for each in row.values() if isinstance(each, Mapping) and is_chat(each.get("messages"))]
        if requests and all(each["messages"] == requests[0]["messages"] for each in requests):
            return [*requests[0]["messages"], *answer], {**requests[0], **row}
        return answer, row
    return _only_chat(row)


def _asked(request: Mapping[str, Any]) -> list[Any]:
    """Return what a request asks: its input items, or its only chat, such as the `contents` of Gemini's API."""
    chats = [value for value in request.values() if isinstance(value, list) and _is_said(value)]
    return chats[0] if len(chats) == 1 and "input" not in request else _of_items(request)


def _exchanged(turns: Any) -> Any:
    """Return the messages of a list of exchanges (`_EXCHANGES`), or of texts that take turns (LIMA); other values unchanged."""
    if not isinstance(turns, list) or not turns:
        return turns
    if all(isinstance(turn, str) for turn in turns):
        return [{"role": "assistant" if place % 2 else "user", "content": text} for place, text in enumerate(turns)]
    names = next(
        (pair for pair in _EXCHANGES if all(isinstance(turn, dict) and {*pair} <= turn.keys() for turn in turns)), None
    )
    if names is None or any(is_message(turn) for turn in turns):
        return turns
    spoken = (("system", "system"), ("user", names[0]), ("assistant", names[1]))
    return [{"role": role, "content": turn[key]} for turn in turns for role, key in spoken if turn.get(key)]


def _answered(messages: Iterable[Any], row: Mapping[str, Any], answers: list[Any]) -> Iterable[Any]:
    """Return messages with the answers to them; a chat that does not end with the agent has its reply beside it."""
    if not isinstance(messages, list):
        return chain(messages, answers)
    ends = bool(messages) and is_message(messages[-1]) and role_of(_plain_message(messages[-1])) == "assistant"
    return [*messages, *(answers if answers or ends else _reply(row))]


def _reply(row: Mapping[str, Any]) -> list[Any]:
    """Return the message with which the model replied to the messages of a record."""
    for stated in map(row.get, _REPLIES):
        value = parse_json_text(stated)
        value = value[0] if isinstance(value, list) and len(value) == 1 else value
        if answer := answer_of(value):
            return answer
        if isinstance(value, Mapping) and is_message(value):
            return [value] if role_of(value) == "assistant" else []
        if text := nonblank(stated, value):
            return [{"role": "assistant", "content": text}]
    return []


def _only_chat(row: Mapping[str, Any]) -> tuple[list[Any], Mapping[str, Any]] | None:
    """Return the chat of a record under any name, at most `_DEPTH` objects deep, with the fields beside it.

    The record has none if no list, or more than one, is a chat in which an agent speaks. A list beside it in which only
    others speak is its prompt.
    """
    found: list[tuple[list[Any], dict[str, Any]]] = []
    level: list[Mapping[str, Any]] = [row]
    for _ in range(_DEPTH):
        for fields in level:
            lists = {key: _bare(value) for key, value in fields.items() if isinstance(value, list)}
            chats = {key: value for key, value in lists.items() if _is_said(value)}
            answers = [key for key, value in chats.items() if _is_spoken(value)]
            asked = [value for key, value in chats.items() if key not in answers]
            prompt = asked[0] if len(asked) == 1 else []
            beside = {name: each for name, each in fields.items() if name not in chats}
            if not answers and prompt and (reply := _reply(beside)):
                found.append(([*prompt, *reply], {**row, **beside}))
            found += [
                (list(_answered([*prompt, *chats[key]], beside, [])), {**row, **beside})
                for key in answers
                if len(prompt) + len(chats[key]) > 1
            ]
        level = [value for fields in level for value in fields.values() if isinstance(value, Mapping)]
    if len(found) != 1:
        return None
    ((messages, beside),) = found
    return list(items_to_messages(messages)) if any(map(is_item, messages)) else messages, beside


def chats_by_name(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the chats of an object that has several, each under a name such as that of its session; else {}."""
    for held in (row, *(row.values() if len(row) == 1 else ())):
        chats = {name: chat for name, chat in held.items() if chat != []} if isinstance(held, Mapping) else {}
        if chats and len(held) > 1 and all(map(is_chat, chats.values())):
            return chats
    return {}


def records_of(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the records with chats that an object, or one in it, holds in its only list of them, or under names; else [].

    They have the model of the object, unless they name one.
    """
    holders = [row, *(value for value in row.values() if isinstance(value, Mapping))]
    values = (value for holder in holders for value in holder.values())
    lists = [dicts_in(list(value)) for value in values if isinstance(value, list | SpooledList)]
    found = [records for records in lists if any(messages_of(record) for record in records[:3])]
    named = [bool(messages_of(each)) or [] in each.values() for each in row.values() if isinstance(each, Mapping)]
    if not found and len(row) > 1 and len(named) == len(row) and all(named) and any(map(messages_of, row.values())):
        found = [[{SESSIONS[0]: name, **record} for name, record in row.items()]]
    model = nonblank(row.get("model"))
    return [{"model": model, **record} if model else record for record in found[0]] if len(found) == 1 else []


def _bare(values: list[Any]) -> list[Any]:
    """Return the messages of the history of a session of Continue, whose items hold one each; other lists unchanged."""
    held = [value.get("message") for value in values if isinstance(value, Mapping) and "contextItems" in value]
    return held if len(held) == len(values) and all(map(is_message, held)) else values


def _is_mixed(messages: list[Any]) -> bool:
    """Whether messages are of several conversations, or those of OpenAI's threads, whose newest is the first."""
    objects = dicts_in(messages)
    is_thread = any(message.get("object") == "thread.message" for message in objects)
    return is_thread or len({first_name(message, SESSIONS) for message in objects}) > 1


def _is_said(values: list[Any]) -> bool:
    return bool(values) and all(is_message(value) or is_item(value) for value in values)


def _is_spoken(values: list[Any]) -> bool:
    """Whether a chat has somebody beside the user."""
    return any(
        is_item(value) or role_of(_plain_message(value)) not in ("user", "system", "developer") for value in values
    )


def read_chats(log: LogFile, report: Report) -> Iterator[Run]:
    """Yield the runs of a file of chats: single messages (a run of each conversation), lists of messages, or records with messages.

    Raises:
        InvalidInput: a chat of too many messages.
    """

    def read(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
        if (held := messages_of(row)) is None and (chats := chats_by_name(row)):
            for name, messages in chats.items():
                yield from build_chat_run(_plain_messages(messages), {"session_id": name}, line, report)
            return
        if held is None and (records := records_of(row)):
            for number, record in enumerate(records, 1):
                yield from read_row(record, number, report, read)
            return
        if held is None:
            raise InvalidInput(
                NO_RUN if "prompt" in row else "expected chat messages (`messages` with role and content)"
            )
        if isinstance(held[0], list) and _is_mixed(held[0]):
            mixed = LooseMessages(log)
            for number, message in enumerate(filter(is_message, held[0])):
                mixed.add(number, message)
            for _, about, chat in mixed.chats(report):
                yield from build_chat_run(_plain_messages(chat), {**held[1], **about}, line, report)
            return
        answers = list(_answers(row))
        for place, answer in enumerate(answers):
            messages, columns = (held if answer is row else messages_of(answer)) or ([], answer)
            if isinstance(messages, list) and len(messages) == 1:  # the answer alone
                request = requests.of(row, nonblank(as_dict(messages[0]).get("model")), report)
                messages, columns = [*as_list(request.get("messages")), *messages], {**request, **columns}
            attempt = {"episode_key": str(place)} if len(answers) > 1 else {}
            yield from build_chat_run(_plain_messages(messages), columns, line, report, **attempt)

    requests = BatchRequests(log)
    loose, has_items = LooseMessages(log), False
    for line, value in ((number, carried(row)) for number, row in log.rows(report, COLUMNS)):
        if (is_message(value) or is_item(value)) and not answer_of(value):
            loose.add(line, value)
            has_items = has_items or is_item(value)
        else:
            yield from read_row({"messages": value} if isinstance(value, list) else value, line, report, read)
    for begins, columns, held in loose.chats(report):
        messages = _plain_messages(items_to_messages(held) if has_items else held)
        yield from read_row(columns, begins, report, partial(build_chat_run, messages))


def _plain_messages(messages: Iterable[Any]) -> Iterator[Any]:
    """Yield messages as those of a chat API; blocks of one reply in several messages are one, as Anthropic's API reads them."""
    before: Any = None
    for message in map(_plain_message, messages):
        if before is not None and _goes_on(before, message):
            before = {**message, **before, "content": [*before["content"], *message["content"]]}
            continue
        if before is not None:
            yield before
        before = message
    if before is not None:
        yield before


def _goes_on(before: Any, message: Any) -> bool:
    """Whether two messages are pieces of one reply: blocks of the agent, calls or thoughts among them."""
    pieces = [as_dict(each) for each in (before, message)]
    spoken = all(piece.get("role") == "assistant" and isinstance(piece.get("content"), list) for piece in pieces)
    return spoken and has_blocks(pieces)


def _plain_message(message: Any) -> Any:
    if is_langchain_dump(message):
        return chat_message(message)
    if is_message(message) and "content" not in message and (words := words_of(message)) is not None:
        if message.get("isThought") is True:  # a chunk of Google AI Studio
            thought = (
                words if isinstance(words, str) else "".join(as_text(part.get("text")) for part in dicts_in(words))
            )
            return {"role": "assistant", "reasoning": thought}
        stated = {key: value for key, value in message.items() if key not in _WORDS}
        return {**stated, "content": words, **({"role": "tool"} if CODE_RESULT in message else {})}
    if isinstance(message, Mapping) and "toolCalls" in message and "tool_calls" not in message:
        return {"tool_calls" if key == "toolCalls" else key: value for key, value in message.items()}
    return message


def _of_items(row: Mapping[str, Any]) -> list[Any]:
    """Combine input and output items: a request has the input, a response the output, a log may have both."""
    asked, answered = parse_json_text(row.get("input")), parse_json_text(row.get("output"))
    asked = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    system = [{"role": "system", "content": row["instructions"]}] if isinstance(row.get("instructions"), str) else []
    return [*system, *items_to_messages(asked if isinstance(asked, list) else []), *_output(row, answered)]


def _output(response: Mapping[str, Any], items: Any) -> list[Any]:
    """Return the messages of a Responses API response, with its model, usage and time."""
    messages = list(items_to_messages(items)) if isinstance(items, list) else []
    answers = [message for message in messages if isinstance(message, dict) and message.get("role") == "assistant"]
    if len(answers) == 1:  # of several, nobody knows which one took the tokens
        answers[0] |= _about(response, "created_at")
    return messages


def _about(response: Mapping[str, Any], created: str) -> dict[str, Any]:
    """Return the model, usage and time of a response."""
    known = {key: response[key] for key in ("model", "usage") if response.get(key)}
    return known | ({"timestamp": response[created]} if parse_time(response.get(created)) else {})


def _answers(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the row once for each of several answers; the row itself if there is at most one."""
    for key in ("response", "body"):
        held = parse_json_text(row.get(key))
        if isinstance(held, dict) and {"body", "choices"} & held.keys():
            yield from ({**row, key: each} for each in _answers(held))
            return
    choices = dicts_in(row.get("choices"))
    yield from ({**row, "choices": [choice]} for choice in choices or [{}]) if len(choices) > 1 else [row]


def answer_of(response: Any) -> list[Any]:
    """Return the answer message of an OpenAI, Anthropic, Gemini, Bedrock or Ollama response."""
    response = parse_json_text(response)
    if not isinstance(response, Mapping):
        return []
    bodies = (response[key] for key in ("body", "result") if isinstance(response.get(key), Mapping))
    response = next(bodies, response)  # a line of OpenAI's batches, or of Anthropic's
    reply = response.get("message")
    if response.get("type") == "succeeded":
        return answer_of(reply)
    if isinstance(answer := as_dict(response.get("output")).get("message"), Mapping):  # Bedrock's Converse
        return [{**answer, **_about(response, "")}]
    for candidate in dicts_in(response.get("candidates"))[:1]:
        known = {"model": response.get("modelVersion"), "usage": response.get("usageMetadata")}
        return [{**as_dict(candidate.get("content")), "role": "assistant", **known}]
    if isinstance(reply, Mapping) and "done" in response:  # Ollama's chat
        usage = {"prompt_tokens": response.get("prompt_eval_count"), "completion_tokens": response.get("eval_count")}
        return [{"role": "assistant", **reply, **_about({**response, "usage": usage}, "created_at")}]
    choices = response.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
        message = choices[0].get("message")
        known = _about(response, "created")
        return [{"role": "assistant", **message, **known}] if isinstance(message, Mapping) else []
    if response.get("object") == "response":
        return _output(response, response.get("output"))
    if response.get("type") == "message" and response.get("role") == "assistant" and "stop_reason" in response:
        return [{key: response.get(key) for key in ("role", "content", "model", "usage")}]
    return []
