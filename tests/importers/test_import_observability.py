"""Readers of tracing tools: OpenTelemetry, LangSmith, Langfuse."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from agent_logs import message, outline, read, read_one, write
from quintain.errors import InvalidInput
from small_logs import small_log
from trace_logs import (
    ASKED,
    BEGIN,
    LATER,
    LC_CALL,
    OAI_CALL,
    OAI_TOOL,
    RESULT,
    SAID,
    SCHEMA,
    TOLD,
    TOOLS,
    USER,
    attributes,
    chat,
    covered,
    fuse,
    genai,
    lc,
    observations,
    otlp,
    smith,
    span,
    spoken,
    tool_span,
)

EXPECTED = [
    "system: You are a clerk.",
    "user: Where is order 7?",
    "agent:  > get_order(c1) < shipped(c1)",
    "agent: It has shipped.",
]
"""What every flavour of the conversation below is: two model calls, the second with the whole history before it."""


# --- OpenTelemetry ---------------------------------------------------------------------------------------------------


def call_spans(base: dict[str, Any], tokens: str, *calls: dict[str, Any]) -> list[dict[str, Any]]:
    """The two model calls; `tokens` names the attribute with the count of input tokens, 10 and 20."""
    first, last = calls
    return [span(1, "llm", base | first | {tokens: 10}), span(3, "llm", base | last | {tokens: 20})]


def openinference() -> list[dict[str, Any]]:
    def shown(kind: str, n: int, role: str, content: str | None, **more: Any) -> dict[str, Any]:
        fields = {"role": role, "content": content, **more}
        known = {key: value for key, value in fields.items() if value is not None}
        return {f"llm.{kind}_messages.{n}.message.{key}": value for key, value in known.items()}

    prefix = "tool_calls.0.tool_call"
    call = {f"{prefix}.id": "c1", f"{prefix}.function.name": "get_order", f"{prefix}.function.arguments": '{"id": 7}'}
    part = "contents.0.message_content"
    asked = {f"{part}.type": "text", f"{part}.text": "Where is order 7?"}
    begin = shown("input", 0, "system", "You are a clerk.") | shown("input", 1, "user", None, **asked)
    later = shown("input", 2, "assistant", None, **call) | shown("input", 3, "tool", "shipped", tool_call_id="c1")
    base = {
        "openinference.span.kind": "LLM",
        "llm.model_name": "m-2026",
        "llm.token_count.completion": 5,
        "llm.tools.0.tool.json_schema": json.dumps(OAI_TOOL),
    }
    first = begin | shown("output", 0, "assistant", None, **call)
    last = begin | later | shown("output", 0, "assistant", "It has shipped.")
    return call_spans(base, "llm.token_count.prompt", first, last)


def beeai() -> list[dict[str, Any]]:
    """OpenInference, but a result has its call id in a part of its content."""
    field = "llm.input_messages.3.message"
    part = {
        f"{field}.contents.0.message.tool_call_id": "c1",
        f"{field}.contents.0.message_content.type": "text",
        f"{field}.contents.0.message_content.text": "shipped",
    }
    first, last = openinference()
    kept = [pair for pair in last["attributes"] if pair["key"] not in (f"{field}.content", f"{field}.tool_call_id")]
    return [first, {**last, "attributes": kept + attributes(**part)}]


def langsmith_spans() -> list[dict[str, Any]]:
    """What LangSmith exports as spans: the whole request and the whole response, each as one JSON text."""

    def exchanged(messages: list[Any], answer: dict[str, Any]) -> dict[str, Any]:
        request = {"messages": messages, "model": "m", "tools": [OAI_TOOL]}
        response = {"choices": [{"index": 0, "message": answer}], "model": "m-2026"}
        return {"gen_ai.prompt": json.dumps(request), "gen_ai.completion": json.dumps(response)}

    base = {"gen_ai.operation.name": "chat", "gen_ai.response.model": "m-2026", "gen_ai.usage.output_tokens": 5}
    first = exchanged(BEGIN, message("assistant", None, tool_calls=OAI_CALL))
    last = exchanged(LATER, message("assistant", "It has shipped."))
    ran = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "get_order"}
    ran |= {"gen_ai.prompt": '{"id": 7}', "gen_ai.completion": '{"output": "shipped"}'}
    one, two = call_spans(base, "gen_ai.usage.input_tokens", first, last)
    return [one, span(2, "get_order", ran), two]


def traceloop() -> list[dict[str, Any]]:
    def shown(kind: str, *messages: dict[str, Any]) -> dict[str, Any]:
        return {f"gen_ai.{kind}.{n}.{key}": value for n, fields in enumerate(messages) for key, value in fields.items()}

    call = {"tool_calls.0.id": "c1", "tool_calls.0.name": "get_order", "tool_calls.0.arguments": '{"id": 7}'}
    asked = {"role": "assistant", **call}
    base = {
        "llm.request.type": "chat",
        "gen_ai.response.model": "m-2026",
        "gen_ai.usage.completion_tokens": 5,
        "llm.request.functions.0.name": "get_order",
        "llm.request.functions.0.description": "An order",
        "llm.request.functions.0.parameters": json.dumps(SCHEMA),
    }
    first = shown("prompt", *BEGIN) | shown("completion", {**asked, "finish_reason": "tool_calls"})
    last = shown("prompt", *BEGIN, asked, RESULT) | shown("completion", message("assistant", "It has shipped."))
    return call_spans(base, "gen_ai.usage.prompt_tokens", first, last)


def span_events() -> list[dict[str, Any]]:
    def event(name: str, **fields: Any) -> dict[str, Any]:
        return {"name": f"gen_ai.{name}", "attributes": attributes(**fields)}

    begin = [event(f"{one['role']}.message", content=one["content"]) for one in BEGIN]
    later = [
        event("assistant.message", tool_calls=OAI_CALL),
        event("tool.message", id="c1", content="shipped"),
        event("choice", index=0, message={"content": "It has shipped."}),
    ]
    asked = event("choice", index=0, finish_reason="tool_calls", message={"role": "assistant", "tool_calls": OAI_CALL})
    base = {
        "gen_ai.operation.name": "chat",
        "gen_ai.response.model": "m-2026",
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.tool.definitions": json.dumps(TOOLS),
    }
    first, last = call_spans(base, "gen_ai.usage.input_tokens", {}, {})
    return [{**first, "events": [*begin, asked]}, {**last, "events": [*begin, *later]}]


def ai_sdk() -> list[dict[str, Any]]:
    begin = [BEGIN[0], message("user", [{"type": "text", "text": "Where is order 7?"}])]
    called = {"toolCallId": "c1", "toolName": "get_order"}
    answer = {"type": "tool-result", **called, "output": {"type": "text", "value": "shipped"}}
    later = [message("assistant", [{"type": "tool-call", **called, "args": {"id": 7}}]), message("tool", [answer])]
    tool = {"type": "function", "name": "get_order", "description": "An order", "inputSchema": SCHEMA}
    base = {
        "ai.model.id": "m",
        "ai.response.model": "m-2026",
        "ai.usage.completionTokens": 5,
        "ai.prompt.tools": [json.dumps(tool)],
    }
    calls = json.dumps([{**called, "args": '{"id": 7}'}])
    first = {"ai.prompt.messages": json.dumps(begin), "ai.response.toolCalls": calls}
    last = {"ai.prompt.messages": json.dumps([*begin, *later]), "ai.response.text": "It has shipped."}
    ran = {"name": "get_order", "id": "c1", "args": '{"id": 7}', "result": '"shipped"'}
    whole = {"ai.prompt": json.dumps({"messages": begin}), "ai.response.text": "It has shipped."}
    one, two = call_spans(base, "ai.usage.promptTokens", first, last)
    return [
        span(0, "ai.generateText", whole),
        {**one, "name": "ai.generateText.doGenerate"},
        span(2, "ai.toolCall", {f"ai.toolCall.{key}": value for key, value in ran.items()}),
        {**two, "name": "ai.generateText.doGenerate"},
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
    "BeeAI": beeai(),
    "LangSmith": langsmith_spans(),
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
    more = spoken("user", "And order 8?")
    answer = spoken("assistant", "It has not.")
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
    task = spoken("user", "Summarise.")
    inner = chat([task], [spoken("assistant", "Short.")], 3)
    inner["gen_ai.system_instructions"] = json.dumps([{"type": "text", "content": "You summarise."}])
    spans = [*genai(as_text=True)[:3], span(2, "chat", inner) | {"spanId": "s9"}, genai(as_text=True)[3]]
    got = read(write(tmp_path / "t.json", otlp(*spans)), tmp_path)
    main, sub = got.runs
    assert outline(main.trajectory) == EXPECTED
    assert outline(sub.trajectory) == ["system: You summarise.", "user: Summarise.", "agent: Short."]
    assert (main.key, main.parent, sub.parent) == ("otel:t1", None, "otel:t1")
    assert main.trajectory.session_id != sub.trajectory.session_id


def test_each_conversation_names_the_innermost_agent_around_its_calls(tmp_path: Path) -> None:
    def agent(n: int, name: str, **more: Any) -> dict[str, Any]:
        return span(n, f"{name}.run", {"openinference.span.kind": "AGENT", "agent.name": name}) | more

    helper = chat([spoken("user", "Summarise.")], [spoken("assistant", "Short.")], 3)
    spans = [span(2, "chat", helper, parent="s8") | {"spanId": "s9"}, agent(8, "helper"), *genai(as_text=True)[1:]]
    got = read(write(tmp_path / "t.json", otlp(*spans, agent(0, "desk"))), tmp_path)
    assert [run.agent.name for run in got.all] == ["desk", "helper"]


def test_parallel_calls_that_were_written_into_one_come_from_the_next_request(tmp_path: Path) -> None:
    first, last = openinference()
    call = "message.tool_calls.{}.tool_call."
    output, copied = f"llm.output_messages.0.{call}", f"llm.input_messages.2.{call}"
    broken = {output.format(0) + "function.arguments": '{"id": 7}{"id": 8}'}
    second = {"id": "c2", "function.name": "get_order", "function.arguments": '{"id": 8}'}
    copy = {copied.format(1) + key: value for key, value in second.items()}
    kept = [pair for pair in first["attributes"] if pair["key"] not in broken]
    spans = [
        {**first, "attributes": kept + attributes(**broken)},
        {**last, "attributes": last["attributes"] + attributes(**copy)},
    ]
    got = read(write(tmp_path / "t.json", otlp(*spans)), tmp_path)
    assert outline(got.only)[2:] == [
        "agent:  > get_order(c1) > get_order(c2) < shipped(c1)",
        "agent: It has shipped.",
    ]
    assert [call.args for call in got.only.agent_steps[0].actions] == [{"id": 7}, {"id": 8}]


def test_the_exception_of_a_failed_call_is_no_answer_and_the_default_service_no_agent(tmp_path: Path) -> None:
    failed = {"openinference.span.kind": "LLM", "output.value": "RateLimitError: slow down"}
    failed |= {"llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": "Go"}
    spans = [*openinference(), span(5, "llm", failed, status={"code": 2, "message": "slow down"})]
    document = otlp(*spans)
    document["resourceSpans"][0]["resource"]["attributes"] = attributes(**{"service.name": "unknown_service:python"})
    got = read(write(tmp_path / "t.json", document), tmp_path)
    assert [outline(run) for run in got.all] == [EXPECTED]
    assert (got.only.agent.name, got.only.outcome.status) == ("unknown", "error")


def test_history_that_no_call_of_the_trace_wrote_is_copied_context(tmp_path: Path) -> None:
    more = spoken("user", "And order 8?")
    later = chat([USER, ASKED, TOLD, SAID, more], [spoken("assistant", "No.")], 9)
    run = read(write(tmp_path / "t.json", otlp(span(1, "chat", later))), tmp_path).only
    assert [(s.copied_context, s.model) for s in run.agent_steps] == [(True, None), (True, None), (False, "m-2026")]
    assert run.agent_steps[0].observations[0].content == "shipped"


def test_results_that_only_the_tools_span_holds_go_to_their_call_with_its_error(tmp_path: Path) -> None:
    failed = tool_span(2, "get_order", **{"call.arguments": '{"id":7}'})
    failed["status"] = {"code": 2, "message": "no such order"}
    stray = tool_span(4, "other")
    got = read(write(tmp_path / "t.json", otlp(genai(as_text=True)[1], failed, stray)), tmp_path)
    (seen,) = got.only.agent_steps[0].observations
    assert (seen.content, seen.call_id, seen.is_error) == ("no such order", "c1", True)
    assert got.report.unknown["run of a tool that no model asked for"] == 1
    assert got.only.outcome.status == "unknown", "a tool that failed is no failed run"


def test_a_call_that_failed_last_makes_the_run_an_error(tmp_path: Path) -> None:
    status = {"code": "STATUS_CODE_ERROR", "message": "overloaded\nat x"}
    broken = span(3, "chat", chat([USER, ASKED, TOLD], [], 0), status=status)
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
        entry(3, "gen_ai.choice", index=0, message=message("assistant", "It has shipped.")),
        {"body": {"stringValue": "got an episode without one"}},
    ]
    logs = {"resourceLogs": [{"resource": {}, "scopeLogs": [{"logRecords": entries}]}]}
    got = read(write(tmp_path / "l.json", logs), tmp_path)
    assert outline(got.only) == [EXPECTED[0], EXPECTED[1], EXPECTED[3]]


@pytest.mark.parametrize(
    "answer", ['{"answer": "yes"}', '[{"type": "fruit", "n": 1}]', "[1, 2]", "{broken", '{ "a":1 }']
)
def test_json_that_a_model_wrote_stays_as_it_was_written(tmp_path: Path, answer: str) -> None:
    asked, said = message("user", answer), message("assistant", answer)
    call = chat([spoken("user", answer)], [spoken("assistant", answer)], 1) | {"gen_ai.system_instructions": "[]"}
    files = {
        "otel": otlp(span(1, "chat", call)),
        "langsmith": [smith(0, "llm", {"messages": [asked]}, {"choices": [{"message": said}]})],
        "langfuse": {"data": [fuse(0, "GENERATION", answer, answer)], "meta": {}},
    }
    for format, value in files.items():
        run = read(write(tmp_path / f"{format}.json", value), tmp_path).only
        assert outline(run) == [f"user: {answer}", f"agent: {answer}"], format


OPERATION = {"gen_ai.operation.name": "chat"}
COUNTS = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 4}
CLAUDE_CODE = {"_type": "log", "scope": "com.anthropic.claude_code", "name": "user_prompt", "attrs": {"prompt": "Hi"}}


@pytest.mark.parametrize(
    "rows",
    [
        [otlp(span(1, "chat", COUNTS))],
        [CLAUDE_CODE, {"_type": "metric", "scope": "x", "attrs": {}, "value": 1}],
        [{"resourceMetrics": [{"scopeMetrics": []}]}],
    ],
)
def test_telemetry_without_messages_is_refused_with_the_reason(tmp_path: Path, rows: list[Any]) -> None:
    with pytest.raises(InvalidInput, match="metrics only, without messages: content capture is off"):
        read(write(tmp_path / "t.jsonl", rows), tmp_path)


# --- LangSmith -------------------------------------------------------------------------------------------------------


def exchange(n: int, asked: list[Any], tokens: int, answer: dict[str, Any], **request: Any) -> dict[str, Any]:
    """A model run of OpenAI's chat API."""
    usage = {"input_tokens": tokens, "output_tokens": 5}
    response = {"model": "m-2026", "choices": [{"index": 0, "message": answer}], "usage_metadata": usage}
    return smith(n, "llm", {"messages": asked, "model": "m", **request}, response)


