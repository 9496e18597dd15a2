"""Sort the parts of a chat message of any vendor: content, thoughts, calls and results.

An `OnInvalid` decides what happens to a part without a place in a record: an error, or one more in a count.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from quintain.errors import InvalidInput
from quintain.importers.transcripts.result_envelopes import RESULT_KEYS, result_in_call, result_of_part, unwrap_result
from quintain.importers.transcripts.transcript import make_call
from quintain.importers.values import as_dict, as_text, dicts_in, nonblank, parse_json_text, text_fields, to_text
from quintain.records.text import require_clean

Message = str | list[dict[str, Any]]
"""Text, or parts shaped as `TextPart` and `ImagePart` in JSON."""

OnInvalid = Callable[[str, str], None]
"""Called with a short kind (`part:video`) and a sentence (expected, got); may raise."""

CALLS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use", "tool_call", "function_call", "custom_tool_call"})
RESULTS = frozenset({"tool_result", "tool_call_response", "function_call_output", "custom_tool_call_output"})
THOUGHTS = frozenset({"thinking", "reasoning", "reasoning_text", "thought"})
_TEXTS = {"text": "text", "input_text": "text", "output_text": "text", "summary_text": "text", "refusal": "refusal"}
_PICTURES = frozenset({"image_url", "input_image", "image", "blob", "uri"})
_MEDIA_TYPES = ("media_type", "mimeType", "mime_type", "mediaType", "mime")
_FILES = frozenset({"file", "input_file", "document", "audio", "video"})
_SEALED = frozenset({"redacted_thinking", "encrypted_content"})
"""Encrypted by the provider and unreadable."""
_FIELDS_OF_TEXT = frozenset({"thought", "answer", "text"})
"""Fields of a content that is an object that hold its text."""
_OBJECTS = "the content of some messages is an object or a value: it is read as its JSON text"
_SHOWN = frozenset({*_TEXTS, *_PICTURES, *_FILES, *_SEALED, *THOUGHTS})
_CALL_KEYS = ("functionCall", "function_call", "toolUse")
_BY_KEY = {
    **dict.fromkeys(("functionCall", "function_call", "tool_call"), "tool_call"),
    **dict.fromkeys(RESULT_KEYS, "tool_result"),
    "toolUse": "tool_use",
    "reasoning": "reasoning",
}
"""Keys that identify the kind of a part without a type (Gemini in either spelling, Bedrock, Haystack)."""
_NAMES = {"function_response": "tool_result"}
_CALL_IDS = ("call_id", "tool_call_id", "toolCallId", "tool_use_id", "toolUseId", "id")
_ARGUMENTS = ("arguments", "args", "input", "parameters", "params", "tool_input", "toolInput", "params_as_json")
_NAMES_OF_TOOLS = ("name", "toolName", "tool_name", "tool")
_NO_ARGUMENTS = frozenset({*_NAMES_OF_TOOLS, "result", "output", "error", "metadata", "extra_content"})
_HUMP = re.compile(r"(?<=[a-z])[A-Z]|-")
_VALID = f"{', '.join(_TEXTS)}, image_url, image, thinking, tool_use, tool_result"


class Result(NamedTuple):
    """Result of a tool call."""

    content: Message
    call_id: str | None = None
    is_error: bool = False
    tool: str | None = None


@dataclass
class Parts:
    """Content of a message, sorted by kind."""

    content: list[dict[str, Any]] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    sealed: bool = False
    """Whether the message has encrypted thoughts."""


def sort_parts(content: Any, where: str, refuse: OnInvalid) -> Parts:
    """Sort the content of a message: text, null or a list of parts; other values are refused or become text."""
    parts = Parts()
    if isinstance(content, str):
        parts.content += [_text(content)] if content else []
    elif isinstance(content, list | tuple):
        for i, part in enumerate(content):
            _sort(part, f"{where}.content[{i}]", parts, refuse)
    elif content is not None:
        fields = as_dict(content)
        texts = text_fields(fields) if fields.keys() <= _FIELDS_OF_TEXT else {}
        is_read = bool(texts or part_kind(fields))
        sentence = f"expected {where}.content to be text, null or a list of parts, got {type(content).__name__}"
        refuse("content of another form" if is_read else "content", sentence)
        if texts:  # Arena-Hard's answers
            parts.thoughts += filter(None, [texts.pop("thought", None)])
            parts.content += map(_text, texts.values())
        elif is_read:
            _sort(content, f"{where}.content", parts, refuse)
        else:
            parts.content.append(_text(to_text(content)))
    return parts


def simplify_content(parts: list[dict[str, Any]]) -> Message:
    """Return content as a record stores it: a single text part, or none, becomes a plain string."""
    if not parts:
        return ""
    return str(parts[0]["text"]) if len(parts) == 1 and parts[0]["type"] == "text" else parts


def visible_content(value: Any) -> Message:
    """Return the visible content of a message or result: text and images of any vendor, other parts as JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    parts = [_shown(part) for part in (value if isinstance(value, list) else [value])]
    return simplify_content([part for part in parts if part is not None])


