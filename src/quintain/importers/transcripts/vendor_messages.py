"""Parse messages as evaluation harnesses and tracing tools store them.

Covers OpenAI (chat and responses), Anthropic, Gemini, LangChain, the AI SDK, verifiers, inspect and OpenTelemetry.
Fields without a turn are left out: traces repeat the whole history at each call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quintain.importers.protocol import Report
from quintain.importers.transcripts.chat_messages import ACTORS, ROLES, Turn
from quintain.importers.transcripts.chat_messages import parse_message as chat_turn
from quintain.importers.transcripts.message_parts import CALLS, RESULTS, THOUGHTS, part_kind
from quintain.importers.transcripts.responses_api import is_items, items_to_messages
from quintain.importers.transcripts.tool_schemas import is_tool_schema
from quintain.importers.values import as_dict, as_list, as_name, nonblank, parse_json_text

PARTS = CALLS | RESULTS | THOUGHTS | {"text", "image_url", "message"}
"""Kinds that identify a JSON text as a list of message parts or items."""

_ROLES = {
    **ROLES,
    **{f"{author}Message{chunk}": role for author, role in (
        ("System", "system"), ("Human", "user"), ("AI", "assistant"), ("Tool", "tool"), ("Function", "tool")
    ) for chunk in ("", "Chunk")},
}  # fmt: skip
_INLINE = ("inlineImage", "inlineAudio", "inlineFile")
_STORED = ("driveImage", "driveAudio", "driveVideo", "driveDocument", "youtubeVideo")
CODE_RESULT = "codeExecutionResult"
CHUNKS = ("functionCall", "functionResponse", "executableCode", CODE_RESULT, *_INLINE, *_STORED)
"""Fields of a chunk of Google AI Studio that are not text."""
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
_OF_RESULTS = (
    "tool_call_id",
    "toolCallId",
    "call_id",
    "tool_use_id",
    "id",
    "error",
    "status",
    "is_error",
    "isError",
    "name",
)


def parse_vendor_messages(messages: Any, report: Report) -> list[Turn]:
    """Parse a list of messages; the items of one model response (thought, text, calls) become one turn."""
    held = as_list(parse_json_text(messages))
    held = list(items_to_messages(held)) if is_items(held) else held
    turns: list[Turn] = []
    called: set[str] = set()
    for message in held:
        if is_tool_schema(
            as_dict(message).get("content")
        ):  # Langfuse's record of LangChain lists the tools as messages
            continue
        role = as_dict(message).get("role")
        if isinstance(role, str) and role in called and role not in _ROLES:  # LangChain for JavaScript, by Langfuse
            message = {**message, "role": "tool", "name": role}
        if (turn := parse_vendor_message(message, report)) is not None:
            turns.append(turn)
            called.update(call["tool"] for call in turn.calls)
    return turns


def parse_vendor_message(message: Any, report: Report, role: str | None = None) -> Turn | None:
    """Parse one message of any vendor; None if it is not a message.

    Args:
        message: An object, its JSON, a pair of role and text, or text alone.
        report: Counts skipped content.
        role: Role of a message that does not state it.
    """
    message = _unwrapped(parse_json_text(message))
    if isinstance(message, str):
        return Turn(ACTORS.get(_ROLES.get(role or "user", "user"), "tool"), message)
    if isinstance(message, list) and len(message) == 2 and isinstance(message[0], str):
        message = {"role": message[0], "content": message[1]}
    if not isinstance(message, dict):
        return chat_turn(message, "message", report.refuse)
    kind, stated_role = nonblank(message.get("type")), nonblank(message.get("role"), role)
    if stated_role is None and part_kind(message) in CALLS | RESULTS | THOUGHTS:
        known = "tool" if part_kind(message) in RESULTS else "assistant"
        return chat_turn({"role": known, "content": [message]}, "message", report.refuse)
    stated_role = stated_role or kind or "user"
    if _ROLES.get(stated_role) == "tool" and _is_calls(message.get("content")):  # Koog's spans name them so
        stated_role = "assistant"
    turn = chat_turn(_chat_message(message, _ROLES.get(stated_role, "user")), "message", report.refuse)
    if turn is not None and (stated_role not in _ROLES or stated_role in {"developer", "bot"}):
        turn.fields["extra"] = {"role": stated_role[:80]}
    return turn


def words_of(message: Mapping[str, Any]) -> str | list[Any] | None:
    """Return what a message of a known role has under another name than `content`: text, or the parts of Gemini's API."""
    if message["role"] not in ROLES:
        return None
    parts = message.get("parts", message.get("contentParts"))
    texts = [text for text in (message.get("text"), message.get("message")) if isinstance(text, str)]
    text = max(texts, key=len, default=None)
    more = [_chunk(key, held) for key in CHUNKS if (held := as_dict(message.get(key)))]
    if more:
        return [*more, *(parts if isinstance(parts, list) else [{"type": "text", "text": text}] if text else [])]
    return parts if isinstance(parts, list) else text


