"""Readers of traces that agent frameworks and MLflow write: the OpenAI Agents SDK, MLflow, Weave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_logs import function_call, message, outline, read, read_one, write
from quintain.records.trajectory import Trajectory

CALLS = [function_call("get_order", '{"id": 7}', "c1"), function_call("get_order", '{"id": 8}', "c2")]
BEGIN = [message("system", "You are a clerk."), message("user", "Where are orders 7 and 8?")]
ASKED = message("assistant", "Let me look.", tool_calls=CALLS, reasoning_content="I need both.", refusal=None)
RESULTS = [message("tool", "shipped", tool_call_id="c1"), message("tool", "no order 8", tool_call_id="c2")]
ANSWER = message("assistant", "Order 7 has shipped.", tool_calls=None)
EXPECTED = [
    "system: You are a clerk.",
    "user: Where are orders 7 and 8?",
    "agent: Let me look. > get_order(c1) > get_order(c2) < shipped(c1) < !no order 8(c2)",
    "agent: Order 7 has shipped.",
]
TOOL = {"type": "function", "function": {"name": "get_order", "description": "An order", "parameters": {}}}
ITEMS = [
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "I need both."}]},
    message("assistant", [{"type": "output_text", "text": "Let me look."}], type="message", id="msg_1"),
    {"type": "function_call", "call_id": "c1", "name": "get_order", "arguments": '{"id": 7}'},
    {"type": "function_call", "call_id": "c2", "name": "get_order", "arguments": '{"id": 8}'},
]
OUTPUTS = [
    {"type": "function_call_output", "call_id": "c1", "output": "shipped"},
    {"type": "function_call_output", "call_id": "c2", "output": "no order 8"},
]
LAST = message("assistant", [{"type": "output_text", "text": "Order 7 has shipped."}], type="message", id="msg_2")


def check(run: Trajectory, model: str) -> None:
    assert outline(run) == EXPECTED
    first, last = run.agent_steps
    assert (first.thought, first.model, last.model) == ("I need both.", model, model)
    assert [(s.usage.input_tokens, s.usage.output_tokens) for s in run.agent_steps if s.usage] == [(100, 10)] * 2
    assert first.timestamp is not None
    assert run.outcome.status.value == "unknown"


# --- OpenAI Agents SDK -----------------------------------------------------------------------------------------------


def agents_span(n: int, kind: str, *, trace: str = "trace_1", error: Any = None, **data: Any) -> dict[str, Any]:
    return {
        "object": "trace.span",
        "id": f"span_{n}",
        "trace_id": trace,
        "parent_id": "span_0" if n else None,
        "started_at": f"2026-01-01T00:00:{n:02}+00:00",
        "ended_at": f"2026-01-01T00:00:{n:02}.5+00:00",
        "span_data": {"type": kind, **data},
        "error": error,
    }


def agents_trace(*, error: Any = None) -> list[dict[str, Any]]:
    """As the SDK exports a run: a span after it has ended, so that the agent's comes last."""
    usage = {"requests": 1, "input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
    failed = {"message": "Error running tool (non-fatal)", "data": {"tool_name": "get_order"}}
    asked, again = {"input": BEGIN, "output": [ASKED]}, {"input": [*BEGIN, ASKED, *RESULTS], "output": [ANSWER]}
    return [
        {"object": "trace", "id": "trace_1", "workflow_name": "Orders", "group_id": None, "metadata": None},
        agents_span(2, "generation", model="gpt-5-mini", model_config={}, usage=usage, **asked),
        agents_span(3, "function", name="get_order", input='{"id": 7}', output="shipped", mcp_data=None),
        agents_span(4, "function", name="get_order", input='{"id": 8}', output="no order 8", error=failed),
        agents_span(1, "custom", name="turn", data={"sdk_span_type": "turn", "turn": 1}),
        agents_span(5, "generation", model="gpt-5-mini", model_config={}, usage=usage, **again),
        agents_span(0, "agent", name="Clerk", handoffs=[], tools=["get_order"], output_type="str", error=error),
    ]


def response_trace(*, content: bool) -> list[dict[str, Any]]:
    """As the SDK exports calls of the Responses API, and with the content that an exporter may add."""
    usage = {"input_tokens": 100, "output_tokens": 10}
    spans = [response for response in agents_trace() if response.get("span_data", {}).get("type") != "generation"]
    shared = {"model": "gpt-5-mini", "instructions": "You are a clerk.", "tools": [TOOL["function"]], "usage": usage}
    first, last = ({"response": {**shared, "id": f"r{n}", "output": out}} for n, out in ((1, ITEMS), (2, [LAST])))
    first["input"], last["input"] = "Where are orders 7 and 8?", [BEGIN[1], *ITEMS, *OUTPUTS]
    return [
        *spans,
        agents_span(2, "response", response_id="r1", usage=usage, **(first if content else {})),
        agents_span(5, "response", response_id="r2", usage=usage, **(last if content else {})),
    ]


def processor_events() -> list[dict[str, Any]]:
    """As a processor writes that logs the start and the end of each span."""
    trace, *spans = agents_trace()
    empty = {"ended_at": None, "error": None}
    starts = [{**s, **empty, "span_data": {"type": s["span_data"]["type"], "input": None}} for s in spans]
    return [
        {"event": "trace_start", "trace": trace},
        *({"event": "span_start", "span": span} for span in starts),
        *({"event": "span_end", "span": span} for span in spans),
    ]


@pytest.mark.parametrize("shape", ["lines", "batch", "events"])
def test_spans_of_the_openai_agents_sdk_become_one_conversation(shape: str, tmp_path: Path) -> None:
    rows = {"batch": [{"data": agents_trace()}], "events": processor_events()}.get(shape, agents_trace())
    run, report = read_one("openai_agents", write(tmp_path / "t.jsonl", rows), tmp_path)
    check(run.trajectory, "gpt-5-mini")
    assert (run.trajectory.agent.name, run.trajectory.extra["workflow"]) == ("Clerk", "Orders")
    assert report.rejected == []


def test_response_spans_are_read_with_their_content_and_refused_with_a_remedy_without_it(tmp_path: Path) -> None:
    run, _ = read_one("openai_agents", write(tmp_path / "full.jsonl", response_trace(content=True)), tmp_path)
    check(run.trajectory, "gpt-5-mini")
    assert [tool["function"]["name"] for tool in run.trajectory.tools] == ["get_order"]
    bare = read(write(tmp_path / "bare.jsonl", response_trace(content=False)), tmp_path)
    assert bare.runs == []
    assert "have the exporter add `input` and `response`" in bare.report.rejected[0][1]


def test_an_agent_that_exceeded_its_turns_was_truncated(tmp_path: Path) -> None:
    error = {"message": "Max turns exceeded", "data": {"max_turns": 2}}
    run, _ = read_one("openai_agents", write(tmp_path / "t.jsonl", agents_trace(error=error)), tmp_path)
    assert (run.trajectory.outcome.status.value, run.trajectory.outcome.exit_status) == (
        "truncated",
        "Max turns exceeded",
    )


# --- MLflow ----------------------------------------------------------------------------------------------------------


def mlflow_span(n: int, kind: str, inputs: Any, outputs: Any, **more: Any) -> dict[str, Any]:
    error = more.pop("error", "")
    values = {"traceRequestId": "tr-1", "spanType": kind, "spanInputs": inputs, "spanOutputs": outputs, **more}
    return {
        "trace_id": "dDE=",
        "span_id": f"s{n}",
        "parent_span_id": "s0" if n else None,
        "name": {"TOOL": "get_order", "AGENT": "clerk"}.get(kind, "Completions"),
        "start_time_unix_nano": (1_760_000_000 + n) * 10**9,
        "end_time_unix_nano": (1_760_000_001 + n) * 10**9,
        "events": [],
        "status": {"code": "STATUS_CODE_ERROR" if error else "STATUS_CODE_OK", "message": error},
        "attributes": {f"mlflow.{key}": json.dumps(value) for key, value in values.items() if value is not None},
    }


def mlflow_trace(*, error: str = "") -> dict[str, Any]:
    counted = {"chat.tokenUsage": {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}}
    more = {**counted, "llm.model": "gpt-5-mini-2025", "chat.tools": [TOOL]}
    first, last = ({"choices": [{"index": 0, "message": turn}]} for turn in (ASKED, ANSWER))
    spans = [
        mlflow_span(0, "AGENT", {"q": "Where?"}, "Order 7 has shipped.", error=error),
        mlflow_span(1, "CHAT_MODEL", {"model": "gpt-5-mini", "messages": BEGIN}, first, **more),
        mlflow_span(2, "TOOL", {"id": 7}, "shipped"),
        mlflow_span(3, "TOOL", {"id": 8}, None, error="ValueError: no order 8"),
        mlflow_span(4, "CHAT_MODEL", {"model": "gpt-5-mini", "messages": [*BEGIN, ASKED, *RESULTS]}, last, **more),
    ]
    feedback = [
        {"assessment_name": "helpful", "feedback": {"value": True}, "valid": True},
        {"assessment_name": "helpful", "feedback": {"value": False}, "valid": False},
        {"assessment_name": "answer", "expectation": {"value": "shipped"}, "valid": True},
    ]
    info = {"trace_id": "tr-1", "state": "OK", "assessments": feedback, "tags": {"mlflow.traceName": "clerk"}}
    return {"info": {**info, "trace_metadata": {"mlflow.trace.session": "k1"}}, "data": {"spans": spans}}


def frame_row(trace: dict[str, Any]) -> dict[str, Any]:
    """As pandas writes a row of `search_traces()`."""
    info = trace["info"]
    return {"trace_id": "tr-1", "trace": json.dumps(trace), "spans": trace["data"]["spans"], "state": "OK", **info}


def older(trace: dict[str, Any]) -> dict[str, Any]:
    """As MLflow 2 writes a trace."""
    spans = []
    for span in trace["data"]["spans"]:
        kept = {
            "name": span["name"],
            "attributes": span["attributes"],
            "events": [],
            "parent_id": span["parent_span_id"],
        }
        kept |= {"context": {"trace_id": "t1", "span_id": span["span_id"]}, "start_time": span["start_time_unix_nano"]}
        code = span["status"]["code"].removeprefix("STATUS_CODE_")
        spans.append({**kept, "status_code": code, "status_message": span["status"]["message"]})
    return {"info": {"request_id": "tr-1", "status": "OK"}, "data": {"spans": spans, "request": "{}"}}


@pytest.mark.parametrize("shape", ["document", "line", "frame", "older", "databricks"])
def test_mlflow_traces_are_read_in_every_shape_that_mlflow_gives_them(shape: str, tmp_path: Path) -> None:
    trace = mlflow_trace()
    served = {"request_id": "1", "response": json.dumps({"databricks_output": {"trace": trace}})}
    rows = {"line": [trace], "frame": [frame_row(trace)], "older": [older(trace)], "databricks": [served]}
    name = "trace.json" if shape == "document" else "traces.jsonl"
    run, report = read_one("mlflow", write(tmp_path / name, rows.get(shape, trace)), tmp_path)
    check(run.trajectory, "gpt-5-mini-2025")
    assert (run.trajectory.agent.name, run.trajectory.session_id, report.rejected) == ("clerk", "tr-1", [])
    assert [tool["function"]["name"] for tool in run.trajectory.tools] == ["get_order"]


def test_feedback_in_an_mlflow_trace_is_a_score_and_no_verdict_and_a_failed_root_is_an_error(tmp_path: Path) -> None:
    good, _ = read_one("mlflow", write(tmp_path / "good.json", mlflow_trace()), tmp_path)
    bad, _ = read_one("mlflow", write(tmp_path / "bad.json", mlflow_trace(error="ValueError: x")), tmp_path)
    assert (good.trajectory.outcome.status.value, good.trajectory.outcome.scores) == ("unknown", {"helpful": 1.0})
    assert (bad.trajectory.outcome.status.value, bad.trajectory.outcome.exit_status) == ("error", "ValueError: x")
    assert good.trajectory.extra["session"] == "k1"


# --- Weave -----------------------------------------------------------------------------------------------------------


def weave_call(n: int, op: str, inputs: dict[str, Any], output: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": f"call-{n}",
        "project_id": "me/orders",
        "op_name": f"weave:///me/orders/op/{op}:pHDThcXUpya7I5A9gPcs60n7e8nTFEaLWo4MTyGJ9OY",
        "display_name": None,
        "trace_id": "trace-1",
        "parent_id": "call-0" if n else None,
        "started_at": f"2026-01-01T00:00:{n:02}.5Z",
        "attributes": {"weave": {"client_version": "0.51.50", "source": "python-sdk"}},
        "inputs": inputs,
        "ended_at": f"2026-01-01T00:00:{n + 1:02}Z",
        "exception": None,
        "output": output,
        "summary": {},
        **more,
    }


def weave_trace(*, error: str | None = None) -> list[dict[str, Any]]:
    counts = {"prompt_tokens": 100, "completion_tokens": 10, "requests": 1, "total_tokens": 110}
    unset = "<openai.Omit object at 0x7f11ce72ff10>"
    given = {"self": "<openai.resources.Completions object at 0x7f11ca0e2e90>", "model": "gpt-5-mini", "tools": [TOOL]}
    first, last = (
        {"id": "x", "model": "gpt-5-mini-2025", "choices": [{"index": 0, "message": turn}], "usage": counts}
        for turn in (ASKED, ANSWER)
    )
    counted = {"usage": {"gpt-5-mini-2025": counts}}
    create = "openai.chat.completions.create"
    failed = json.dumps({"type": "ValueError", "message": "no order 8", "traceback": [{"filename": "a.py"}]})
    summary = {"usage": {"gpt-5-mini-2025": {"prompt_tokens": 200}}, "status_counts": {"success": 4, "error": 1}}
    return [
        weave_call(0, "clerk", {"q": "Where?"}, "Order 7 has shipped.", summary=summary, exception=error),
        weave_call(1, create, {**given, "messages": BEGIN, "seed": unset}, first, summary=counted),
        weave_call(2, "get_order", {"id": 7}, "shipped"),
        weave_call(3, "get_order", {"id": 8}, None, exception=failed),
        weave_call(4, "log", {"text": "x"}, None),
        weave_call(
            5, create, {**given, "messages": [*BEGIN, ASKED, *RESULTS], "system": "NOT_GIVEN"}, last, summary=counted
        ),
    ]


def test_weave_calls_become_one_conversation_and_only_calls_that_a_model_asked_for_are_tools(tmp_path: Path) -> None:
    run, report = read_one("weave", write(tmp_path / "calls.jsonl", weave_trace()), tmp_path)
    check(run.trajectory, "gpt-5-mini-2025")
    assert (run.trajectory.agent.name, run.trajectory.session_id) == ("clerk", "trace-1")
    assert [tool["function"]["name"] for tool in run.trajectory.tools] == ["get_order"]
    assert report.unknown == {"call: clerk": 1, "call: log": 1}


def test_a_weave_trace_whose_outermost_call_failed_is_an_error(tmp_path: Path) -> None:
    error = 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: no stock\n'
    run, _ = read_one("weave", write(tmp_path / "calls.json", weave_trace(error=error)), tmp_path)
    assert (run.trajectory.outcome.status.value, run.trajectory.outcome.exit_status) == (
        "error",
        "ValueError: no stock",
    )
