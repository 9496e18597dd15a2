"""Readers of tracing tools: OpenTelemetry, LangSmith, Langfuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_logs import outline, read, survives, write
from quintain.errors import InvalidInput

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}
EXPECTED = [
    "system: You are a clerk.",
    "user: Where is order 7?",
    "agent:  > get_order(c1) < shipped(c1)",
    "agent: It has shipped.",
]
"""What every flavour of the conversation below is: two model calls, the second with the whole history before it."""


# --- OpenTelemetry ---------------------------------------------------------------------------------------------------


def covered(value: Any) -> dict[str, Any]:
    """A value as OTLP writes it."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [covered(item) for item in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": [{"key": k, "value": covered(v)} for k, v in value.items()]}}
    return {"stringValue": value}


def attributes(**fields: Any) -> list[dict[str, Any]]:
    return [{"key": key, "value": covered(value)} for key, value in fields.items()]


def span(
    n: int, name: str, fields: dict[str, Any], *, trace: str = "t1", parent: str = "s0", **more: Any
) -> dict[str, Any]:
    """A span that began `n` seconds after a fixed moment."""
    start = str(1_760_000_000_000_000_000 + n * 10**9)
    return {
        "traceId": trace,
        "spanId": f"s{n}",
        "parentSpanId": parent if n else "",
        "name": name,
        "startTimeUnixNano": start,
        "attributes": attributes(**fields),
        **more,
    }


def otlp(*spans: dict[str, Any]) -> dict[str, Any]:
    resource = {"attributes": attributes(**{"service.name": "shop", "service.version": "1.2"})}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "x"}, "spans": list(spans)}]}]}


USER = {"role": "user", "parts": [{"type": "text", "content": "Where is order 7?"}]}
ASKED = {
    "role": "assistant",
    "parts": [
        {"type": "reasoning", "content": "look it up"},
        {"type": "tool_call", "id": "c1", "name": "get_order", "arguments": {"id": 7}},
    ],
    "finish_reason": "tool_call",
}
TOLD = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "shipped"}]}
SAID = {"role": "assistant", "parts": [{"type": "text", "content": "It has shipped."}], "finish_reason": "stop"}
SYSTEM = [{"type": "text", "content": "You are a clerk."}]
TOOLS = [{"type": "function", "name": "get_order", "description": "An order", "parameters": SCHEMA}]


def chat(inputs: Any, outputs: Any, tokens: int, *, as_text: bool = True, **more: Any) -> dict[str, Any]:
    def shown(value: Any) -> Any:
        return json.dumps(value) if as_text else value

    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.response.model": "m-2026",
        "gen_ai.system_instructions": shown(SYSTEM),
        "gen_ai.tool.definitions": shown(TOOLS),
        "gen_ai.input.messages": shown(inputs),
        "gen_ai.output.messages": shown(outputs),
        "gen_ai.usage.input_tokens": tokens,
        "gen_ai.usage.output_tokens": 5,
        **more,
    }