def wrapped_openai() -> list[dict[str, Any]]:
    feedback = {"correctness": {"n": 2, "avg": 0.5}, "helpful": {"avg": 1}}
    about = {"name": "clerk", "tags": ["prod"], "feedback_stats": feedback, "session_name": "shop"}
    return [
        smith(0, "chain", {"question": "x"}, {"output": "It has shipped."}, **about),
        exchange(1, BEGIN, 10, LATER[2], tools=[OAI_TOOL]),
        smith(2, "tool", {"id": 7}, {"output": "shipped"}, name="get_order"),
        exchange(3, LATER, 20, message("assistant", "It has shipped.")),
    ]


@pytest.mark.parametrize("runs", [wrapped_openai(), small_log("langsmith")], ids=["OpenAI", "LangChain"])
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
        assert [step.model for step in run.agent_steps] == ["m-2026"] * 2, name
        assert [step.usage and step.usage.input_tokens for step in run.agent_steps] == [10, 20], name
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
    other = (("r0", "q0"), ("r1", "q1"), ("r2", "q2"), ("r3", "q3"), ("order 7", "order 8"))
    text = json.dumps(one)
    for old, new in other:
        text = text.replace(old, new)
    two = json.loads(text)
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
        {"type": "ai", "content": "", "tool_calls": [LC_CALL]},
        {"type": "tool", "content": "shipped", "tool_call_id": "c1"},
        {"type": "ai", "content": "It has shipped."},
    ]
    graph = smith(0, "chain", {"messages": begin}, {"messages": state}, name="LangGraph")
    got = read(write(tmp_path / "r.json", [graph]), tmp_path)
    assert outline(got.only) == EXPECTED[1:]
    assert not any(step.copied_context for step in got.only.steps)
    assert any("no model calls" in note for note in got.report.notes)


