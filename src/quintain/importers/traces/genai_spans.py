"""Extract model and tool calls from spans, by the conventions of common instrumentations.

Read are OpenTelemetry's GenAI conventions (messages as attributes or events, structured or as JSON texts, and the older
`gen_ai.prompt.N`, as Traceloop still writes them), OpenInference, and the AI SDK.
"""

from __future__ import annotations

from typing import Any

from quintain.importers.protocol import Report
from quintain.importers.traces.call_payloads import input_turns, output_turns
from quintain.importers.traces.conversations import ModelCall, ToolCall
from quintain.importers.traces.otel_spans import Event, Span
from quintain.importers.transcripts.chat_messages import Turn
from quintain.importers.transcripts.message_parts import Result, visible_content
from quintain.importers.transcripts.message_parts import part_kind as kind_of_part
from quintain.importers.transcripts.tool_schemas import offered_tools, parse_tool_schemas
from quintain.importers.transcripts.transcript import make_call
from quintain.importers.transcripts.vendor_messages import parse_vendor_message, parse_vendor_messages
from quintain.importers.values import (
    as_count,
    as_dict,
    as_list,
    as_name,
    as_text,
    dicts_in,
    nonblank,
    parse_json_text,
    parse_usage,
    score_fields,
)

_MODEL_KINDS = {"chat", "text_completion", "generate_content", "completion", "response", "LLM"}
_TOOL_KINDS = {"execute_tool", "tool", "TOOL"}
_LOOKUP_KINDS = {"embeddings", "retrieval", "EMBEDDING", "RETRIEVER", "RERANKER"}
_CONTENT = ("gen_ai.prompt", "gen_ai.completion", "gen_ai.input.messages", "llm.input_messages", "llm.prompts")
_ARGUMENTS = (
    *("gen_ai.tool.call.arguments", "ai.toolCall.args", "tool.parameters", "input.value", "traceloop.entity.input"),
    "gen_ai.prompt",
)
_ANSWERS = (
    *("gen_ai.tool.call.result", "ai.toolCall.result", "output.value", "traceloop.entity.output"),
    "gen_ai.completion",
)
_EVENTS = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
_OF_MODEL_CALLS = {
    *_EVENTS,
    "gen_ai.choice",
    "gen_ai.content.prompt",
    "gen_ai.content.completion",
    "gen_ai.client.inference.operation.details",
}
"""Events that occur only in spans of model calls."""
_ROLE_KEYS = ("role", "content", "parts", "tool_calls", "id", "tool_call_id", "name")


def kind_of(span: Span) -> str:
    """Return `model`, `tool`, `lookup` (of documents or vectors), or `other` for agents, chains and web requests."""
    operation = span.first(
        "gen_ai.operation.name", "openinference.span.kind", "traceloop.span.kind", "llm.request.type"
    )
    if operation in _TOOL_KINDS or span.name == "ai.toolCall":
        return "tool"
    if operation in _MODEL_KINDS or span.name.endswith((".doGenerate", ".doStream")):
        return "model"
    if operation is None and any(event.name in _OF_MODEL_CALLS for event in span.events):
        return "model"
    if operation in _LOOKUP_KINDS:
        return "lookup"
    has_content = any(key.startswith(_CONTENT) for key in span.attributes)
    return "model" if operation is None and has_content and not span.name.startswith("invoke_agent") else "other"


def model_call(span: Span, report: Report) -> ModelCall | None:
    """Return the model call of a span; None if its content was not recorded."""
    inputs, outputs = _inputs(span, report), _outputs(span, report)
    if not inputs and not outputs:
        return None
    reason = nonblank(*as_list(span.get("gen_ai.response.finish_reasons")), span.first("ai.response.finishReason"))
    fields = {
        "model": span.first(
            "gen_ai.response.model", "gen_ai.request.model", "llm.model_name", "ai.response.model", "ai.model.id"
        ),
        "usage": _usage(span),
        "extra": {"finish_reason": reason[:80]} if reason else None,
    }
    return ModelCall(inputs, outputs, span.start, fields, span_tools(span), span.error)


