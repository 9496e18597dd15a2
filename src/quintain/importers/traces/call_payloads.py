"""Parse inputs and outputs of model calls in the formats of tracing tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.importers.protocol import Report
from quintain.importers.transcripts.chat_messages import Turn
from quintain.importers.transcripts.message_parts import CALLS, part_kind
from quintain.importers.transcripts.responses_api import is_items
from quintain.importers.transcripts.vendor_messages import PARTS, parse_vendor_message, parse_vendor_messages
from quintain.importers.values import as_dict, as_list, as_text, nonblank, parse_json_text, parse_usage, to_text

_SYSTEM = ("system", "instructions", "system_instruction", "systemInstruction", "system_prompt")
_LISTS = ("messages", "input", "contents", "prompt", "prompts", "chat_history")
_ASKED = ("question", "query", "user_input", "task")
_CANDIDATES = ("choices", "candidates", "generations")
_ANSWERS = ("output", "text", "completion", "content", "output_text", "generated_text")
_ENVELOPES = {"role", "kwargs", "messages", "message", "tool_calls", "contents", "parts", *_CANDIDATES}


def input_turns(value: Any, report: Report) -> list[Turn]:
    """Return the turns of a call's input: a request, a list of messages, or a plain prompt."""
    if _is_names(parse_json_text(value)):
        return []
    value = _opened(value)
    if isinstance(value, str):
        return [Turn("user", value)] if value.strip() else []
    if isinstance(value, list):
        if value and isinstance(value[0], list) and not _is_pair(value[0]):
            report.skip("further member of a batch", len(value) - 1)
            return input_turns(value[0], report)
        return parse_vendor_messages(value, report)
    if not isinstance(value, dict):
        return []
    if _is_message(value):
        return _one(value, report)
    value = {**as_dict(value.get("config")), **value}  # Gemini's request keeps the system prompt there
    payload = next((value[key] for key in _LISTS if value.get(key)), None)
    if payload is None:
        payload = nonblank(*(value.get(key) for key in _ASKED)) or _only_text(value)
        return [Turn("user", payload)] if payload else []
    system = next((value[key] for key in _SYSTEM if value.get(key)), None)
    turns = input_turns(payload, report)
    if system is None or any(turn.actor == "system" for turn in turns):
        return turns
    instructions = system.get("parts") if isinstance(system, dict) else _opened(system)
    opening = parse_vendor_message({"role": "system", "content": instructions}, report)
    return [opening, *turns] if opening else turns


def output_turns(value: Any, report: Report, *, whole: bool = False) -> list[Turn]:
    """Return the turns of a call's output; of several candidates, the first.

    Args:
        value: A response, messages or text. A text or object of any other form is what the model wrote, as JSON.
        report: Counts skipped content.
        whole: This is what a run as a whole gave, so that the only text in an object of any form is the answer.
    """
    value = _opened(value)
    if isinstance(value, str):
        return [Turn("agent", value)] if value.strip() else []
    if isinstance(value, list):
        return _listed(value, report)
    if not isinstance(value, dict):
        return []
    if _is_message(value):
        return _one({**value, "role": value.get("role") or value.get("type") or "assistant"}, report)
    if "parts" in as_dict(value.get("content")):  # Gemini's answer without its list of candidates (ADK)
        return output_turns(value["content"], report)
    for key in _CANDIDATES:
        if isinstance(value.get(key), list):
            return _candidate(value[key], report)
    if isinstance(value.get("messages"), list):
        return parse_vendor_messages(value["messages"], report)
    for key in ("message", "output"):
        if isinstance(value.get(key), dict | list):
            return output_turns(value[key], report, whole=whole)
    if as_list(value.get("tool_calls")) or as_list(value.get("content")):
        return _one({**value, "role": "assistant"}, report)
    answer = nonblank(*(value.get(key) for key in _ANSWERS)) or (_only_text(value) if whole else to_text(value or None))
    return [Turn("agent", answer)] if answer else []


def model_of(value: Any) -> str | None:
    """Return the model named by a request or response, or by LangChain's record of one."""
    payload = as_dict(parse_json_text(value))
    metadata = [as_dict(message.get("response_metadata")) for message in _generated(payload)]
    places = [payload, *metadata, as_dict(payload.get("llm_output"))]
    return nonblank(*(place.get(key) for place in places for key in ("model", "model_name", "modelVersion")))


