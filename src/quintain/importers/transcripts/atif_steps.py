"""Map one step from ATIF to ours and back, as far as both define the fields; the rest is added as an overlay.

Both sides are JSON: ours as `Step` is dumped without defaults, ATIF's without null keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from mimetypes import guess_type
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.transcripts.transcript import make_call
from quintain.importers.values import parse_time

OnFault = Callable[[str], None]
"""Called with a description of malformed input: raises (strict) or returns to continue with a guess (lenient)."""

RESERVED = ("atif", "quintain")
"""Keys of `extra` with fields that only one side defines; never mapped directly."""

_ACTORS = {"system": "system", "user": "user", "agent": "agent", "assistant": "agent", "human": "user"}
_AGENT_FIELDS = ("tool_calls", "reasoning_content", "model_name", "metrics")
"""Fields that only agent steps have."""
_FREE = frozenset({"arguments", "extra", "tool_definitions"})
"""Keys with arbitrary values, in which null is meaningful."""


def without_nulls(value: Any) -> Any:
    """Remove keys whose value is null, except where null is meaningful."""
    if isinstance(value, Mapping):
        return {k: v if k in _FREE else without_nulls(v) for k, v in value.items() if v is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def step_to_atif(step: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Map our step to ATIF."""
    written: dict[str, Any] = {"step_id": index + 1}
    if step.get("timestamp"):
        written["timestamp"] = step["timestamp"]
    written |= {"source": step["actor"], "message": _message_to_atif(step.get("message", ""))}
    if step["actor"] == "agent":
        written |= _agent_fields_to_atif(step, index)
    if step.get("observations"):
        called = {call.get("tool_call_id") for call in written.get("tool_calls", ())}
        written["observation"] = {
            "results": [_result_to_atif(observation, called) for observation in step["observations"]]
        }
    if step.get("copied_context"):
        written["is_copied_context"] = True
    if extra := {key: value for key, value in step.get("extra", {}).items() if key not in RESERVED}:
        written["extra"] = extra
    return written


def step_from_atif(step: Mapping[str, Any], index: int, fault: OnFault) -> dict[str, Any]:
    """Map an ATIF step without null keys to ours."""
    where = f"steps[{index}]"
    actor = _actor(step, where, fault)
    found: dict[str, Any] = {"actor": actor}
    if (message := _message_from_atif(step.get("message", ""), f"{where}.message", fault)) != "":
        found["message"] = message
    if (when := parse_time(step.get("timestamp"))) is not None:
        found["timestamp"] = when.isoformat().replace("+00:00", "Z")
    if actor == "agent":
        found |= _agent_fields_from_atif(step, where, fault)
    if observations := _observations(step.get("observation"), where, fault):
        found["observations"] = observations
    if step.get("is_copied_context") is True:
        found["copied_context"] = True
    extra = step.get("extra")
    if isinstance(extra, Mapping) and (kept := {key: extra[key] for key in extra if key not in RESERVED}):
        found["extra"] = kept
    return found


def _agent_fields_to_atif(step: Mapping[str, Any], index: int) -> dict[str, Any]:
    written: dict[str, Any] = {}
    if step.get("model"):
        written["model_name"] = step["model"]
    if step.get("thought"):
        written["reasoning_content"] = step["thought"]
    if step.get("actions"):
        written["tool_calls"] = [
            {
                "tool_call_id": call.get("call_id") or f"call_{index + 1}_{n}",
                "function_name": call["tool"],
                "arguments": call.get("args") or {},
            }
            for n, call in enumerate(step["actions"], 1)
        ]
    usage, sampled = step.get("usage", {}), step.get("sampled", {})
    metrics = {
        "prompt_tokens": usage.get("input_tokens"),
        "completion_tokens": usage.get("output_tokens"),
        "completion_token_ids": sampled.get("token_ids"),
        "logprobs": sampled.get("logprobs"),
        "extra": {"tokenizer": sampled["tokenizer"]} if sampled else None,
    }
    if known := {key: value for key, value in metrics.items() if value is not None}:
        written["metrics"] = known
    return written


def _agent_fields_from_atif(step: Mapping[str, Any], where: str, fault: OnFault) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for ours, theirs in (("model", "model_name"), ("thought", "reasoning_content")):
        value = step.get(theirs)
        if isinstance(value, str) and value:
            found[ours] = value
        elif value is not None and not isinstance(value, str):
            fault(f"expected {where}.{theirs} to be text, got {type(value).__name__}")
    calls = step.get("tool_calls", [])
    if not isinstance(calls, list):
        fault(f"expected {where}.tool_calls to be a list, got {type(calls).__name__}")
        calls = []
    if actions := [
        parsed for n, call in enumerate(calls) if (parsed := _call(call, f"{where}.tool_calls[{n}]", fault))
    ]:
        found["actions"] = actions
    metrics = step.get("metrics", {})
    if not isinstance(metrics, Mapping):
        fault(f"expected {where}.metrics to be an object, got {type(metrics).__name__}")
        metrics = {}
    return found | _metrics(metrics)