def test_an_error_of_the_outermost_run_is_one_of_the_trajectory(tmp_path: Path) -> None:
    runs = wrapped_openai()
    runs[0]["error"] = "RuntimeError('x')\n\nTraceback ..."
    runs[2] |= {"outputs": None, "error": "Timeout()"}
    runs = runs[:3]
    run = read(write(tmp_path / "r.json", runs), tmp_path).only
    assert (run.outcome.status, run.outcome.exit_status) == ("error", "RuntimeError('x')")
    assert [(o.content, o.is_error) for o in run.agent_steps[0].observations] == [("Timeout()", True)]


def test_a_trace_whose_model_calls_only_hold_text_is_told_by_its_outermost_run(tmp_path: Path) -> None:
    asked, done = lc("AIMessage", content="", tool_calls=[LC_CALL]), lc("AIMessage", content="It has shipped.")
    question, result = lc("HumanMessage", content="Where is order 7?"), lc("ToolMessage", content="shipped")
    result["kwargs"]["tool_call_id"] = "c1"
    messages = [question, asked, result, done]
    rows = [smith(0, "chain", {"messages": [["user", "Where is order 7?"]]}, {"messages": messages}, name="agent")]
    text = "System: You are a clerk.\nHuman: Where is order 7?"
    for n, (prompt, answer) in enumerate(((text, asked), (f"{text}\nAI: [{LC_CALL}]\nTool: shipped", done)), 1):
        about = {"extra": {"metadata": {"ls_model_name": "m"}}}
        rows.append(
            smith(n, "llm", {"prompts": [prompt]}, {"generations": [[{"text": "", "message": answer}]]}, **about)
        )
    run = read(write(tmp_path / "runs.json", rows), tmp_path).only
    assert outline(run) == EXPECTED
    assert [step.model for step in run.agent_steps] == ["m", "m"]


