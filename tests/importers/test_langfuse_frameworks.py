"""Langfuse shows each framework's calls in a shape of its own; all become calls with their results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_logs import message, outline, read, write
from trace_logs import BEGIN, OAI_CALL, OAI_TOOL, fuse

Recorded = list[dict[str, Any]]

ASKED, USER = BEGIN
GEMINI_USER = {"role": "user", "parts": [{"text": "Where is order 7?"}]}
GEMINI_CALL = {"role": "model", "parts": [{"function_call": {"name": "get_order", "args": {"id": 7}}}]}
GEMINI_RESULT = {
    "role": "user",
    "parts": [{"function_response": {"name": "get_order", "response": {"result": "shipped"}}}],
}
GEMINI = {
    "config": {
        "system_instruction": "You are a clerk.",
        "tools": [{"function_declarations": [OAI_TOOL["function"]]}],
    }
}
LANGCHAIN_CALL = {"role": "assistant", "content": "", "additional_kwargs": {"tool_calls": OAI_CALL}}
CALLS_AS_TEXT = json.dumps([{"function": OAI_CALL[0]["function"], "id": "c1", "type": "function"}])
MS_RESULT = json.dumps({"type": "function_result", "call_id": "c1", "result": "shipped"})
DONE = message("assistant", "It has shipped.")


def attributes(**fields: Any) -> dict[str, Any]:
    return {"metadata": json.dumps({"attributes": fields})}


def adk() -> Recorded:
    asked = {**GEMINI, "contents": [GEMINI_USER]}
    answered = {**GEMINI, "contents": [GEMINI_USER, GEMINI_CALL, GEMINI_RESULT]}
    said = {"role": "model", "parts": [{"text": "It has shipped."}]}
    return [
        fuse(1, "GENERATION", json.dumps(asked), json.dumps({"content": GEMINI_CALL, "finish_reason": "STOP"})),
        fuse(2, "TOOL", "{}", "{}", **attributes(**{"gen_ai.tool.name": "get_order"}), name="execute_tool get_order"),
        fuse(3, "GENERATION", json.dumps(answered), json.dumps({"content": said, "finish_reason": "STOP"})),
    ]


def koog() -> Recorded:
    """Koog: the calls of an answer are the text of a message, and those of a history messages of the role `tool`."""
    call, result = {"role": "tool", "content": CALLS_AS_TEXT}, {"role": "tool", "content": "shipped"}
    return [
        fuse(1, "GENERATION", BEGIN, [{"role": "assistant", "content": CALLS_AS_TEXT, "finish_reason": "tool_calls"}]),
        fuse(2, "GENERATION", [*BEGIN, call, result], [DONE]),
    ]


def langgraph() -> Recorded:
    """LangGraph by Langfuse's handler: the schemas of the tools are messages of the role `tool`."""
    schema = {"role": "tool", "content": OAI_TOOL}
    result = {"role": "tool", "content": "shipped", "tool_call_id": "c1"}
    return [
        fuse(1, "GENERATION", [*BEGIN, schema], LANGCHAIN_CALL),
        fuse(2, "GENERATION", [*BEGIN, LANGCHAIN_CALL, result, schema], DONE),
    ]


def langgraph_js() -> Recorded:
    """LangGraph for JavaScript: the role of a result is the name of its tool."""
    call = message("assistant", "", tool_calls=OAI_CALL)
    result = {"role": "get_order", "content": "shipped", "additional_kwargs": {}}
    return [fuse(1, "GENERATION", BEGIN, call), fuse(2, "GENERATION", [*BEGIN, call, result], DONE)]


def ai_sdk() -> Recorded:
    """AI SDK: an answer is a list of calls alone, and only the tool's span has the result."""
    call = [{"toolCallId": "c1", "toolName": "get_order", "input": '{"id": 7}'}]
    known = attributes(**{"ai.toolCall.name": "get_order", "ai.toolCall.id": "c1"})
    return [
        fuse(1, "GENERATION", json.dumps({"system": ASKED["content"], "prompt": USER["content"]}), json.dumps(call)),
        fuse(2, "TOOL", {"id": 7}, "shipped", **known),
        fuse(3, "GENERATION", [*BEGIN, message("assistant", None, tool_calls=OAI_CALL)], DONE),
    ]