def spoken_content(value: Any, skip: Callable[[str], None]) -> Message:
    """Return the agent's message content; parts of an unknown kind are not its text and go to `skip`."""
    parts = []
    for part in value if isinstance(value, list) else [value]:
        kind = part_kind(part)
        if kind and kind not in _SHOWN:
            skip(f"part:{kind}")
        else:
            parts.append(part)
    return visible_content(parts)


def join_messages(*messages: Message) -> Message:
    """Join several messages in order; a single text becomes a plain string."""
    kept = [message for message in messages if message]
    if len(kept) < 2:
        return kept[0] if kept else ""
    return [part for message in kept for part in ([_text(message)] if isinstance(message, str) else message)]


def plain_text(message: Message) -> str:
    """Return the text of a message without images."""
    return message if isinstance(message, str) else "".join(as_text(part.get("text")) for part in message)


def join_thoughts(pieces: Iterable[str | None]) -> str | None:
    """Join the thoughts of one turn with blank lines, without repetitions."""
    return "\n\n".join(dict.fromkeys(piece for piece in pieces if piece and piece.strip())) or None


def part_kind(part: Any) -> str:
    """Return the normalized kind of a part (`tool_call` for `toolCall`), by its type or identifying key."""
    if not isinstance(part, (dict, Mapping)):
        return ""
    if part.get("thought") is True:
        return "thought"
    kind = part.get("type")
    if not isinstance(kind, str) or not kind:
        if "toolName" in part and "toolCallId" in part:  # the AI SDK's calls and results in spans have no type
            return "tool_result" if part.keys() & {"output", "result"} else "tool_call"
        return next((_BY_KEY[key] for key in _BY_KEY if isinstance(part.get(key), Mapping)), "")
    if kind == "function" and "arguments" in as_dict(part.get("function")):  # without arguments it is a tool's schema
        return "tool_call"
    snake = _HUMP.sub(lambda found: "_" + found[0].lower().strip("-"), kind)
    return _NAMES.get(snake, "tool_result" if snake.endswith("tool_result") else snake)


def parse_call(value: Any, where: str, refuse: OnInvalid) -> dict[str, Any] | None:
    """Parse an entry of `tool_calls`: `function` with `name` and `arguments`; None if it was skipped.

    If `refuse` does not raise, other forms are read too: fields beside the id by any vendor's names, a call as JSON
    text, custom tools, and arguments that are not an object, which are kept as their JSON.
    """
    if isinstance(value, str):
        refuse("call as text", f"{where} must be an object with `function` holding `name` and `arguments`")
        value = parse_json_text(value)
    function = value.get("function") if isinstance(value, (dict, Mapping)) else None
    if not isinstance(function, (dict, Mapping)):
        refuse("call of another form", f"{where} must be an object with `function` holding `name` and `arguments`")
        if not isinstance(value, Mapping):
            return None
        value = next((value[k] for k in ("tool_call", *_CALL_KEYS) if as_dict(value.get(k))), value)
        function = value.get("function", function)
        inner = as_dict(value.get("custom")) or as_dict(function) or value
        function = {**inner, "name": nonblank(function, *map(inner.get, _NAMES_OF_TOOLS))}
    name, call_id, arguments = function.get("name"), _first_field(value, _CALL_IDS), _first_field(function, _ARGUMENTS)
    if not isinstance(name, str) or not name:
        refuse("call without a name", f"{where}: expected the tool's name to be non-empty text, got {name!r}")
    if call_id is not None and not isinstance(call_id, str):
        refuse("call id", f"{where}: expected the call's id to be text or absent, got {call_id!r}")
        call_id = str(call_id) if isinstance(call_id, int) else None
    if arguments is not None and not isinstance(arguments, (str, dict, Mapping)):
        refuse("arguments", f"{where}: arguments are {type(arguments).__name__}; they must be a JSON text or an object")
    if arguments is None and any(as_dict(parse_json_text(function[k])) for k in function.keys() - _NO_ARGUMENTS):
        refuse(
            "field:arguments of a call by an unknown name", f"{where}: expected `arguments`, got {', '.join(function)}"
        )
    call = make_call(name if isinstance(name, str) else "", arguments, call_id)
    if call["args"] is None:
        _check_characters(call["raw_args"], where, refuse)
    return call