def tool_call(span: Span) -> ToolCall | None:
    """Return the tool call of a span; None if it does not name the tool."""
    tool = span_tool(span) or span.name.removeprefix("execute_tool ").removesuffix(".tool")
    if not tool:
        return None
    arguments = span.get(*_ARGUMENTS)
    result = span.first(*_ANSWERS) or span.get(*_ANSWERS)
    message = next((e.fields for e in span.events if e.name == "gen_ai.tool.message"), {})
    answered = next((e.fields for e in span.events if e.name == "gen_ai.choice"), None)
    if answered is not None:  # Strands stores the arguments where others store the result
        arguments = message.get("content") if arguments is None else arguments
        message = {"id": message.get("id"), "content": _content(answered.get("message"))}
    result = result if result is not None else message.get("content")
    call_id = span_call_id(span) or as_name(message.get("id"))
    answer = visible_content(result) or (span.error or "")
    return ToolCall(make_call(tool, arguments, call_id), Result(answer, call_id, span.error is not None), span.start)


def span_tool(span: Span) -> str | None:
    """Return the tool that a span names."""
    return span.first("gen_ai.tool.name", "tool.name", "ai.toolCall.name", "traceloop.entity.name")


def span_call_id(span: Span) -> str | None:
    """Return the id of the call whose tool a span ran."""
    return span.first("gen_ai.tool.call.id", "ai.toolCall.id", "tool_call.id", "tool.id")


def agent_name(span: Span) -> str | None:
    """Return the name of the agent whose run a span is."""
    return span.first("gen_ai.agent.name", "agent.name", "traceloop.workflow.name")


def conversation(span: Span) -> str | None:
    """Return the id of a span's conversation, which may cover several traces."""
    return span.first("gen_ai.conversation.id")


def evaluations(span: Span) -> dict[str, float]:
    """Return evaluation scores (`gen_ai.evaluation.result`)."""
    events = [event.fields for event in span.events if event.name == "gen_ai.evaluation.result"]
    scores = {as_name(f.get("gen_ai.evaluation.name")): f.get("gen_ai.evaluation.score.value") for f in events}
    return score_fields({name: score for name, score in scores.items() if name})


def span_inputs(span: Span, report: Report) -> list[Turn]:
    """Return the input messages whose fields are attributes of their own (Traceloop, OpenInference)."""
    prefixes = ("gen_ai.prompt", "llm.input_messages")
    return next((turns for p in prefixes if (turns := parse_vendor_messages(_indexed(span, p), report))), [])


def _inputs(span: Span, report: Report) -> list[Turn]:
    turns: list[Turn] = []
    messages = parse_json_text(_attribute(span, "gen_ai.input.messages"))
    if messages is not None:
        turns = input_turns(messages, report)
    else:
        turns = [turn for event in span.events if (turn := _event_turn(event, report))]
    turns = turns or span_inputs(span, report)
    for key in ("gen_ai.prompt", "ai.prompt.messages", "ai.prompt", "input.value", "llm.prompts"):
        turns = turns or input_turns(_attribute(span, key), report)
    return with_instructions(span, turns, report)


def with_instructions(span: Span, turns: list[Turn], report: Report) -> list[Turn]:
    """Return input turns with the system instructions of the span before them, where they have none."""
    instructions = parse_json_text(_attribute(span, "gen_ai.system_instructions"))
    if instructions and not any(turn.actor == "system" for turn in turns):
        system = parse_vendor_message({"role": "system", "content": instructions}, report)
        turns = [system, *turns] if system else turns
    return turns