def genai(*, as_text: bool, told: dict[str, Any] = TOLD) -> list[dict[str, Any]]:
    """An agent's span, two model calls, and the tool between them."""
    bare = {**ASKED, "parts": ASKED["parts"][1:]}
    return [
        span(0, "invoke_agent shop", {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk"}),
        span(1, "chat m", chat([USER], [ASKED], 10, as_text=as_text)),
        span(
            2,
            "execute_tool get_order",
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "get_order",
                "gen_ai.tool.call.id": "c1",
                "gen_ai.tool.call.result": "shipped",
            },
        ),
        span(3, "chat m", chat([USER, bare, told], [SAID], 20, as_text=as_text)),
    ]


def openinference() -> list[dict[str, Any]]:
    def message(kind: str, n: int, role: str, content: str | None, **more: Any) -> dict[str, Any]:
        prefix = f"llm.{kind}_messages.{n}.message"
        fields = {"role": role, "content": content, **more}
        return {f"{prefix}.{key}": value for key, value in fields.items() if value is not None}

    call = {
        "tool_calls.0.tool_call.id": "c1",
        "tool_calls.0.tool_call.function.name": "get_order",
        "tool_calls.0.tool_call.function.arguments": '{"id": 7}',
    }
    begin = message("input", 0, "system", "You are a clerk.") | message(
        "input",
        1,
        "user",
        None,
        **{"contents.0.message_content.type": "text", "contents.0.message_content.text": "Where is order 7?"},
    )
    base = {
        "openinference.span.kind": "LLM",
        "llm.model_name": "m-2026",
        "llm.token_count.completion": 5,
        "llm.tools.0.tool.json_schema": json.dumps(
            {"type": "function", "function": {"name": "get_order", "description": "An order", "parameters": SCHEMA}}
        ),
    }
    later = message("input", 2, "assistant", None, **call) | message("input", 3, "tool", "shipped", tool_call_id="c1")
    return [
        span(1, "llm", base | begin | message("output", 0, "assistant", None, **call) | {"llm.token_count.prompt": 10}),
        span(
            3,
            "llm",
            base
            | begin
            | later
            | message("output", 0, "assistant", "It has shipped.")
            | {"llm.token_count.prompt": 20},
        ),
    ]


def traceloop() -> list[dict[str, Any]]:
    call = {"tool_calls.0.id": "c1", "tool_calls.0.name": "get_order", "tool_calls.0.arguments": '{"id": 7}'}

    def prompt(*messages: dict[str, Any]) -> dict[str, Any]:
        return {
            f"gen_ai.prompt.{n}.{key}": value for n, message in enumerate(messages) for key, value in message.items()
        }

    begin = ({"role": "system", "content": "You are a clerk."}, {"role": "user", "content": "Where is order 7?"})
    base = {
        "llm.request.type": "chat",
        "gen_ai.response.model": "m-2026",
        "gen_ai.usage.completion_tokens": 5,
        "llm.request.functions.0.name": "get_order",
        "llm.request.functions.0.description": "An order",
        "llm.request.functions.0.parameters": json.dumps(SCHEMA),
    }
    first = {
        f"gen_ai.completion.0.{key}": value
        for key, value in {"role": "assistant", "finish_reason": "tool_calls", **call}.items()
    }
    later = prompt(*begin, {"role": "assistant", **call}, {"role": "tool", "content": "shipped", "tool_call_id": "c1"})
    last = {"gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "It has shipped."}
    return [
        span(1, "openai.chat", base | prompt(*begin) | first | {"gen_ai.usage.prompt_tokens": 10}),
        span(3, "openai.chat", base | later | last | {"gen_ai.usage.prompt_tokens": 20}),
    ]


def span_events() -> list[dict[str, Any]]:
    call = [{"id": "c1", "type": "function", "function": {"name": "get_order", "arguments": '{"id": 7}'}}]

    def event(name: str, **fields: Any) -> dict[str, Any]:
        return {"name": name, "attributes": attributes(**fields)}

    begin = [
        event("gen_ai.system.message", content="You are a clerk."),
        event("gen_ai.user.message", content="Where is order 7?"),
    ]
    later = [
        event("gen_ai.assistant.message", tool_calls=call),
        event("gen_ai.tool.message", id="c1", content="shipped"),
    ]
    base = {
        "gen_ai.operation.name": "chat",
        "gen_ai.response.model": "m-2026",
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.tool.definitions": json.dumps(TOOLS),
    }
    asked = event(
        "gen_ai.choice", index=0, finish_reason="tool_calls", message={"role": "assistant", "tool_calls": call}
    )
    said = event("gen_ai.choice", index=0, message={"content": "It has shipped."})
    return [
        span(1, "chat", base | {"gen_ai.usage.input_tokens": 10}, events=[*begin, asked]),
        span(3, "chat", base | {"gen_ai.usage.input_tokens": 20}, events=[*begin, *later, said]),
    ]


def ai_sdk() -> list[dict[str, Any]]:
    begin = [
        {"role": "system", "content": "You are a clerk."},
        {"role": "user", "content": [{"type": "text", "text": "Where is order 7?"}]},
    ]
    call = {"type": "tool-call", "toolCallId": "c1", "toolName": "get_order", "args": {"id": 7}}
    result = {
        "type": "tool-result",
        "toolCallId": "c1",
        "toolName": "get_order",
        "output": {"type": "text", "value": "shipped"},
    }
    base = {
        "ai.model.id": "m",
        "ai.response.model": "m-2026",
        "ai.usage.completionTokens": 5,
        "ai.prompt.tools": [
            json.dumps({"type": "function", "name": "get_order", "description": "An order", "inputSchema": SCHEMA})
        ],
    }
    later = [*begin, {"role": "assistant", "content": [call]}, {"role": "tool", "content": [result]}]
    return [
        span(
            0, "ai.generateText", {"ai.prompt": json.dumps({"messages": begin}), "ai.response.text": "It has shipped."}
        ),
        span(
            1,
            "ai.generateText.doGenerate",
            base
            | {
                "ai.prompt.messages": json.dumps(begin),
                "ai.response.toolCalls": json.dumps(
                    [{"toolCallId": "c1", "toolName": "get_order", "args": '{"id": 7}'}]
                ),
                "ai.usage.promptTokens": 10,
            },
        ),
        span(
            2,
            "ai.toolCall",
            {
                "ai.toolCall.name": "get_order",
                "ai.toolCall.id": "c1",
                "ai.toolCall.args": '{"id": 7}',
                "ai.toolCall.result": '"shipped"',
            },
        ),
        span(
            3,
            "ai.generateText.doGenerate",
            base
            | {
                "ai.prompt.messages": json.dumps(later),
                "ai.response.text": "It has shipped.",
                "ai.usage.promptTokens": 20,
            },
        ),
    ]


def dumped(row: dict[str, Any]) -> dict[str, Any]:
    """A span as an SDK's console exporter writes it."""
    plain = {pair["key"]: json.loads(json.dumps(next(iter(pair["value"].values())))) for pair in row["attributes"]}
    context = {"trace_id": row["traceId"], "span_id": row["spanId"]}
    start = f"2026-01-01T00:00:0{row['spanId'][1:]}Z"
    return {
        "name": row["name"],
        "context": context,
        "parent_id": row["parentSpanId"] or None,
        "start_time": start,
        "status": {"status_code": "UNSET"},
        "attributes": plain,
    }


FLAVOURS: dict[str, list[dict[str, Any]]] = {
    "messages as JSON texts": genai(as_text=True),
    "structured messages": genai(as_text=False),
    "result instead of response": genai(
        as_text=True, told={"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "result": "shipped"}]}
    ),
    "OpenInference": openinference(),
    "Traceloop": traceloop(),
    "span events": span_events(),
    "AI SDK": ai_sdk(),
}


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_every_convention_of_spans_gives_the_same_conversation(tmp_path: Path, flavour: str) -> None:
    spans = FLAVOURS[flavour]
    got = read(write(tmp_path / "t.json", otlp(*reversed(spans))), tmp_path)
    assert got.format == "otel"
    run = got.only
    assert outline(run) == EXPECTED
    first, last = run.agent_steps
    assert (first.model, last.model) == ("m-2026", "m-2026")
    assert [s.usage.model_dump() for s in run.agent_steps if s.usage] == [
        {"input_tokens": 10, "output_tokens": 5},
        {"input_tokens": 20, "output_tokens": 5},
    ]
    assert [s.timestamp.timestamp() for s in run.agent_steps if s.timestamp] == [1_760_000_001, 1_760_000_003]
    assert (first.actions[0].call_id, first.actions[0].args) == ("c1", {"id": 7})
    assert run.tools[0]["function"] == {"name": "get_order", "description": "An order", "parameters": SCHEMA}
    assert (run.session_id, run.outcome.status, run.agent.version) == ("t1", "unknown", "1.2")
    assert not any(step.copied_context for step in run.steps)


def test_spans_come_as_lines_arrays_batches_and_dumps(tmp_path: Path) -> None:
    spans = genai(as_text=True)
    tempo = {"batches": [{"resource": {}, "scopeSpans": [{"spans": spans}]}]}
    files = {
        "lines.jsonl": [otlp(one) for one in spans],
        "array.json": [otlp(*spans[:2]), otlp(*spans[2:])],
        "tempo.json": tempo,
        "dump.jsonl": [dumped(one) for one in spans],
    }
    for name, value in files.items():
        got = read(write(tmp_path / name, value), tmp_path)
        assert got.format == "otel", name
        assert outline(got.only) == EXPECTED, name
        assert got.only.agent_steps[0].thought == "look it up", "the answer is taken from its own span"
        assert got.only.agent.name == "clerk", name


def test_traces_of_one_conversation_are_one_run_and_others_are_told_apart(tmp_path: Path) -> None:
    more = {"role": "user", "parts": [{"type": "text", "content": "And order 8?"}]}
    answer = {"role": "assistant", "parts": [{"type": "text", "content": "It has not."}]}
    conv = {"gen_ai.conversation.id": "conv-1"}
    first = span(1, "chat", chat([USER], [SAID], 1, **conv))
    full = span(5, "chat", chat([USER, SAID, more], [answer], 2, **conv), trace="t2")
    delta = span(5, "chat", chat([more], [answer], 2, **conv), trace="t2")
    other = span(9, "chat", chat([more], [answer], 2), trace="t3")
    for second in (full, delta):
        got = read(write(tmp_path / "t.jsonl", [otlp(second), otlp(first), otlp(other)]), tmp_path)
        runs = {run.session_id: run for run in got.all}
        assert outline(runs["conv-1"])[1:] == [
            "user: Where is order 7?",
            "agent: It has shipped.",
            "user: And order 8?",
            "agent: It has not.",
        ]
        assert set(runs) == {"conv-1", "t3"}


def test_an_agent_that_another_one_called_is_a_run_of_its_own(tmp_path: Path) -> None:
    task = {"role": "user", "parts": [{"type": "text", "content": "Summarise."}]}
    inner = chat([task], [{"role": "assistant", "parts": [{"type": "text", "content": "Short."}]}], 3)
    inner["gen_ai.system_instructions"] = json.dumps([{"type": "text", "content": "You summarise."}])
    spans = [*genai(as_text=True)[:3], span(2, "chat", inner) | {"spanId": "s9"}, genai(as_text=True)[3]]
    got = read(write(tmp_path / "t.json", otlp(*spans)), tmp_path)
    main, sub = got.runs
    assert outline(main.trajectory) == EXPECTED
    assert outline(sub.trajectory) == ["system: You summarise.", "user: Summarise.", "agent: Short."]
    assert (main.key, main.parent, sub.parent) == ("otel:t1", None, "otel:t1")
    assert main.trajectory.session_id != sub.trajectory.session_id


def test_history_that_no_call_of_the_trace_wrote_is_copied_context(tmp_path: Path) -> None:
    more = {"role": "user", "parts": [{"type": "text", "content": "And order 8?"}]}
    later = span(
        1,
        "chat",
        chat(
            [USER, ASKED, TOLD, SAID, more], [{"role": "assistant", "parts": [{"type": "text", "content": "No."}]}], 9
        ),
    )
    run = read(write(tmp_path / "t.json", otlp(later)), tmp_path).only
    assert [(s.copied_context, s.model) for s in run.agent_steps] == [(True, None), (True, None), (False, "m-2026")]
    assert run.agent_steps[0].observations[0].content == "shipped"


def test_results_that_only_the_tools_span_holds_go_to_their_call_with_its_error(tmp_path: Path) -> None:
    failed = span(
        2,
        "execute_tool get_order",
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "get_order",
            "gen_ai.tool.call.arguments": '{"id":7}',
        },
        status={"code": 2, "message": "no such order"},
    )
    stray = span(4, "execute_tool other", {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "other"})
    got = read(write(tmp_path / "t.json", otlp(genai(as_text=True)[1], failed, stray)), tmp_path)
    (seen,) = got.only.agent_steps[0].observations
    assert (seen.content, seen.call_id, seen.is_error) == ("no such order", "c1", True)
    assert got.report.unknown["run of a tool that no model asked for"] == 1
    assert got.only.outcome.status == "unknown", "a tool that failed is no failed run"


def test_a_call_that_failed_last_makes_the_run_an_error(tmp_path: Path) -> None:
    broken = span(
        3, "chat", chat([USER, ASKED, TOLD], [], 0), status={"code": "STATUS_CODE_ERROR", "message": "overloaded\nat x"}
    )
    run = read(write(tmp_path / "t.json", otlp(genai(as_text=True)[1], broken)), tmp_path).only
    assert (run.outcome.status, run.outcome.exit_status) == ("error", "overloaded")
    assert outline(run) == EXPECTED[:3]


def test_evaluation_results_are_scores(tmp_path: Path) -> None:
    event = {
        "name": "gen_ai.evaluation.result",
        "attributes": attributes(**{"gen_ai.evaluation.name": "correctness", "gen_ai.evaluation.score.value": 0.5}),
    }
    spans = genai(as_text=True)
    run = read(write(tmp_path / "t.json", otlp(spans[0] | {"events": [event]}, *spans[1:])), tmp_path).only
    assert (run.outcome.scores, run.outcome.reward, run.outcome.status) == ({"correctness": 0.5}, 0.5, "unknown")


def test_messages_that_were_logged_as_events_belong_to_their_span(tmp_path: Path) -> None:
    def entry(n: int, name: str, **body: Any) -> dict[str, Any]:
        place = {"timeUnixNano": str(1_760_000_000_000_000_000 + n), "traceId": "t1", "spanId": "s1"}
        return {**place, "eventName": name, "attributes": attributes(**{"gen_ai.system": "x"}), "body": covered(body)}

    entries = [
        entry(1, "gen_ai.system.message", content="You are a clerk."),
        entry(2, "gen_ai.user.message", content="Where is order 7?"),
        entry(3, "gen_ai.choice", index=0, message={"role": "assistant", "content": "It has shipped."}),
        {"body": {"stringValue": "got an episode without one"}},
    ]
    logs = {"resourceLogs": [{"resource": {}, "scopeLogs": [{"logRecords": entries}]}]}
    got = read(write(tmp_path / "l.json", logs), tmp_path)
    assert outline(got.only) == [EXPECTED[0], EXPECTED[1], EXPECTED[3]]


@pytest.mark.parametrize(
    "answer", ['{"answer": "yes"}', '[{"type": "fruit", "n": 1}]', "[1, 2]", "{broken", '{ "a":1 }']
)
def test_json_that_a_model_wrote_stays_as_it_was_written(tmp_path: Path, answer: str) -> None:
    def parts(role: str) -> list[dict[str, Any]]:
        return [{"role": role, "parts": [{"type": "text", "content": answer}]}]

    asked, said = {"role": "user", "content": answer}, {"role": "assistant", "content": answer}
    bare = {"gen_ai.system_instructions": "[]"}
    files = {
        "otel": otlp(span(1, "chat", chat(parts("user"), parts("assistant"), 1) | bare)),
        "langsmith": [smith(0, "llm", {"messages": [asked]}, {"choices": [{"message": said}]})],
        "langfuse": {"data": [fuse(0, "GENERATION", answer, answer)], "meta": {}},
    }
    for format, value in files.items():
        run = read(write(tmp_path / f"{format}.json", value), tmp_path).only
        assert outline(run) == [f"user: {answer}", f"agent: {answer}"], format


@pytest.mark.parametrize(
    "rows",
    [
        [
            otlp(
                span(
                    1,
                    "chat",
                    {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 4},
                )
            )
        ],
        [
            {"_type": "log", "scope": "com.anthropic.claude_code", "name": "user_prompt", "attrs": {"prompt": "Hi"}},
            {"_type": "metric", "scope": "x", "attrs": {}, "value": 1},
        ],
        [{"resourceMetrics": [{"scopeMetrics": []}]}],
    ],
)
def test_telemetry_without_messages_is_refused_with_the_reason(tmp_path: Path, rows: list[Any]) -> None:
    with pytest.raises(InvalidInput, match="metrics only, without messages: content capture is off"):
        read(write(tmp_path / "t.jsonl", rows), tmp_path)


# --- LangSmith -------------------------------------------------------------------------------------------------------


def lc(kind: str, **fields: Any) -> dict[str, Any]:
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", kind], "kwargs": fields}


def smith(n: int, run_type: str, inputs: Any, outputs: Any, **more: Any) -> dict[str, Any]:
    start = f"2026-01-01T00:00:0{n}.000000"
    order = f"20260101T00000{n}000000Zr{n}"
    return {
        "id": f"r{n}",
        "trace_id": "r0",
        "parent_run_id": "r0" if n else None,
        "dotted_order": order if not n else f"20260101T000000000000Zr0.{order}",
        "run_type": run_type,
        "name": run_type,
        "start_time": start,
        "inputs": inputs,
        "outputs": outputs,
        **more,
    }


OAI_CALL = [{"id": "c1", "type": "function", "function": {"name": "get_order", "arguments": '{"id": 7}'}}]
OAI_TOOL = {"type": "function", "function": {"name": "get_order", "description": "An order", "parameters": SCHEMA}}
BEGIN = [{"role": "system", "content": "You are a clerk."}, {"role": "user", "content": "Where is order 7?"}]
LATER = [
    *BEGIN,
    {"role": "assistant", "content": None, "tool_calls": OAI_CALL},
    {"role": "tool", "tool_call_id": "c1", "content": "shipped"},
]


def completion(message: dict[str, Any], tokens: int) -> dict[str, Any]:
    return {
        "model": "m-2026",
        "choices": [{"index": 0, "message": {"role": "assistant", **message}}],
        "usage_metadata": {"input_tokens": tokens, "output_tokens": 5},
    }


def wrapped_openai() -> list[dict[str, Any]]:
    return [
        smith(
            0,
            "chain",
            {"question": "x"},
            {"output": "It has shipped."},
            name="clerk",
            tags=["prod"],
            feedback_stats={"correctness": {"n": 2, "avg": 0.5}, "helpful": {"avg": 1}},
            session_name="shop",
        ),
        smith(
            1,
            "llm",
            {"messages": BEGIN, "tools": [OAI_TOOL], "model": "m"},
            completion({"content": None, "tool_calls": OAI_CALL}, 10),
        ),
        smith(2, "tool", {"id": 7}, {"output": "shipped"}, name="get_order"),
        smith(3, "llm", {"messages": LATER, "model": "m"}, completion({"content": "It has shipped."}, 20)),
    ]


def langchain() -> list[dict[str, Any]]:
    begin = [lc("SystemMessage", content="You are a clerk."), lc("HumanMessage", content="Where is order 7?")]
    made = lc(
        "AIMessage",
        content="",
        additional_kwargs={"tool_calls": OAI_CALL},
        tool_calls=[{"name": "get_order", "args": {"id": 7}, "id": "c1", "type": "tool_call"}],
        usage_metadata={"input_tokens": 10, "output_tokens": 5},
        response_metadata={"model_name": "m-2026"},
    )
    told = lc("ToolMessage", content="shipped", tool_call_id="c1", status="success")
    said = lc(
        "AIMessageChunk",
        content="It has shipped.",
        usage_metadata={"input_tokens": 20, "output_tokens": 5},
        response_metadata={"model_name": "m-2026"},
    )
    params = {"invocation_params": {"model": "m", "tools": [OAI_TOOL]}, "metadata": {"ls_model_name": "m"}}
    return [
        smith(0, "chain", {}, {}, name="clerk"),
        smith(1, "llm", {"messages": [begin]}, {"generations": [[{"text": "", "message": made}]]}, extra=params),
        smith(2, "tool", {"input": "{'id': 7}"}, {"output": told}, name="get_order"),
        smith(
            3,
            "llm",
            {"messages": [[*begin, made, told]]},
            {"generations": [[{"text": "It has shipped.", "message": said}]]},
            extra=params,
        ),
    ]


@pytest.mark.parametrize("runs", [wrapped_openai(), langchain()], ids=["OpenAI", "LangChain"])
def test_langsmith_runs_give_one_conversation_in_any_packing(tmp_path: Path, runs: list[dict[str, Any]]) -> None:
    posts = [{**run, "outputs": {}} for run in runs]
    patches = [{"id": run["id"], "trace_id": "r0", "outputs": run["outputs"], "inputs": None} for run in runs]
    children = [
        {key: value for key, value in run.items() if key not in {"trace_id", "parent_run_id"}} for run in runs[1:]
    ]
    files: dict[str, Any] = {
        "newest-first.json": runs[::-1],
        "lines.jsonl": runs,
        "runs.json": {"runs": runs},
        "batch.json": {"post": posts, "patch": patches},
        "batches.jsonl": [{"post": posts}, {"patch": patches}],
        "nested.json": {**runs[0], "child_runs": children},
    }
    for name, value in files.items():
        got = read(write(tmp_path / name, value), tmp_path)
        assert got.format == "langsmith", name
        run = got.only
        assert outline(run) == EXPECTED, name
        assert [(s.model, s.usage and s.usage.input_tokens) for s in run.agent_steps] == [
            ("m-2026", 10),
            ("m-2026", 20),
        ], name
        assert run.agent_steps[0].actions[0].raw_args == '{"id": 7}'
        assert run.tools[0]["function"]["parameters"] == SCHEMA
        assert (run.session_id, run.agent.name, run.outcome.status) == ("r0", "clerk", "unknown")


def test_langsmith_feedback_is_a_score_and_one_that_names_the_worth_is_the_reward(tmp_path: Path) -> None:
    run = read(write(tmp_path / "r.json", wrapped_openai()), tmp_path).only
    assert run.outcome.scores == {"correctness": 0.5, "helpful": 1.0}
    assert (run.outcome.reward, run.outcome.status) == (0.5, "unknown")
    assert (run.tags, run.extra["project"]) == (("prod",), "shop")


def test_traces_that_are_interleaved_in_the_file_stay_apart(tmp_path: Path) -> None:
    one = wrapped_openai()
    two = json.loads(
        json.dumps(one)
        .replace('"r', '"q')
        .replace("Zr", "Zq")
        .replace("order 7", "order 8")
        .replace('"qole"', '"role"')
        .replace('"qun_type"', '"run_type"')
    )
    mixed = [run for pair in zip(one, two, strict=True) for run in pair]
    got = read(write(tmp_path / "r.jsonl", mixed), tmp_path)
    assert [(run.session_id, run.task.prompt) for run in got.all] == [
        ("r0", "Where is order 7?"),
        ("q0", "Where is order 8?"),
    ]


def test_a_graph_that_records_no_model_run_is_read_from_its_state(tmp_path: Path) -> None:
    begin = [{"type": "human", "content": "Where is order 7?", "id": "h1"}]
    state = [
        *begin,
        {
            "type": "ai",
            "content": "",
            "tool_calls": [{"name": "get_order", "args": {"id": 7}, "id": "c1", "type": "tool_call"}],
        },
        {"type": "tool", "content": "shipped", "tool_call_id": "c1"},
        {"type": "ai", "content": "It has shipped."},
    ]
    got = read(
        write(tmp_path / "r.json", [smith(0, "chain", {"messages": begin}, {"messages": state}, name="LangGraph")]),
        tmp_path,
    )
    assert outline(got.only) == EXPECTED[1:]
    assert not any(step.copied_context for step in got.only.steps)
    assert any("no model runs" in note for note in got.report.notes)


def test_an_error_of_the_outermost_run_is_one_of_the_trajectory(tmp_path: Path) -> None:
    runs = wrapped_openai()
    runs[0]["error"] = "RuntimeError('x')\n\nTraceback ..."
    runs[2] |= {"outputs": None, "error": "Timeout()"}
    runs = runs[:3]
    run = read(write(tmp_path / "r.json", runs), tmp_path).only
    assert (run.outcome.status, run.outcome.exit_status) == ("error", "RuntimeError('x')")
    assert [(o.content, o.is_error) for o in run.agent_steps[0].observations] == [("Timeout()", True)]


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        (
            {"system": "You are a clerk.", "messages": BEGIN[1:]},
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "It has shipped."}],
            },
        ),
        (
            {"instructions": "You are a clerk.", "input": "Where is order 7?"},
            {
                "output": [
                    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
                    {
                        "type": "message",
                        "role": "assistant",
                        "content": [{"type": "output_text", "text": "It has shipped."}],
                    },
                ]
            },
        ),
        (
            {
                "systemInstruction": {"parts": [{"text": "You are a clerk."}]},
                "contents": [{"role": "user", "parts": [{"text": "Where is order 7?"}]}],
            },
            {
                "candidates": [
                    {
                        "content": {
                            "role": "model",
                            "parts": [{"text": "hm", "thought": True}, {"text": "It has shipped."}],
                        }
                    }
                ]
            },
        ),
        (
            {"messages": [["system", "You are a clerk."], ["human", "Where is order 7?"]]},
            {"choices": [{"message": {"role": "assistant", "reasoning_content": "hm", "content": "It has shipped."}}]},
        ),
        (
            {"messages": BEGIN},
            {"generations": [[{"message": {"type": "ai", "data": {"content": "<think>hm</think>It has shipped."}}}]]},
        ),
    ],
    ids=["Anthropic", "OpenAI responses", "Gemini", "pairs", "think tags"],
)
def test_requests_and_responses_of_all_vendors_are_understood(tmp_path: Path, inputs: Any, outputs: Any) -> None:
    run = read(write(tmp_path / "r.json", [smith(0, "llm", inputs, outputs)]), tmp_path).only
    assert outline(run) == [EXPECTED[0], EXPECTED[1], EXPECTED[3]]
    assert run.agent_steps[0].thought == "hm"