def _chunk(key: str, held: dict[str, Any]) -> dict[str, Any]:
    """Return a field of a chunk as a part: a call, its result, or a file by its address or hash."""
    if key in _INLINE:
        return {"type": "image", "source": held}
    if key in _STORED:
        return {"type": "image", "uri": f"{key}:{nonblank(held.get('id'), held.get('uri')) or 'unknown'}"}
    if key == "executableCode":
        return {"functionCall": {"name": "code_execution", "args": held}}
    return {"functionResponse": held} if key == CODE_RESULT else {key: held}


def is_langchain_dump(message: Any) -> bool:
    """Whether a value is a message dumped by LangChain (`dumpd`, `message_to_dict` or `model_dump`)."""
    if not isinstance(message, dict):
        return False
    if message.get("lc") == 1 and isinstance(message.get("kwargs"), dict):
        path = as_list(message.get("id"))
        return bool(path) and isinstance(path[-1], str) and ("content" in message["kwargs"] and "Message" in path[-1])
    kind = nonblank(message.get("type"))
    if "role" in message or kind not in _ROLES:
        return False
    data = message.get("data")
    held = data if isinstance(data, dict) else message
    marks = {"response_metadata", "additional_kwargs", "tool_call_id"} & held.keys()
    plain = kind in ("human", "ai") or held.keys() == {"type", "content"}
    return "content" in held and ("Message" in kind or plain or bool(marks))


def chat_message(message: dict[str, Any]) -> dict[str, Any]:
    """Convert a LangChain message to a chat message with model and usage."""
    held = _unwrapped(message)
    stated_role = nonblank(held.get("role"), held.get("type")) or "user"
    chat = _chat_message(held, _ROLES.get(stated_role, "user"))
    if chat["role"] != "assistant":
        return chat
    about = as_dict(held.get("response_metadata"))
    model_fields = {"model": nonblank(about.get("model_name"), about.get("model")), "usage": held.get("usage_metadata")}
    return chat | {key: value for key, value in model_fields.items() if value}


def _chat_message(message: dict[str, Any], role: str) -> dict[str, Any]:
    text = message.get("text") if "role" in message else None  # BeeAI's agents
    body = message["parts"] if isinstance(message.get("parts"), list) else message.get("content", text)
    chat = {"role": role, "content": _parts_or_text(body)}
    if role == "tool":
        return chat | {key: message[key] for key in _OF_RESULTS if key in message}
    if role != "assistant":
        return chat
    more = as_dict(message.get("additional_kwargs"))
    chat |= {key: message.get(key) or more.get(key) for key in _THOUGHTS}
    # LangChain keeps the vendor's form, with the arguments as the model wrote them, beside its own.
    raw = as_list(parse_json_text(more.get("tool_calls")))
    calls = (
        raw or as_list(parse_json_text(message.get("tool_calls"))) or as_list(parse_json_text(message.get("toolCalls")))
    )
    calls = [*calls, *(() if raw else as_list(message.get("invalid_tool_calls")))]
    legacy = as_dict(message.get("function_call")) or as_dict(more.get("function_call"))
    legacy = legacy if not calls and nonblank(legacy.get("name")) else {}
    return chat | {"tool_calls": calls, "function_call": legacy, "refusal": message.get("refusal")}


def _parts_or_text(body: Any) -> Any:
    """Parse a list of parts that a tracer stored as JSON text; other JSON is message text."""
    parts = parse_json_text(body) if isinstance(body, str) and body.startswith("[{") and '"type"' in body else body
    return parts if as_list(parts) and all(part_kind(part) in PARTS for part in as_list(parts)) else body


def _is_calls(body: Any) -> bool:
    """Whether content is only calls, as a list or its JSON text."""
    parts = as_list(_parts_or_text(body))
    return bool(parts) and all(part_kind(part) in CALLS for part in parts)


def _unwrapped(message: Any) -> Any:
    """Unwrap a LangChain constructor, an envelope or a `message` wrapper."""
    for _ in range(3):
        if not isinstance(message, dict):
            break
        path, inner = as_list(message.get("id")), as_dict(message.get("kwargs"))
        if path and inner and isinstance(path[-1], str):
            role = as_name(inner.get("role")) if path[-1].startswith("ChatMessage") else path[-1]
            message = {**inner, "role": role or "user", "type": None}
        elif isinstance(message.get("data"), dict) and nonblank(message.get("type")) in _ROLES:
            message = {**message["data"], "role": message["type"], "type": None}
        elif isinstance(message.get("message"), dict) and not message.get("role"):
            message = message["message"]
        else:
            break
    return message