TEXT = {"type": "text", "text": "It has shipped."}
ITEMS = [
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
    {"type": "message", "role": "assistant", "content": [{**TEXT, "type": "output_text"}]},
]
CONTENT = {"role": "model", "parts": [{"text": "hm", "thought": True}, {"text": "It has shipped."}]}
TAGGED = {"type": "ai", "data": {"content": "<think>hm</think>It has shipped."}}
EXCHANGES: dict[str, tuple[Any, Any]] = {
    "Anthropic": (
        {"system": "You are a clerk.", "messages": BEGIN[1:]},
        message("assistant", [{"type": "thinking", "thinking": "hm"}, TEXT]),
    ),
    "OpenAI responses": ({"instructions": "You are a clerk.", "input": "Where is order 7?"}, {"output": ITEMS}),
    "Gemini": (
        {
            "systemInstruction": {"parts": [{"text": "You are a clerk."}]},
            "contents": [{"role": "user", "parts": [{"text": "Where is order 7?"}]}],
        },
        {"candidates": [{"content": CONTENT}]},
    ),
    "pairs": (
        {"messages": [["system", "You are a clerk."], ["human", "Where is order 7?"]]},
        {"choices": [{"message": message("assistant", "It has shipped.", reasoning_content="hm")}]},
    ),
    "think tags": ({"messages": BEGIN}, {"generations": [[{"message": TAGGED}]]}),
}