def _outputs(span: Span, report: Report) -> list[Turn]:
    messages = parse_json_text(_attribute(span, "gen_ai.output.messages"))
    turns = output_turns(messages, report) if messages is not None else []
    choices = [event.fields for event in span.events if event.name == "gen_ai.choice"]
    if not turns and choices:
        choice = choices[0].get("message")  # an object or, as Strands writes it, the content alone
        message = {**{key: choices[0].get(key) for key in _ROLE_KEYS}, **as_dict(parse_json_text(choice))}
        message |= {} if choice is None or isinstance(parse_json_text(choice), dict) else {"content": _content(choice)}
        turns = output_turns({**message, "role": "assistant", "id": None}, report)
    for prefix in ("gen_ai.completion", "llm.output_messages"):
        answers = [{"role": "assistant", **answer} for answer in _indexed(span, prefix)]
        turns = turns or parse_vendor_messages(answers, report)
    content = span.first("ai.response.text", "ai.result.text")
    calls = span.get("ai.response.toolCalls", "ai.result.toolCalls")
    if not turns and (content or calls):
        turns = output_turns({"role": "assistant", "content": content, "tool_calls": calls}, report)
    for key in ("gen_ai.completion", "llm.responses", "output.value"):
        if span.error is None or key != "output.value":  # of a failed call it is the exception
            turns = turns or output_turns(_attribute(span, key), report)
    if messages is not None and len(turns) > 1 and all(turn.actor == "agent" for turn in turns):
        report.skip("further candidate of a response", len(turns) - 1)
        turns = turns[:1]
    return turns


def _attribute(span: Span, key: str) -> Any:
    """Return a raw attribute of the span or, as is common for content, of one of its events."""
    known = span.attributes.get(key)
    if known is not None:
        return known
    return next((event.fields[key] for event in span.events if event.fields.get(key) is not None), None)


def _event_turn(event: Event, report: Report) -> Turn | None:
    role = _EVENTS.get(event.name)
    if role is None:
        return None
    message = {key: event.fields[key] for key in _ROLE_KEYS if event.fields.get(key) is not None}
    message |= {"content": _content(message["content"])} if "content" in message else {}
    if role != "tool":
        message.pop("id", None)
    return parse_vendor_message({**message, "role": role}, report)


def _content(value: Any) -> Any:
    """Decode event content that is a JSON list of parts; other text stays unchanged."""
    parts = as_list(parse_json_text(value))
    is_parts = parts and all(kind_of_part(part) or as_text(as_dict(part).get("text")) for part in parts)
    return parts if is_parts else value


def _indexed(span: Span, prefix: str) -> list[dict[str, Any]]:
    """Return messages whose fields are separate attributes: `gen_ai.prompt.0.role`, ..."""
    messages = []
    for member in dicts_in(span.below(prefix)):
        message = as_dict(member.get("message")) or member
        parts = dicts_in(message.get("contents"))
        contents = [as_dict(part.get("message_content")) or part for part in parts]
        about = next((known for part in parts if (known := as_dict(part.get("message")))), {})  # BeeAI's call ids
        messages.append({**about, **message, "content": contents or message.get("content")})
    return messages


def span_tools(span: Span) -> list[dict[str, Any]]:
    """Return the schemas of the tools that a span offers the model."""
    request = as_dict(parse_json_text(_attribute(span, "model_request_parameters")))  # Pydantic AI
    return (
        parse_tool_schemas(_attribute(span, "gen_ai.tool.definitions"))
        or parse_tool_schemas(span.get("ai.prompt.tools"))
        or parse_tool_schemas([as_dict(t.get("tool")) or t for t in dicts_in(span.below("llm.tools"))])
        or parse_tool_schemas(span.below("llm.request.functions"))
        or parse_tool_schemas([*as_list(request.get("function_tools")), *as_list(request.get("output_tools"))])
        or offered_tools(_attribute(span, "gen_ai.prompt"), _attribute(span, "input.value"))
    )


def _usage(span: Span) -> dict[str, int | None] | None:
    def known(*keys: str) -> int | None:
        return next((n for key in keys if (n := as_count(span.attributes.get(key))) is not None), None)

    input_tokens = known(
        "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt", "ai.usage.promptTokens"
    )
    output_tokens = known(
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.completion_tokens",
        "llm.token_count.completion",
        "ai.usage.completionTokens",
    )
    return parse_usage({"input_tokens": input_tokens, "output_tokens": output_tokens})