def agent_framework() -> Recorded:
    """Microsoft's Agent Framework: a result is an object that repeats the call's id."""
    call = [{"type": "tool_call", "id": "c1", "name": "get_order", "arguments": '{"id": 7}'}]
    result = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": MS_RESULT}]}
    return [
        fuse(1, "GENERATION", BEGIN, [{"role": "assistant", "parts": call}]),
        fuse(2, "GENERATION", [*BEGIN, {"role": "assistant", "parts": call}, result], [DONE]),
    ]


def agno() -> Recorded:
    """Agno: the input is printed objects, and the attributes of the span have the messages."""
    named = {f"llm.input_messages.{n}.message.{key}": one[key] for n, one in enumerate(BEGIN) for key in one}
    printed = {"messages": [f"role={one['role']!r} content={one['content']!r} name=None" for one in BEGIN]}
    answer = {"choices": [{"message": message("assistant", None, tool_calls=OAI_CALL)}]}
    return [
        fuse(1, "GENERATION", json.dumps(printed), json.dumps(answer), **attributes(**named)),
        fuse(2, "TOOL", {"input": {"id": 7}}, {"content": [{"type": "text", "text": "shipped"}]}),
        fuse(3, "GENERATION", [*BEGIN, message("assistant", None, tool_calls=OAI_CALL)], DONE),
    ]


@pytest.mark.parametrize(
    ("recorded", "call_id", "result", "schema"),
    [
        (adk, None, '{"result": "shipped"}', True),
        (koog, "c1", "shipped", False),
        (langgraph, "c1", "shipped", True),
        (langgraph_js, "c1", "shipped", False),
        (ai_sdk, "c1", "shipped", False),
        (agent_framework, "c1", "shipped", False),
        (agno, "c1", "shipped", False),
    ],
)
def test_calls_and_results_of_every_framework_come_in(
    recorded: Any, call_id: str | None, result: str, schema: bool, tmp_path: Path
) -> None:
    run = read(write(tmp_path / "trace.json", {"trace": {"id": "t1"}, "observations": recorded()}), tmp_path).only
    steps = run.agent_steps
    assert [len(step.actions) for step in steps] == [1, 0]
    call, answer = steps[0].actions[0], steps[0].observations[0]
    assert (call.tool, call.args, steps[0].message) == ("get_order", {"id": 7}, "")
    assert len(steps[0].observations) == 1
    assert answer.content == result
    assert answer.call_id == call.call_id
    assert call_id in (None, call.call_id)
    assert [line for line in outline(run) if " > " not in line] == [
        "system: You are a clerk.",
        "user: Where is order 7?",
        "agent: It has shipped.",
    ]
    assert ("description" in run.tools[0]["function"]) is schema


def test_results_between_several_messages_of_one_answer_stay_at_their_calls(tmp_path: Path) -> None:
    calls = [
        {"role": "assistant", "content": None, "tool_calls": [{**OAI_CALL[0], "id": call_id}]} for call_id in ("a", "b")
    ]
    results = [message("tool", text, tool_call_id=call_id) for text, call_id in (("one", "a"), ("two", "b"))]
    history = [BEGIN[1], calls[0], results[0], calls[1], results[1]]
    recorded = [fuse(1, "GENERATION", BEGIN[1:], calls), fuse(2, "GENERATION", history, DONE)]
    run = read(write(tmp_path / "trace.json", {"trace": {"id": "t1"}, "observations": recorded}), tmp_path).only
    assert [[seen.content for seen in step.observations] for step in run.agent_steps] == [["one"], ["two"], []]