@pytest.mark.parametrize("vendor", EXCHANGES)
def test_requests_and_responses_of_all_vendors_are_understood(tmp_path: Path, vendor: str) -> None:
    run = read(write(tmp_path / "r.json", [smith(0, "llm", *EXCHANGES[vendor])]), tmp_path).only
    assert outline(run) == [EXPECTED[0], EXPECTED[1], EXPECTED[3]]
    assert run.agent_steps[0].thought == "hm"


# --- Langfuse --------------------------------------------------------------------------------------------------------

SCORES = small_log("langfuse")["scores"]


def snake(value: dict[str, Any]) -> dict[str, Any]:
    return {"".join(f"_{c.lower()}" if c.isupper() else c for c in key): inner for key, inner in value.items()}


@pytest.mark.parametrize("as_text", [True, False])
def test_langfuse_observations_give_one_conversation_in_any_packing(tmp_path: Path, as_text: bool) -> None:
    known = observations(as_text=as_text)
    trace = {"id": "t1", "name": "order", "sessionId": "s1", "tags": ["prod"], "timestamp": "2026-01-01T00:00:00Z"}
    files: dict[str, Any] = {
        "ui.json": {"trace": trace, "observations": known, "scores": SCORES},
        "export.json": {"trace": {**trace, "scores": SCORES}, "observations": known},
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
        assert [step.model for step in run.agent_steps] == ["m-2026"] * 2, name
        assert [step.usage and step.usage.input_tokens for step in run.agent_steps] == [10, 20], name
        assert run.tools[0]["function"]["name"] == "get_order"
        assert (run.session_id, run.extra["session"], run.agent.name) == ("t1", "s1", "clerk"), name
        assert run.outcome.reward == (None if name == "api.json" else 1.0), name
        assert run.outcome.status == "unknown"


def test_several_langfuse_traces_in_one_file_are_several_runs(tmp_path: Path) -> None:
    one = observations(as_text=True)
    two = json.loads(json.dumps(one).replace('"t1"', '"t2"').replace('"o', '"p').replace('"putput"', '"output"'))
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
    trace = {"id": "t1", "name": "ask", "projectId": "p", "timestamp": "2026-01-01T00:00:00Z"}
    trace |= {"input": "Hi", "output": message("assistant", "Hello")}  # type: ignore[dict-item]
    got = read(write(tmp_path / "t.jsonl", [trace]), tmp_path)
    assert (got.format, outline(got.only)) == ("langfuse", ["user: Hi", "agent: Hello"])


def test_events_that_are_one_attribute_of_their_span_are_its_messages(tmp_path: Path) -> None:
    """Pydantic AI keeps them so where it was told to."""
    events = [
        {"event.name": "gen_ai.user.message", **BEGIN[1], "gen_ai.message.index": 0},
        {"event.name": "gen_ai.choice", "index": 0, "message": message("assistant", "It has shipped.")},
    ]
    fields = {**OPERATION, "gen_ai.request.model": "m-1", "events": json.dumps(events)}
    got = read(write(tmp_path / "t.json", otlp(span(1, "chat m-1", fields))), tmp_path)
    assert outline(got.only) == ["user: Where is order 7?", "agent: It has shipped."]


def test_strands_writes_content_as_json_and_a_tools_arguments_where_others_write_its_result(tmp_path: Path) -> None:
    def event(name: str, **fields: str) -> dict[str, Any]:
        return {"name": f"gen_ai.{name}", "attributes": attributes(**fields)}

    user = event("user.message", content=json.dumps([{"text": "Where is order 7?"}]))
    call = json.dumps([{"toolUse": {"toolUseId": "c1", "name": "get_order", "input": {"id": 7}}}])
    result = {"toolResult": {"toolUseId": "c1", "status": "success", "content": [{"text": "shipped"}]}}
    seen = [
        event("tool.message", id="c1", content='{"id": 7}'),
        event("choice", id="c1", message='[{"text": "shipped"}]'),
    ]
    history = [event("assistant.message", content=call), event("tool.message", content=json.dumps([result]))]
    spans = [
        span(1, "chat", OPERATION, events=[user, event("choice", message=call, finish_reason="tool_use")]),
        span(2, "execute_tool get_order", {"gen_ai.operation.name": "execute_tool"}, events=seen),
        span(3, "chat", OPERATION, events=[user, *history, event("choice", message='[{"text": "It has shipped."}]')]),
    ]
    run = read(write(tmp_path / "otlp.json", otlp(*spans)), tmp_path).only
    assert outline(run) == EXPECTED[1:]
    assert run.agent_steps[0].actions[0].args == {"id": 7}


def test_a_span_whose_content_stands_in_events_alone_is_a_model_call_and_names_its_model(tmp_path: Path) -> None:
    contents = (("prompt", BEGIN[1]), ("completion", message("assistant", "It has shipped.")))
    events = [
        {"name": f"gen_ai.content.{kind}", "attributes": attributes(**{f"gen_ai.{kind}": json.dumps([content])})}
        for kind, content in contents
    ]
    call = span(1, "chat m-1", {"gen_ai.request.model": "m-1"}, events=events)
    run = read(write(tmp_path / "otlp.json", otlp(call)), tmp_path).only
    assert outline(run) == [EXPECTED[1], EXPECTED[3]]
    assert run.agent_steps[0].model == "m-1"


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


def phoenix_rows() -> list[dict[str, Any]]:
    """Spans as Phoenix's data frames have them: every column in every row, messages as lists with dotted names."""
    asked = {"message.role": "user", "message.content": "Look up 7"}
    call = {"tool_call.id": "c1", "tool_call.function.name": "find", "tool_call.function.arguments": '{"id": 7}'}
    called = {"message.role": "assistant", "message.tool_calls": [call]}
    answered = {"message.role": "tool", "message.content": "shipped", "message.tool_call_id": "c1"}
    result = {"message.role": "assistant", "message.content": "It has shipped."}
    exchanges = (("s1", [asked], [called]), ("s2", [asked, called, answered], [result]))
    rows = [
        {
            "name": "chat",
            "span_kind": "LLM",
            "parent_id": "s0",
            "start_time": 1_783_555_200_000 + n,
            "status_code": "OK",
            "context.trace_id": "t1",
            "context.span_id": span,
            "attributes.llm.model_name": "m",
            "attributes.llm.input_messages": given,
            "attributes.llm.output_messages": made,
            "attributes.input.value": None,
        }
        for n, (span, given, made) in enumerate(exchanges)
    ]
    root = {**dict.fromkeys(rows[0]), "name": "turn", "span_kind": "CHAIN", "context.trace_id": "t1"}
    return [{**root, "context.span_id": "s0", "attributes.input.value": "Look up 7"}, *rows]


def table_of(names: list[str], rows: list[list[Any]]) -> bytes:
    """A table as `to_csv` writes it, with lists as Python writes them."""
    text = io.StringIO()
    csv.writer(text).writerows([names, *rows])
    return text.getvalue().encode()


@pytest.mark.parametrize(
    "orient",
    ["records", "columns", "index", "split", "lines", "records without their index", "table", "nameless index"],
)
def test_a_phoenix_data_frame_is_read_however_pandas_wrote_it(tmp_path: Path, orient: str) -> None:
    rows = phoenix_rows()
    cells = [{key: value for key, value in row.items() if key != "context.span_id"} for row in rows]
    ids = [row["context.span_id"] for row in rows]
    split = {"columns": list(cells[0]), "index": ids, "data": [list(row.values()) for row in cells]}
    by_column = {name: {key: row[name] for key, row in zip(ids, cells, strict=True)} for name in cells[0]}
    forms = {
        "records": rows,
        "lines": rows,
        "columns": by_column,
        "index": dict(zip(ids, cells, strict=True)),
        "split": split,
        "records without their index": cells,
        "table": table_of(["context.span_id", *rows[0]], [[row["context.span_id"], *row.values()] for row in rows]),
        "nameless index": table_of(["", *rows[0]], [[n, *row.values()] for n, row in enumerate(rows)]),
    }
    ends = {"lines": ".jsonl", "table": ".csv", "nameless index": ".csv"}
    path = write(tmp_path / f"spans{ends.get(orient, '.json')}", forms[orient])
    run, _ = read_one("otel", path, tmp_path)
    assert outline(run) == ["user: Look up 7", "agent:  > find(c1) < shipped(c1)", "agent: It has shipped."]
    assert run.trajectory.agent.model == "m"


def test_spans_without_a_model_call_are_refused_for_that_reason(tmp_path: Path) -> None:
    place = {"traceId": "t1", "spanId": "s1", "name": "openclaw.message.processed"}
    spans = [{**place, "attributes": [{"key": "openclaw.channel", "value": {"stringValue": "cli"}}]}]
    export = {"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": spans}]}]}
    with pytest.raises(
        InvalidInput, match=r"no span of a model call by the names of .* among 1 spans \(openclaw.message.processed\)"
    ):
        read_one("otel", write(tmp_path / "t.json", export), tmp_path)