# --- Langfuse --------------------------------------------------------------------------------------------------------


def fuse(n: int, kind: str, given: Any, gave: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": f"o{n}",
        "traceId": "t1",
        "parentObservationId": "o0" if n else None,
        "type": kind,
        "name": "get_order" if kind == "TOOL" else "clerk",
        "startTime": f"2026-01-01T00:00:0{n}.000Z",
        "input": given,
        "output": gave,
        **more,
    }


def observations(*, as_text: bool) -> list[dict[str, Any]]:
    def shown(value: Any) -> Any:
        return json.dumps(value) if as_text else value

    return [
        fuse(0, "AGENT", shown({"question": "x"}), shown({"answer": "It has shipped."}), sessionId="s1"),
        fuse(
            1,
            "GENERATION",
            shown({"messages": BEGIN, "tools": [OAI_TOOL]}),
            shown({"role": "assistant", "content": None, "tool_calls": OAI_CALL}),
            providedModelName="m-2026",
            usageDetails={"input": 10, "output": 5},
        ),
        fuse(2, "TOOL", shown({"id": 7}), "shipped"),
        fuse(
            3,
            "GENERATION",
            shown(LATER),
            shown({"role": "assistant", "content": "It has shipped."}),
            model="m-2026",
            usage={"input": 20, "output": 5, "unit": "TOKENS"},
        ),
        fuse(4, "SPAN", None, None),
    ]