def parse_inner_result(value: Any, call: Mapping[str, Any], where: str, refuse: OnInvalid) -> Result | None:
    """Parse the result that some programs store in the call itself; None without one."""
    if (found := result_in_call(value)) is None:
        return None
    return parse_result(*found, where, refuse)._replace(call_id=call["call_id"], tool=call["tool"])


def _first_field(held: Mapping[str, Any], keys: Iterable[str]) -> Any:
    """Return the first of these fields that is not None."""
    for key in keys:  # several times as fast as `next` of a generator
        if (known := held.get(key)) is not None:
            return known
    return None


def parse_result(held: Mapping[str, Any], body: Any, where: str, refuse: OnInvalid) -> Result:
    """Parse a tool result and its error status by any vendor's names; an error without text gets that of its fields."""
    body = unwrap_result(held, body) if refuse is not raise_invalid else body
    error = held.get("error")
    failed = bool(error) or held.get("status") == "error" or bool(held.get("is_error", held.get("isError", False)))
    if refuse is raise_invalid:
        inner = sort_parts(body, where, refuse)
        if inner.thoughts or inner.calls or inner.results:
            refuse("part in a result", f"{where} is a tool_result with blocks other than text and images")
        content = simplify_content(inner.content)
    elif isinstance(body, str):
        content = body
    else:
        typed = as_dict(body)
        failed = failed or as_text(typed.get("type")).startswith("error")
        content = visible_content(typed["value"] if "value" in typed and set(typed) <= {"type", "value"} else body)
    if not content and error and error is not True:
        content = nonblank(as_dict(error).get("message"), error) or to_text(error)
    call_id = next((known for key in _CALL_IDS if (known := nonblank(held.get(key)))), None)
    return Result(content, call_id, failed, nonblank(held.get("name")))


def _sort(part: Any, where: str, parts: Parts, refuse: OnInvalid) -> None:
    kind = part_kind(part)
    if isinstance(part, str):
        parts.content.append(_text(part))
    elif not kind:
        shows = isinstance(part, Mapping) and (isinstance(part.get("text"), str) or _picture(part) is not None)
        sentence = f"{where} is {part!r:.80}; a part must be text or an object with a textual `type`"
        refuse("part without a type" if shows else "part", sentence)
        parts.content += filter(None, [_shown(part)] if shows else [])
    elif kind in _TEXTS:
        stated = as_dict(part.get(_TEXTS[kind])).get("value")  # OpenAI's Assistants
        if (content := stated if isinstance(stated, str) else _field(part, _TEXTS[kind], where, refuse)) is not None:
            parts.content.append(_text(content))
    elif kind in _PICTURES:
        if picture := _picture(part, where, refuse):
            parts.content.append(picture)
        else:
            refuse("picture", f"{where} is a picture without a URL or base64 data")
    elif kind in THOUGHTS:
        _think(part, where, parts, refuse)
    elif kind in CALLS:
        _call(part, where, parts, refuse)
    elif kind in RESULTS:
        parts.results.append(parse_result(*result_of_part(part), where, refuse))
    elif kind in _SEALED:
        parts.sealed = True
    elif content := _document(part):
        parts.content.append(_text(content))
    else:
        refuse(f"part:{kind}", f"{where}.type is {part.get('type')!r}; valid: {_VALID}")


def _call(part: Mapping[str, Any], where: str, parts: Parts, refuse: OnInvalid) -> None:
    value: Any = part
    if part.get("type") == "tool_use":
        value = {"id": part.get("id"), "function": part}
    elif "value" in part and "name" not in part:  # LLaMA-Factory's v1 data: the call as JSON text
        value = parse_json_text(part["value"])
        if not isinstance(value, Mapping):
            refuse("part:tool_call", f"expected {where}.value to be the JSON text of a call, got {value!r:.60}")
            return
        value = {"id": value.get("id"), "function": value}
    elif as_text(part.get("type")) in CALLS:
        held = as_dict(part.get("tool_call")) or part
        value = {**held, "function": held} if not held.get("function") else held
    if (call := parse_call(value, where, refuse)) is None:
        return
    parts.calls.append(call)
    if refuse is not raise_invalid and (result := parse_inner_result(part, call, where, refuse)) is not None:
        parts.results.append(result)