def test_documents_that_a_retriever_found_are_not_an_agents_answer(tmp_path: Path) -> None:
    asked = {"attributes.input.value": "order 7", "attributes.output.value": '["<Node 1>"]'}
    row = {"name": "retrieve", "span_kind": "RETRIEVER", "context.span_id": "s1", "context.trace_id": "t1"}
    rows = [row | asked | {"attributes.openinference.span.kind": "RETRIEVER"}]
    with pytest.raises(InvalidInput, match="no span of a model call"):
        read_one("otel", write(tmp_path / "spans.jsonl", rows), tmp_path)


def test_a_completion_of_llama_index_is_its_text_and_prompts_alone_mark_a_model_call(tmp_path: Path) -> None:
    response = {"text": "It has shipped.", "additional_kwargs": {}, "raw": {"id": "r", "choices": [{"index": 0}]}}
    asked = {"llm.model_name": "m", "input.value": "Where is order 7?"}
    calls = (
        {"openinference.span.kind": "LLM", "output.value": json.dumps(response)},
        {"llm.prompts": "('Where is order 7?',)", "output.value": "It has shipped.", "llm.token_count.completion": 5},
    )
    for n, call in enumerate(calls):
        spans = [span(1, "Chain.step", {}), span(2, "llm.completion", asked | call)]
        run = read(write(tmp_path / f"{n}.json", otlp(*spans)), tmp_path).only
        assert outline(run) == ["user: Where is order 7?", "agent: It has shipped."]
        assert run.agent.model == "m"