SCORES = [
    {"id": "x", "traceId": "t1", "name": "reward", "value": 1, "dataType": "NUMERIC"},
    {"id": "y", "traceId": "t1", "name": "tone", "value": None, "stringValue": "warm", "dataType": "CATEGORICAL"},
]


def snake(value: dict[str, Any]) -> dict[str, Any]:
    return {"".join(f"_{c.lower()}" if c.isupper() else c for c in key): inner for key, inner in value.items()}


@pytest.mark.parametrize("as_text", [True, False])
def test_langfuse_observations_give_one_conversation_in_any_packing(tmp_path: Path, as_text: bool) -> None:
    known = observations(as_text=as_text)
    trace = {"id": "t1", "name": "order", "sessionId": "s1", "tags": ["prod"], "timestamp": "2026-01-01T00:00:00Z"}
    files: dict[str, Any] = {
        "ui.json": {"trace": trace, "observations": known, "scores": SCORES},
        "api.json": {"data": known[::-1], "meta": {"cursor": None}},
        "trace.json": {**trace, "observations": known, "scores": SCORES},
        "many.json": [{**trace, "observations": known, "scores": SCORES}],
        "observations_v2/1.jsonl": [snake(one) for one in known],
    }
    write(tmp_path / "scores/1.jsonl", [snake(score) for score in SCORES])
    for name, value in files.items():
        got = read(write(tmp_path / name, value), tmp_path)
        assert got.format == "langfuse", name
        run = got.only
        assert outline(run) == EXPECTED, name
        assert [(s.model, s.usage and s.usage.input_tokens) for s in run.agent_steps] == [
            ("m-2026", 10),
            ("m-2026", 20),
        ], name
        assert run.tools[0]["function"]["name"] == "get_order"
        assert (run.session_id, run.extra["session"], run.agent.name) == ("t1", "s1", "clerk"), name
        assert run.outcome.reward == (None if name == "api.json" else 1.0), name
        assert run.outcome.status == "unknown"