def _think(part: Mapping[str, Any], where: str, parts: Parts, refuse: OnInvalid) -> None:
    keys = ("thinking", "reasoning", "text", "content", "value", "reasoning_text")
    part = as_dict(part.get("reasoning")) or part
    sealed = part.get("redacted") is True
    stated = part.get("summary")
    summary = "\n".join(as_text(item.get("text")) for item in dicts_in(stated)) or as_text(stated)
    thought = ("" if sealed else nonblank(*(part.get(key) for key in keys))) or summary
    if thought:
        parts.thoughts.append(thought)
    elif sealed or any(part.get(key) for key in ("encrypted_content", "signature", "data")):
        parts.sealed = True
    elif not any(isinstance(part.get(key), str) for key in keys):
        refuse(f"part:{part.get('type')}", f"{where} is a thought without a text")


def _field(part: Mapping[str, Any], key: str, where: str, refuse: OnInvalid) -> str | None:
    value = part.get(key, part.get("value", part.get("content", part.get("text"))))
    if isinstance(value, str):
        return value
    refuse(f"part:{part['type']}", f"expected {where}.{key} to be text, got {value!r:.60}")
    return None


def _text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content}


def _shown(part: Any) -> dict[str, Any] | None:
    """Return a part as text or image, else as JSON; None if it has nothing to show."""
    if part is None or isinstance(part, str):
        return _text(part) if part else None
    if not isinstance(part, Mapping):
        return _text(to_text(part))
    kind = part_kind(part)
    if not part or kind in _SEALED or kind in THOUGHTS:
        return None
    if document := _document(part):
        return _text(document)
    named = ("text", "refusal", "content", "value") if kind in _TEXTS else ("text",)
    if (content := next((part[key] for key in named if isinstance(part.get(key), str)), None)) is not None:
        return _text(content)
    if picture := _picture(part):
        return picture
    return None if kind in _PICTURES else _text(to_text({k: v for k, v in part.items() if k != "encrypted_content"}))


def _document(part: Mapping[str, Any]) -> str:
    """Return the text of a text document (Anthropic's documents and search results)."""
    source = as_dict(part.get("source"))
    return as_text(source.get("data")) if source.get("type") == "text" else ""


def _picture(part: Mapping[str, Any], where: str = "", refuse: OnInvalid = lambda *_: None) -> dict[str, Any] | None:
    """Return an image or file by reference, inline bytes by their hash; None for other parts."""
    named = part.get("image_url")
    source = next((held for key in ("source", "inlineData", "fileData") if (held := as_dict(part.get(key)))), {})
    held = as_dict(named) or as_dict(part.get("image"))
    places = (named, *(held.get(key) for key in ("url", "path")), *(source.get(key) for key in ("url", "fileUri")))
    kind = part_kind(part)
    media_type = nonblank(*(each.get(key) for each in (source, part) for key in _MEDIA_TYPES))
    is_file = kind in _PICTURES or kind in _FILES or media_type is not None
    uri = nonblank(*places, *(part.get(key) for key in ("uri", "url", "image") if is_file))
    data = nonblank(source.get("data"))
    if kind in _PICTURES or kind == "audio":
        uri = uri or nonblank(part.get("value"), part.get("path"))
        data = data or nonblank(part.get("data"), part.get("content"))
    if uri is not None and uri.startswith("data:"):
        header, _, data = uri.removeprefix("data:").partition(",")
        media_type = header.partition(";")[0] or media_type
    elif uri is not None and ":" not in uri[:12] and len(uri) > 200:
        data = uri
    if data is not None:
        try:
            raw = base64.b64decode(data)
        except (binascii.Error, ValueError):
            refuse("picture", f"{where} has a picture that is not base64; pass a URL or base64 data")
            raw = data.encode("utf-8", "replace")
        uri = f"urn:sha256:{hashlib.sha256(raw).hexdigest()}"
    return {"type": "image", "uri": uri, "media_type": media_type} if uri else None


def _check_characters(raw: str, where: str, refuse: OnInvalid) -> None:
    """Report arguments that decode to invalid text; arguments that are not JSON are the model's own output and pass."""
    try:
        require_clean(json.loads(raw, parse_constant=str), f"{where}: arguments")
    except InvalidInput as error:
        refuse("arguments", error.message)
    except (ValueError, RecursionError):
        pass


def raise_invalid(_: str, sentence: str) -> None:
    """Raise on any invalid input (strict).

    Raises:
        InvalidInput: always, with the sentence.
    """
    raise InvalidInput(sentence)


def count_invalid(skip: Callable[[str], None], note: Callable[[str], None] = lambda _: None) -> OnInvalid:
    """Return a handler that counts skipped parts by kind and continues (tolerant)."""

    def refuse(kind: str, sentence: str) -> None:
        if kind in ("sealed", "content"):
            note(sentence if kind == "sealed" else _OBJECTS)
        elif kind.startswith(("part:", "role:", "field:")) or kind in {"message", "empty message", "part", "picture"}:
            skip(kind)

    return refuse
