"""Readers of traces that agent frameworks and MLflow write: the OpenAI Agents SDK, MLflow, Weave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_logs import function_call, message, outline, read, read_log, read_one, write
from quintain.records.trajectory import Trajectory
from small_logs import small_log

CALLS = [function_call("get_order", '{"id": 7}', "c1"), function_call("get_order", '{"id": 8}', "c2")]
BEGIN = [message("system", "You are a clerk."), message("user", "Where are orders 7 and 8?")]
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
    *spans, agent = small_log("openai_agents")
    return [*spans, {**agent, "error": error}]


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


def test_an_agent_to_whom_another_hands_over_has_a_run_with_its_own_system_prompt(tmp_path: Path) -> None:
    def answered(n: int, agent: int, asked: list[Any], answer: dict[str, Any]) -> dict[str, Any]:
        said = agents_span(n, "generation", model="m", input=asked, output=[answer])
        return {**said, "parent_id": f"span_{agent}"}

    handover = message("assistant", None, tool_calls=[function_call("transfer_to_clerk", "{}", "c0")])
    taken = message("tool", "Clerk", tool_call_id="c0")
    history = [BEGIN[1], handover, taken]
    back = [*history, message("assistant", "It has shipped."), message("user", "Thanks.")]
    desk, clerk = message("system", "Hand over."), BEGIN[0]
    spans = [
        agents_span(1, "agent", name="Desk"),
        agents_span(3, "agent", name="Clerk"),
        answered(2, 1, [desk, BEGIN[1]], handover),
        answered(4, 3, [clerk, *history], message("assistant", "It has shipped.")),
        answered(5, 3, [clerk, *back], message("assistant", "Bye.")),
    ]
    read_file = read(write(tmp_path / "t.jsonl", [{"object": "trace", "id": "trace_1"}, *spans]), tmp_path)
    first, second = read_file.runs
    asked = "user: Where are orders 7 and 8?"
    assert outline(first) == ["system: Hand over.", asked, "agent:  > transfer_to_clerk(c0)"]
    assert outline(second) == [
        "system: You are a clerk.",
        asked,
        "agent:  > transfer_to_clerk(c0) < Clerk(c0)",
        "agent: It has shipped.",
        "user: Thanks.",
        "agent: Bye.",
    ]
    assert [run.trajectory.agent.name for run in read_file.runs] == ["Desk", "Clerk"]
    assert [step.copied_context for step in second.trajectory.agent_steps] == [True, False, False]
    assert second.parent == first.key


def test_results_that_only_records_of_tools_have_stand_in_the_order_of_calls_without_ids(tmp_path: Path) -> None:
    """The tool of the second call ends first."""

    def call(n: int, name: str, inputs: Any, output: Any) -> dict[str, Any]:
        place = {
            "id": f"w{n}",
            "trace_id": "t1",
            "parent_id": "w0" if n else None,
            "started_at": f"2026-01-01T00:00:0{n}Z",
        }
        return {**place, "op_name": f"weave:///team/project/op/{name}:v1", "inputs": inputs, "output": output}

    called = [{"function": {"name": "get_order", "arguments": f'{{"id": {n}}}'}} for n in (7, 8)]
    answer = {"choices": [{"message": message("assistant", None, tool_calls=called)}]}
    rows = [
        call(0, "chat", {"model": "m", "messages": BEGIN}, answer),
        call(1, "get_order", {"id": 8}, "no order 8"),
        call(2, "get_order", {"id": 7}, "shipped"),
    ]
    run, _ = read_one("weave", write(tmp_path / "calls.jsonl", rows), tmp_path)
    assert [seen.content for seen in run.trajectory.agent_steps[0].observations] == ["shipped", "no order 8"]


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


def mlflow_trace(*, error: str = "") -> dict[str, Any]:
    trace = small_log("mlflow")
    if error:
        trace["data"]["spans"][0]["status"] = {"code": "STATUS_CODE_ERROR", "message": error}
    return trace


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


def test_a_call_outside_of_the_agents_of_an_mlflow_trace_is_none_of_theirs(tmp_path: Path) -> None:
    trace = small_log("mlflow")
    spans = trace["data"]["spans"]
    called = next(span for span in spans if "CHAT_MODEL" in json.dumps(span))
    asked = {"model": "m", "messages": [message("system", "Criticise."), message("user", "It has shipped.")]}
    answered = {"choices": [{"message": message("assistant", "Short.")}]}
    given = {"mlflow.spanInputs": json.dumps(asked), "mlflow.spanOutputs": json.dumps(answered)}
    root = {key: value for key, value in called.items() if key not in ("parent_id", "parent_span_id")}
    spans.append({**root, "span_id": "ffffffffffffffff", "attributes": {**called["attributes"], **given}})
    trace["info"]["tags"] = {**(trace["info"].get("tags") or {}), "mlflow.traceName": "pipeline"}
    found = read(write(tmp_path / "t.json", trace), tmp_path)
    names = {outline(run)[0]: run.trajectory.agent.name for run in found.runs}
    assert names["system: Criticise."] == "pipeline"
    assert len(set(names.values())) == 2


def test_feedback_in_an_mlflow_trace_is_a_score_and_no_verdict_and_a_failed_root_is_an_error(tmp_path: Path) -> None:
    good, _ = read_one("mlflow", write(tmp_path / "good.json", mlflow_trace()), tmp_path)
    bad, _ = read_one("mlflow", write(tmp_path / "bad.json", mlflow_trace(error="ValueError: x")), tmp_path)
    assert (good.trajectory.outcome.status.value, good.trajectory.outcome.scores) == ("unknown", {"helpful": 1.0})
    assert (bad.trajectory.outcome.status.value, bad.trajectory.outcome.exit_status) == ("error", "ValueError: x")
    assert good.trajectory.extra["session"] == "k1"


# --- Weave -----------------------------------------------------------------------------------------------------------


def test_weave_calls_become_one_conversation_and_only_calls_that_a_model_asked_for_are_tools() -> None:
    run, report = read_log("weave")
    check(run.trajectory, "gpt-5-mini-2025")
    assert (run.trajectory.agent.name, run.trajectory.session_id) == ("clerk", "trace-1")
    assert [tool["function"]["name"] for tool in run.trajectory.tools] == ["get_order"]
    assert report.unknown == {"call: clerk": 1, "call: log": 1}


def test_a_trace_without_a_model_call_is_the_input_and_output_of_its_outermost_call(tmp_path: Path) -> None:
    asked, answered = {"question": "Where are orders 7 and 8?"}, "Order 7 has shipped."
    trace, (call, *_) = small_log("mlflow"), small_log("weave")
    (root, *_) = trace["data"]["spans"]
    root["attributes"] |= {"mlflow.spanInputs": json.dumps(asked), "mlflow.spanOutputs": json.dumps(answered)}
    trace["data"]["spans"] = [root]
    for format, value in (("mlflow", trace), ("weave", [{**call, "summary": {}, "inputs": asked, "output": answered}])):
        run, report = read_one(format, write(tmp_path / f"{format}.json", value), tmp_path)
        assert outline(run) == [EXPECTED[1], EXPECTED[3]]
        assert any("no model calls" in note for note in report.notes)


def test_a_weave_trace_whose_outermost_call_failed_is_an_error(tmp_path: Path) -> None:
    error = 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: no stock\n'
    root, *calls = small_log("weave")
    run, _ = read_one("weave", write(tmp_path / "calls.json", [{**root, "exception": error}, *calls]), tmp_path)
    assert (run.trajectory.outcome.status.value, run.trajectory.outcome.exit_status) == (
        "error",
        "ValueError: no stock",
    )