def test_several_langfuse_traces_in_one_file_are_several_runs(tmp_path: Path) -> None:
    one = observations(as_text=True)
    two = [
        {
            **value,
            "traceId": "t2",
            "id": value["id"] + "b",
            "parentObservationId": value["parentObservationId"] and "o0b",
        }
        for value in one
    ]
    error = fuse(0, "GENERATION", "Hi", None, traceId="t3", level="ERROR", statusMessage="429") | {"id": "z"}
    got = read(write(tmp_path / "o.jsonl", [*two[:2], *one, *two[2:], error]), tmp_path)
    assert [run.session_id for run in got.all] == ["t1", "t2"]
    assert [reason for _, reason in got.report.rejected] == ["expected a run, got a task without an agent turn"]


def test_results_of_langfuse_tools_that_no_model_call_repeats_are_kept(tmp_path: Path) -> None:
    run = read(write(tmp_path / "o.json", {"data": observations(as_text=True)[:3], "meta": {}}), tmp_path).only
    assert outline(run) == EXPECTED[:3]
    assert run.agent_steps[0].observations[0].call_id == "c1"
    assert run.extra["output"] == {"answer": "It has shipped."}


def test_a_langfuse_trace_without_generations_is_what_it_was_given_and_gave(tmp_path: Path) -> None:
    trace = {
        "id": "t1",
        "name": "ask",
        "projectId": "p",
        "timestamp": "2026-01-01T00:00:00Z",
        "input": "Hi",
        "output": {"role": "assistant", "content": "Hello"},
    }
    got = read(write(tmp_path / "t.jsonl", [trace]), tmp_path)
    assert (got.format, outline(got.only)) == ("langfuse", ["user: Hi", "agent: Hello"])