def payload_usage(value: Any) -> dict[str, int | None] | None:
    """Return the token counts of a response."""
    payload = as_dict(parse_json_text(value))
    output = as_dict(payload.get("llm_output"))
    found = [payload.get(key) for key in ("usage_metadata", "usage", "token_usage", "usageMetadata")]
    found += [output.get("token_usage"), output.get("usage")]
    return parse_usage(*found, *(message.get("usage_metadata") for message in _generated(payload)))


def _listed(value: list[Any], report: Report) -> list[Turn]:
    if (
        value
        and all(part_kind(item) in CALLS and "role" not in as_dict(item) for item in value)
        and not is_items(value)
    ):
        return _one({"role": "assistant", "content": value}, report)
    if value and isinstance(value[0], list) and not _is_pair(value[0]):
        return _candidate(value, report)
    if value and all(isinstance(item, str) for item in value):
        return [Turn("agent", "\n".join(value))]
    return parse_vendor_messages([{**item, "role": "assistant"} if _is_bare(item) else item for item in value], report)


def _candidate(candidates: list[Any], report: Report) -> list[Turn]:
    if not candidates:
        return []
    if len(candidates) > 1:
        report.skip("further candidate of a response", len(candidates) - 1)
    chosen = candidates[0]
    if isinstance(chosen, list):
        return _candidate(chosen, report)
    inner = as_dict(as_dict(chosen).get("message")) or as_dict(as_dict(chosen).get("content"))
    if not inner:
        return output_turns(as_dict(chosen).get("text", chosen), report)
    turn = parse_vendor_message(inner, report, "assistant")
    if turn is not None and not inner.get("role"):
        turn.actor = "agent"
    answer = as_text(as_dict(chosen).get("text"))
    if turn is not None and answer and not turn:
        turn.content = answer
    return [turn] if turn else []


def _one(message: dict[str, Any], report: Report) -> list[Turn]:
    turn = parse_vendor_message(message, report)
    return [turn] if turn is not None and turn else []


def _is_message(value: dict[str, Any]) -> bool:
    if "role" in value:
        return any(key in value for key in ("content", "parts", "tool_calls", "function_call"))
    return isinstance(value.get("kwargs"), dict) or (
        as_text(value.get("type")) in {"human", "ai", "system"} and "content" in value
    )


def _is_names(value: Any) -> bool:
    """Whether a value is `{"content": "role"}`: Python's `dict` of messages, which has the names of their fields alone."""
    return value in ({"content": "role"}, {"role": "content"})


def _is_bare(item: Any) -> bool:
    """Whether a value is a model message without role."""
    return isinstance(item, dict) and not item.get("role") and not item.get("type") and "kwargs" not in item


def _opened(value: Any) -> Any:
    """Decode JSON text that is messages, a request or a response; other JSON stays text, since models write JSON too."""
    known = parse_json_text(value)
    if known is value:
        return value
    members = known if isinstance(known, list) else [known]
    inner = [item for member in members for item in (member if isinstance(member, list) else [member])]
    enveloped = (
        as_dict(item).keys() & _ENVELOPES
        or part_kind(item) in PARTS
        or "parts" in as_dict(as_dict(item).get("content"))
        or as_dict(as_dict(item).get("raw")).keys() & _ENVELOPES  # LlamaIndex
        for item in inner
    )
    asks = isinstance(known, dict) and bool(known.keys() & {*_LISTS[:2], *_ASKED, "output"})
    is_request = isinstance(known, dict) and "prompt" in known and known.keys() <= {"prompt", "system", "messages"}
    return known if inner and (all(enveloped) or asks or is_request) else value


def _is_pair(value: list[Any]) -> bool:
    return len(value) == 2 and all(isinstance(item, str) for item in value)


def _only_text(value: dict[str, Any]) -> str:
    """Return the text if it is the only value of the payload; else the payload as JSON."""
    known = [item for item in value.values() if item not in (None, "", [], {})]
    if len(known) == 1 and isinstance(known[0], str):
        return known[0]
    return to_text(value) if known else ""


def _generated(payload: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the fields of the messages that LangChain generated."""
    for group in as_list(payload.get("generations")):
        for generation in group if isinstance(group, list) else [group]:
            message = as_dict(as_dict(generation).get("message"))
            yield as_dict(message.get("kwargs")) or message