def test_a_langsmith_patch_without_an_id_belongs_to_the_run_that_its_dotted_order_ends_with(tmp_path: Path) -> None:
    root, child = "20260101T000000000000Zr0", "20260101T000000000000Zr0.20260101T000001000000Zr1"
    asked = {"messages": [{"role": "user", "content": "howdy"}]}
    answer = {"model": "m-1", "choices": [{"message": {"role": "assistant", "content": "Howdy!"}}]}
    posts = [
        {"id": "r0", "trace_id": "r0", "dotted_order": root, "run_type": "chain", "name": "bot", "inputs": {}},
        {
            "id": "r1",
            "trace_id": "r0",
            "parent_run_id": "r0",
            "dotted_order": child,
            "run_type": "llm",
            "inputs": asked,
        },
    ]
    patches = [{"trace_id": "r0", "dotted_order": child, "outputs": answer}, {"trace_id": "r0", "outputs": {}}]
    path = write(tmp_path / "batch.json", {"post": posts, "patch": patches})
    run, report = read_one("langsmith", path, tmp_path)
    assert outline(run) == ["user: howdy", "agent: Howdy!"]
    assert (run.trajectory.agent.model, run.trajectory.agent.name) == ("m-1", "bot")
    assert not any("other than a run" in kind for kind in report.unknown)