def _actor(step: Mapping[str, Any], where: str, fault: OnFault) -> str:
    source = step.get("source")
    if source not in ("system", "user", "agent"):
        fault(f"{where}.source is {source!r:.40}; valid: system, user, agent")
    if isinstance(source, str) and source in _ACTORS:
        return _ACTORS[source]
    return "agent" if any(key in step for key in _AGENT_FIELDS) else "user"


def _call(call: Any, where: str, fault: OnFault) -> dict[str, Any] | None:
    name = call.get("function_name") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(name, str) or not name:
        fault(f"{where} must be an object with `function_name`")
        return None
    arguments = call.get("arguments")
    if not isinstance(arguments, Mapping):
        fault(f"expected {where}.arguments to be an object, got {type(arguments).__name__}")
    parsed = make_call(name, arguments, call.get("tool_call_id"))
    return {key: value for key, value in parsed.items() if value is not None}


def _observations(observation: Any, where: str, fault: OnFault) -> list[dict[str, Any]]:
    """Return results with content or a call id; a result that only references a subagent's run is left out."""
    results = observation.get("results", []) if isinstance(observation, Mapping) else []
    if (observation is not None and not isinstance(observation, Mapping)) or not isinstance(results, list):
        fault(f"{where}.observation must be an object with a list of `results`")
        return []
    found = []
    for n, result in enumerate(results):
        if not isinstance(result, Mapping):
            fault(f"expected {where}.observation.results[{n}] to be an object, got {type(result).__name__}")
            continue
        content = _message_from_atif(result.get("content", ""), f"{where}.observation.results[{n}].content", fault)
        call_id = result.get("source_call_id")
        entry: dict[str, Any] = {"content": content} if content != "" else {}
        if isinstance(call_id, str) and call_id:
            entry["call_id"] = call_id
        extra = result.get("extra")
        if isinstance(extra, Mapping) and extra.get("is_error") is True:
            entry["is_error"] = True
        if entry or "content" in result:
            found.append(entry)
    return found


def _result_to_atif(observation: Mapping[str, Any], called: set[Any]) -> dict[str, Any]:
    written: dict[str, Any] = {}
    # ATIF lets a result answer only the calls of its own step.
    if observation.get("call_id") in called:
        written["source_call_id"] = observation["call_id"]
    written["content"] = _message_to_atif(observation.get("content", ""))
    if observation.get("is_error"):
        written["extra"] = {"is_error": True}
    return written


def _metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return usage, and the sampled token ids if their tokenizer is known."""
    found: dict[str, Any] = {}
    usage = {"input_tokens": metrics.get("prompt_tokens"), "output_tokens": metrics.get("completion_tokens")}
    if known := {k: n for k, n in usage.items() if isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 2**53}:
        found["usage"] = known
    ids, logprobs, extra = metrics.get("completion_token_ids"), metrics.get("logprobs"), metrics.get("extra")
    tokenizer = extra.get("tokenizer") if isinstance(extra, Mapping) else None
    if isinstance(tokenizer, str) and _all_of(ids, int) and (logprobs is None or _all_of(logprobs, int | float)):
        sampled = {"token_ids": ids, "tokenizer": tokenizer}
        found["sampled"] = sampled if logprobs is None else {**sampled, "logprobs": logprobs}
    return found


def _all_of(values: Any, kind: Any) -> bool:
    return isinstance(values, list) and all(isinstance(v, kind) and not isinstance(v, bool) for v in values)


def _message_to_atif(message: Any) -> Any:
    if isinstance(message, str):
        return message
    return [
        {"type": "text", "text": part["text"]}
        if "text" in part
        else {"type": "image", "source": {"media_type": _media_type(part), "path": part["uri"]}}
        for part in message
    ]


def _media_type(part: Mapping[str, Any]) -> str:
    """Return the required ATIF media type: as stated, else by file name, else PNG."""
    known = ("image/png", "image/jpeg", "image/gif", "image/webp")
    return next((kind for kind in (part.get("media_type"), guess_type(part["uri"])[0]) if kind in known), known[0])


def _message_from_atif(message: Any, where: str, fault: OnFault) -> Any:
    if isinstance(message, str):
        return message
    if not isinstance(message, list):
        fault(f"expected {where} to be text or a list of parts, got {type(message).__name__}")
        return ""
    parts = []
    for n, part in enumerate(message):
        source = part.get("source") if isinstance(part, Mapping) else None
        if isinstance(part, Mapping) and isinstance(part.get("text"), str):
            parts.append({"text": part["text"]})
        elif isinstance(source, Mapping) and part.get("type") == "image" and isinstance(source.get("path"), str):
            media_type = source.get("media_type")
            stated = {"media_type": media_type} if isinstance(media_type, str) else {}
            parts.append({"uri": source["path"], **stated})
        elif not isinstance(source, Mapping):
            fault(f"{where}[{n}] must be a part with `text` or with a `source`")
    return parts


def raise_fault(sentence: str) -> None:
    """Report malformed input as an error (strict).

    Raises:
        InvalidInput: always.
    """
    raise InvalidInput(sentence)


def ignore_fault(_: str) -> None:
    """Ignore malformed input (lenient): the overlay keeps it unchanged."""