FIXTURES: dict[str, Any] = {
    "otel": [otlp(*genai(as_text=False)[1:3])],
    "langsmith": langchain(),
    "langfuse": {"trace": {"id": "t1"}, "observations": observations(as_text=False), "scores": SCORES},
}


@pytest.mark.parametrize("format", FIXTURES)
def test_a_wrong_value_in_any_field_costs_at_most_its_run(tmp_path: Path, format: str) -> None:
    survives(format, FIXTURES[format], tmp_path)


def test_events_that_are_one_attribute_of_their_span_are_its_messages(tmp_path: Path) -> None:
    """Pydantic AI keeps them so where it was told to."""
    events = [
        {
            "event.name": "gen_ai.user.message",
            "role": "user",
            "content": "Where is order 7?",
            "gen_ai.message.index": 0,
        },
        {"event.name": "gen_ai.choice", "index": 0, "message": {"role": "assistant", "content": "It has shipped."}},
    ]
    fields = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m-1", "events": json.dumps(events)}
    got = read(write(tmp_path / "t.json", otlp(span(1, "chat m-1", fields))), tmp_path)
    assert outline(got.only) == ["user: Where is order 7?", "agent: It has shipped."]


def test_tokens_of_gemini_in_a_trace_are_known(tmp_path: Path) -> None:
    gave = {
        "candidates": [{"content": {"role": "model", "parts": [{"text": "Two."}]}}],
        "usageMetadata": {"promptTokenCount": 4, "candidatesTokenCount": 1, "thoughtsTokenCount": 2},
    }
    asked = {"contents": [{"role": "user", "parts": [{"text": "1+1?"}]}]}
    got = read(write(tmp_path / "r.json", [smith(0, "llm", asked, gave)]), tmp_path)
    usage = got.only.agent_steps[0].usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, got.report.unknown) == (4, 3, {})