@pytest.mark.parametrize(
    "known",
    [
        {"gen_ai.tool.definitions": json.dumps([OAI_TOOL])},
        {"gen_ai.tool.definitions": json.dumps([{"type": "function", **OAI_TOOL["function"]}])},
        {
            "model_request_parameters": {
                "function_tools": [
                    {
                        "name": "get_order",
                        "description": OAI_TOOL["function"].get("description"),
                        "parameters_json_schema": OAI_TOOL["function"]["parameters"],
                    }
                ]
            }
        },
    ],
    ids=["OpenTelemetry", "Microsoft.Extensions.AI", "Pydantic AI"],
)
def test_tools_and_instructions_in_the_attributes_of_a_call_are_its_tools_and_its_system_prompt(
    tmp_path: Path, known: dict[str, Any]
) -> None:
    instructions = {"gen_ai.system_instructions": json.dumps([{"type": "text", "content": "You are a clerk."}])}
    answer = {"role": "assistant", "content": None, "tool_calls": OAI_CALL}
    call = fuse(0, "GENERATION", [USER], [answer], **attributes(**known, **instructions))
    run = read(write(tmp_path / "o.json", {"data": [call], "meta": {}}), tmp_path).only
    assert outline(run)[:2] == ["system: You are a clerk.", "user: Where is order 7?"]
    assert [tool["function"]["parameters"] for tool in run.tools] == [OAI_TOOL["function"]["parameters"]]
    assert "tools" not in run.extra, "they are the log's, not inferred"


def test_calls_whose_input_was_lost_go_on_with_the_call_before_under_the_same_span(tmp_path: Path) -> None:
    """Claude's Agent SDK by LangSmith: the first input is the prompt, the others are the names of a message's fields."""
    use = {"type": "tool_use", "id": "u1", "name": "get_order", "input": {"id": 7}}
    lost = json.dumps({"content": "role"})
    asked = {"prompt": "Where is order 7?", "system": "You are a clerk."}
    recorded = [
        fuse(0, "SPAN", json.dumps(asked), DONE, name="conversation"),
        fuse(1, "GENERATION", USER, message("assistant", [{"type": "text", "text": "I look."}])),
        fuse(2, "GENERATION", lost, message("assistant", [use])),
        fuse(3, "TOOL", {"input": {"id": 7}}, {"content": [{"type": "text", "text": "shipped"}]}),
        fuse(4, "GENERATION", lost, DONE),
    ]
    run = read(write(tmp_path / "trace.json", {"trace": {"id": "t1"}, "observations": recorded}), tmp_path).only
    assert outline(run) == [
        "system: You are a clerk.",
        "user: Where is order 7?",
        "agent: I look.",
        "agent:  > get_order(u1) < shipped(u1)",
        "agent: It has shipped.",
    ]
    assert not any(step.copied_context for step in run.steps)


def test_the_last_answer_is_taken_from_the_agents_record_where_no_generation_has_it(tmp_path: Path) -> None:
    """BeeAI by OpenInference: generations without an output, and messages of the agent with `text` beside the role."""
    thought = {"role": "assistant", "content": [{"type": "text", "text": "Thought: I look. Output: shipped"}]}
    another = message("assistant", "Thought: I have it.")
    beside = [{"role": one["role"], "text": one["content"]} for one in BEGIN]
    beside += [{"role": "assistant", "text": thought["content"][0]["text"]}]
    beside += [{"role": "assistant", "text": one["content"]} for one in (another, DONE)]
    recorded = [
        fuse(0, "SPAN", USER["content"], None),
        fuse(1, "GENERATION", json.dumps(BEGIN), None),
        fuse(2, "SPAN", json.dumps(beside[:3]), None),
        fuse(3, "GENERATION", json.dumps([*BEGIN, thought]), None),
        fuse(4, "GENERATION", json.dumps([*BEGIN, thought, another]), None),
        fuse(5, "SPAN", json.dumps(beside), json.dumps(DONE)),
    ]
    found = read(write(tmp_path / "trace.json", {"trace": {"id": "t1"}, "observations": recorded}), tmp_path)
    assert outline(found.only)[1:] == [
        "user: Where is order 7?",
        "agent: Thought: I look. Output: shipped",
        "agent: Thought: I have it.",
        "agent: It has shipped.",
    ]
    assert [(step.copied_context, step.train) for step in found.only.agent_steps] == [
        *[(True, None)] * 2,
        (False, False),
    ]
    assert any("is not trained on" in note for note in found.report.notes)
