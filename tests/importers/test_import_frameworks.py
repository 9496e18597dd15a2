"""Readers of agent frameworks: Pydantic AI, smolagents, the AI SDK, AutoGen, CrewAI, Google ADK, Agno."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_logs import outline, read, read_as, read_one, write
from quintain.records.trajectory import Trajectory

TIME = "2026-01-01T00:00:00Z"


def usage(run: Trajectory) -> list[tuple[int | None, int | None] | None]:
    steps = (step.usage for step in run.agent_steps)
    return [used and (used.input_tokens, used.output_tokens) for used in steps]


# --- Pydantic AI -----------------------------------------------------------------------------------------------------


def asks(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"kind": "request", "parts": list(parts), "timestamp": TIME, **more}


def answers(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"kind": "response", "parts": list(parts), "timestamp": TIME, "model_name": "gpt-5-mini", **more}


def part(kind: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"part_kind": kind, "content": content, **more}


def called(call_id: str, args: Any) -> dict[str, Any]:
    return {"part_kind": "tool-call", "tool_name": "get_order", "args": args, "tool_call_id": call_id}


def returned(call_id: str, content: Any, kind: str = "tool-return", **more: Any) -> dict[str, Any]:
    return {"part_kind": kind, "tool_name": "get_order", "content": content, "tool_call_id": call_id, **more}


HISTORY = [
    asks(
        part("system-prompt", "You are a clerk."),
        part("user-prompt", "Where are orders 7 and 8?", timestamp=TIME),
        instructions="Be brief.",
    ),
    answers(
        part("thinking", "I need both."),
        part("text", "Let me look."),
        called("c1", {"id": 7}),
        called("c2", '{"id": 8}'),
        called("c3", {"id": "x"}),
        usage={"input_tokens": 100, "output_tokens": 10, "cache_read_tokens": 60},
        finish_reason="tool_call",
        conversation_id="k1",
    ),
    asks(
        returned("c1", {"state": "shipped"}, outcome="success"),
        returned("c2", "no order 8", outcome="retried"),
        returned("c3", [{"type": "int_parsing", "msg": "no integer"}], "retry-prompt"),
        instructions="Be brief.",
    ),
    answers(part("text", "Order 7 has shipped."), usage={"request_tokens": 120, "response_tokens": 8}),
]


def test_a_pydantic_ai_history_keeps_thoughts_calls_and_failed_results_apart(tmp_path: Path) -> None:
    run, report = read_one("pydantic_ai", write(tmp_path / "history.json", HISTORY), tmp_path)
    assert outline(run) == [
        "system: You are a clerk.",
        "system: Be brief.",
        "user: Where are orders 7 and 8?",
        "agent: Let me look. > get_order(c1) > get_order(c2) > get_order(c3)"
        ' < {"state": "shipped"}(c1) < !no order 8(c2) < ![{"type": "int_parsing", "msg": "no integer"}](c3)',
        "agent: Order 7 has shipped.",
    ]
    made, first = run.trajectory, run.trajectory.agent_steps[0]
    assert (first.thought, first.model, first.extra) == ("I need both.", "gpt-5-mini", {"finish_reason": "tool_call"})
    assert first.timestamp is not None
    assert usage(made) == [(100, 10), (120, 8)]
    assert [call.args for call in first.actions] == [{"id": 7}, {"id": 8}, {"id": "x"}]
    assert (made.session_id, made.outcome.status.value, report.rejected) == ("k1", "unknown", [])


def test_pydantic_ai_histories_are_read_from_lines_and_from_columns_of_records(tmp_path: Path) -> None:
    lines = read(write(tmp_path / "lines.jsonl", [HISTORY, HISTORY]), tmp_path)
    rows = read(write(tmp_path / "rows.jsonl", [{"id": 1, "message_list": HISTORY}]), tmp_path)
    assert (lines.format, len(lines.runs), rows.format, len(rows.runs)) == ("pydantic_ai", 2, "pydantic_ai", 1)


def test_files_in_a_pydantic_ai_prompt_are_images_and_not_text(tmp_path: Path) -> None:
    content = [
        "What is it?",
        {"kind": "image-url", "url": "https://x.org/a.png", "media_type": "image/png"},
        {"kind": "binary", "data": "_-8=", "media_type": "image/png"},
    ]
    history = [asks(part("user-prompt", content)), answers(part("text", "A cat."))]
    run, _ = read_one("pydantic_ai", write(tmp_path / "history.json", history), tmp_path)
    text, link, inline = run.trajectory.steps[0].message
    assert [getattr(text, "text", None), getattr(link, "uri", None)] == ["What is it?", "https://x.org/a.png"]
    assert str(getattr(inline, "uri", "")).startswith("urn:sha256:")


# --- smolagents ------------------------------------------------------------------------------------------------------


def smol_call(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def action(output: Any, calls: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    prompt = {"role": "system", "content": [{"type": "text", "text": "You are a clerk."}]}
    return {
        "step_number": 1,
        "timing": {"start_time": 1760000000.25, "end_time": 1760000001.0, "duration": 0.75},
        "model_input_messages": [prompt, {"role": "user", "content": [{"type": "text", "text": "New task:\nx"}]}],
        "tool_calls": calls,
        "error": None,
        "model_output_message": {"role": "assistant", "content": output, "tool_calls": calls or None, "raw": None},
        "model_output": output,
        "code_action": None,
        "observations": None,
        "observations_images": None,
        "action_output": None,
        "token_usage": {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110},
        "is_final_answer": False,
        **more,
    }


TASK = {"task": "Where is order 7?", "task_images": None}
TOOL_STEPS = [
    TASK,
    action(
        "I need both.",
        [smol_call("c1", "get_order", {"id": 7}), smol_call("c2", "get_order", {"id": 9})],
        observations="order 7 shipped\norder 9 lost",
    ),
    action(
        "",
        [],
        model_output_message={
            "role": "assistant",
            "content": "",
            "tool_calls": [smol_call("c3", "get_order", {"id": 8})],
        },
        error={"type": "AgentToolExecutionError", "message": "Error executing tool 'get_order': no order 8"},
    ),
    action(
        None, [smol_call("c4", "final_answer", {"answer": "shipped"})], observations="shipped", is_final_answer=True
    ),
]


def test_smolagents_tool_calls_get_their_lines_of_the_shared_observation_and_their_errors(tmp_path: Path) -> None:
    run, _ = read_one("smolagents", write(tmp_path / "steps.json", TOOL_STEPS), tmp_path)
    assert outline(run) == [
        "system: You are a clerk.",
        "user: Where is order 7?",
        "agent: I need both. > get_order(c1) > get_order(c2) < order 7 shipped(c1) < order 9 lost(c2)",
        "agent:  > get_order(c3) < !Error executing tool 'get_order': no order 8(c3)",
        "agent:  > final_answer(c4) < shipped(c4)",
    ]
    assert usage(run.trajectory) == [(100, 10)] * 3
    assert run.trajectory.agent_steps[0].timestamp is not None
    assert run.trajectory.outcome.status.value == "unknown"


def smol_message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text}], "tool_calls": None, "raw": None}


def smol_calls(*calls: dict[str, Any]) -> dict[str, Any]:
    """As `ActionStep.to_messages` writes calls."""
    return smol_message("tool-call", "Calling tools:\n" + str(list(calls)))


def test_answers_of_the_smolagents_benchmark_have_the_turns_before_them(tmp_path: Path) -> None:
    one, two = smol_call("c1", "get_order", {"id": 7}), smol_call("c2", "get_order", {"id": 8})
    failed, code = smol_call("c3", "get_order", {"id": 9}), smol_call("c4", "python_interpreter", "print(7)")
    begin = [smol_message("system", "You are a clerk."), smol_message("user", "New task:\nWhere are they?")]
    steps = [
        *begin,
        smol_message("assistant", "I need both."),
        smol_calls(one, two),
        smol_message("tool-response", "Observation:\nshipped\nlost"),
        smol_message("assistant", "Tool call c3: calling 'get_order' with arguments: {'id': 9}"),
        smol_calls(failed),
        smol_message("tool-response", "Call id: c3\nError:\nno order 9"),
        smol_message("assistant", "Thought: look\n<code>\nprint(7)\n</code>"),
        smol_calls(code),
        smol_message("tool-response", "Observation:\n7"),
        smol_message("assistant", "Done."),
    ]
    row = {"model_id": "m", "question": "Where are they?", "answer": "lost", "true_answer": "7", "source": "MATH"}
    path = write(tmp_path / "answers.jsonl", [{**row, "intermediate_steps": steps}])
    run, _ = read_one("smolagents", path, tmp_path)
    assert outline(run) == [
        "system: You are a clerk.",
        "user: New task:\nWhere are they?",
        "agent: I need both. > get_order(c1) > get_order(c2) < shipped(c1) < lost(c2)",
        "agent:  > get_order(c3) < !no order 9(c3)",
        "agent: Thought: look\n<code>\nprint(7)\n</code>",
        "user: Observation:\n7",
        "agent: Done.",
    ]
    found = run.trajectory
    assert (found.task.prompt, found.task.metadata, found.agent.model) == ("Where are they?", {"answer": "7"}, "m")
    deep = smol_message("tool-call", "Calling tools:\n" + "[" * 10_000)
    broken, _ = read_one(
        "smolagents", write(tmp_path / "deep.json", {**row, "intermediate_steps": [*begin, deep]}), tmp_path
    )
    assert outline(broken)[2].startswith("agent: Calling tools:\n[[[")


def test_code_that_a_smolagents_model_wrote_stays_text_and_a_limit_truncates_the_run(tmp_path: Path) -> None:
    def code(text: str, **more: Any) -> dict[str, Any]:
        calls = [smol_call("call_1", "python_interpreter", text)]
        output = f"Thought: look\n<code>\n{text}\n</code>"
        message = {"role": "assistant", "content": output, "tool_calls": None}
        return action(output, calls, code_action=text, model_output_message=message, **more)

    error = {"type": "AgentExecutionError", "message": "ValueError: no order 8"}
    limit = {"type": "AgentMaxStepsError", "message": "Reached max steps."}
    steps = [
        TASK,
        {"plan": "1. look", "timing": {"start_time": 1760000000.0}, "model_input_messages": [], "token_usage": None},
        code("print(get_order(7))", observations="Execution logs:\norder 7 shipped"),
        code("get_order(8)", error=error),
        action(None, [], model_output_message=None, error=limit, action_output="It has shipped."),
    ]
    value = {"output": "It has shipped.", "state": "max_steps_error", "steps": steps, "token_usage": None, "timing": {}}
    run, _ = read_one("smolagents", write(tmp_path / "result.json", value), tmp_path)
    assert outline(run) == [
        "system: You are a clerk.",
        "user: Where is order 7?",
        "agent: 1. look",
        "user: Now proceed and carry out this plan.",
        "agent: Thought: look\n<code>\nprint(get_order(7))\n</code>",
        "user: Observation:\nExecution logs:\norder 7 shipped",
        "agent: Thought: look\n<code>\nget_order(8)\n</code>",
        "user: Error:\nValueError: no order 8",
        "agent: It has shipped.",
    ]
    assert (run.trajectory.outcome.status.value, run.trajectory.agent_steps[0].train) == ("truncated", False)


# --- AI SDK ----------------------------------------------------------------------------------------------------------


def tool_part(call_id: str, state: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool-get_order", "toolCallId": call_id, "state": state, **more}


CHAT = [
    {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Where are orders 7 and 8?"}]},
    {
        "id": "a1",
        "role": "assistant",
        "metadata": {"model": "gpt-5-mini", "createdAt": 1760000000000, "totalUsage": {"inputTokens": 200}},
        "parts": [
            {"type": "step-start"},
            {"type": "reasoning", "text": "I need both.", "state": "done"},
            {"type": "text", "text": "Let me look.", "state": "done"},
            tool_part("c1", "output-available", input={"id": 7}, output={"state": "shipped"}),
            tool_part("c2", "output-error", input={"id": 8}, errorText="no order 8"),
            tool_part("c3", "output-error", rawInput={"id": "x"}, errorText="no number"),
            {"type": "dynamic-tool", "toolName": "mail", "toolCallId": "c4", "state": "input-available", "input": {}},
            {"type": "data-chart", "data": {}},
            {"type": "step-start"},
            {"type": "text", "text": "Order 7 has shipped.", "state": "done"},
        ],
    },
    {
        "id": "u2",
        "role": "user",
        "parts": [
            {"type": "text", "text": "And this?"},
            {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,YWJj"},
        ],
    },
    {
        "id": "a2",
        "role": "assistant",
        "metadata": {"usage": {"inputTokens": 100, "outputTokens": 10}},
        "parts": [{"type": "step-start"}, {"type": "text", "text": "A cat."}],
    },
]


def test_a_message_of_the_ai_sdk_becomes_a_turn_for_each_step_with_its_calls_and_errors(tmp_path: Path) -> None:
    run, report = read_one("ai_sdk", write(tmp_path / "chat.json", CHAT), tmp_path)
    assert outline(run) == [
        "user: Where are orders 7 and 8?",
        "agent: Let me look. > get_order(c1) > get_order(c2) > get_order(c3) > mail(c4)"
        ' < {"state": "shipped"}(c1) < !no order 8(c2) < !no number(c3)',
        "agent: Order 7 has shipped.",
        "user: And this?",
        "agent: A cat.",
    ]
    first = run.trajectory.agent_steps[0]
    assert (first.thought, first.model, first.actions[2].args) == ("I need both.", "gpt-5-mini", {"id": "x"})
    assert usage(run.trajectory) == [None, None, (100, 10)], "the counts of a message are those of all its steps"
    assert len(run.trajectory.steps[3].message) == 2
    assert report.unknown["part:data"] == 1


@pytest.mark.parametrize("name", ["messages", "uiMessages"])
def test_chats_of_the_ai_sdk_are_read_from_records_too(name: str, tmp_path: Path) -> None:
    found = read(write(tmp_path / "chats.jsonl", [{"id": "k1", "model": "m", name: CHAT}] * 2), tmp_path)
    assert (found.format, [run.session_id for run in found.all]) == ("ai_sdk", ["k1", "k1"])


def test_without_marks_of_steps_the_text_after_a_result_is_a_turn_of_its_own(tmp_path: Path) -> None:
    result = tool_part("c1", "output-available", input='{"id": 7}', output="shipped")
    parts = [result, {"type": "text", "text": ""}, {"type": "text", "text": "It has shipped."}]
    chat = [CHAT[0], {"id": "a", "role": "assistant", "parts": parts}]
    run, _ = read_one("ai_sdk", write(tmp_path / "chat.json", chat), tmp_path)
    assert outline(run)[1:] == ["agent:  > get_order(c1) < shipped(c1)", "agent: It has shipped."]


def test_calls_in_the_older_form_of_the_ai_sdk_are_read(tmp_path: Path) -> None:
    inner = {"toolCallId": "c1", "toolName": "get_order", "state": "result", "args": {"id": 7}, "result": "shipped"}
    parts = [
        {"type": "step-start"},
        {"type": "tool-invocation", "toolInvocation": inner},
        {"type": "text", "text": "Yes."},
    ]
    chat = [CHAT[0], {"id": "a", "role": "assistant", "content": "Yes.", "createdAt": TIME, "parts": parts}]
    run, _ = read_one("ai_sdk", write(tmp_path / "chat.json", chat), tmp_path)
    assert outline(run)[1] == "agent: Yes. > get_order(c1) < shipped(c1)"
    assert run.trajectory.agent_steps[0].timestamp is not None


# --- AutoGen ---------------------------------------------------------------------------------------------------------


def said(kind: str, source: str, content: Any, tokens: tuple[int, int] | None = None) -> dict[str, Any]:
    counts = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]} if tokens else None
    about = {"id": "m", "source": source, "models_usage": counts, "metadata": {}, "created_at": TIME}
    return {**about, "content": content, "type": kind}


ORDER_CALLS = [
    {"id": "c1", "name": "get_order", "arguments": '{"id": 7}'},
    {"id": "c2", "name": "get_order", "arguments": '{"id": 8}'},
]
ORDERS = [
    {"call_id": "c1", "name": "get_order", "content": "shipped", "is_error": False},
    {"call_id": "c2", "name": "get_order", "content": "no order 8", "is_error": True},
]
THREAD = [
    said("TextMessage", "user", "Where are orders 7 and 8?"),
    said("ThoughtEvent", "clerk", "I need both."),
    said("ToolCallRequestEvent", "clerk", ORDER_CALLS, (100, 10)),
    said("ToolCallExecutionEvent", "clerk", ORDERS),
    said("ToolCallSummaryMessage", "clerk", "shipped\nno order 8"),
    said("TextMessage", "critic", "Say more.", (20, 2)),
    said("TextMessage", "clerk", "Order 7 has shipped.", (120, 8)),
]
CLERK = [
    "user: Where are orders 7 and 8?",
    "agent:  > get_order(c1) > get_order(c2) < shipped(c1) < !no order 8(c2)",
    "user: Say more.",
    "agent: Order 7 has shipped.",
]
CRITIC = [
    "user: Where are orders 7 and 8?",
    "user: shipped\nno order 8",
    "agent: Say more.",
    "user: Order 7 has shipped.",
]
CONTEXTS = {
    "clerk": [
        {"type": "UserMessage", "source": "user", "content": "Where are orders 7 and 8?"},
        {"type": "AssistantMessage", "source": "clerk", "content": ORDER_CALLS, "thought": "I need both."},
        {"type": "FunctionExecutionResultMessage", "content": ORDERS},
        {"type": "UserMessage", "source": "critic", "content": "Say more."},
        {"type": "AssistantMessage", "source": "clerk", "content": "Order 7 has shipped.", "thought": None},
    ],
    "critic": [
        {"type": "UserMessage", "source": "user", "content": "Where are orders 7 and 8?"},
        {"type": "UserMessage", "source": "clerk", "content": "shipped\nno order 8"},
        {"type": "AssistantMessage", "source": "critic", "content": "Say more.", "thought": None},
        {"type": "UserMessage", "source": "clerk", "content": "Order 7 has shipped."},
    ],
}


def team_state() -> dict[str, Any]:
    """As `team.save_state()` gives it."""
    agents: dict[str, Any] = {
        name: {
            "type": "ChatAgentContainerState",
            "version": "1.0.0",
            "agent_state": {"type": "AssistantAgentState", "version": "1.0.0", "llm_context": {"messages": messages}},
            "message_buffer": [],
        }
        for name, messages in CONTEXTS.items()
    }
    agents["Manager"] = {"type": "RoundRobinManagerState", "version": "1.0.0", "message_thread": THREAD}
    return {"type": "TeamState", "version": "1.0.0", "agent_states": agents}


@pytest.mark.parametrize("shape", ["result", "messages", "stream", "state"])
def test_each_agent_of_an_autogen_team_has_the_conversation_that_its_model_saw(shape: str, tmp_path: Path) -> None:
    result = {"messages": THREAD, "stop_reason": "Maximum number of messages 7 reached"}
    values: dict[str, Any] = {"messages": THREAD, "stream": [*THREAD, result], "state": team_state()}
    name = "log.jsonl" if shape == "stream" else "log.json"
    found = read(write(tmp_path / name, values.get(shape, result)), tmp_path)
    assert (found.format, [run.agent.name for run in found.all]) == ("autogen", ["clerk", "critic"])
    clerk, critic = found.all
    assert (outline(clerk), outline(critic)) == (CLERK, CRITIC)
    assert clerk.agent_steps[0].thought == "I need both."
    assert (usage(clerk), usage(critic)) == ([(100, 10), (120, 8)], [(20, 2)])
    assert clerk.agent_steps[0].timestamp is not None
    assert clerk.outcome.status.value == "unknown"


def test_in_a_chat_of_autogen_0_2_the_name_and_not_the_role_states_who_spoke(tmp_path: Path) -> None:
    calls = [{**smol_call("c1", "get_order", '{"id": 7}')}, {**smol_call("c2", "get_order", '{"id": 8}')}]
    history = [
        {"content": "Where are orders 7 and 8?", "role": "assistant", "name": "user_proxy"},
        {"content": "Let me look.", "role": "assistant", "tool_calls": calls},
        {
            "content": "shipped\n\nError: no order 8",
            "role": "tool",
            "name": "user_proxy",
            "tool_responses": [
                {"tool_call_id": "c1", "role": "tool", "content": "shipped"},
                {"tool_call_id": "c2", "role": "tool", "content": "Error: no order 8"},
            ],
        },
        {"content": "Order 7 has shipped.", "role": "user", "name": "assistant"},
    ]
    result = {"chat_id": 1, "chat_history": history, "summary": "x", "cost": {}, "human_input": []}
    for name, value in (("history.json", history), ("result.json", result)):
        run, _ = read_one("autogen_v0", write(tmp_path / name, value), tmp_path)
        assert outline(run) == [
            "user: Where are orders 7 and 8?",
            "agent: Let me look. > get_order(c1) > get_order(c2) < shipped(c1) < !Error: no order 8(c2)",
            "agent: Order 7 has shipped.",
        ]
        assert run.trajectory.agent.name == "assistant"


def test_in_a_chat_of_autogen_0_2_the_one_who_runs_code_is_no_agent(tmp_path: Path) -> None:
    said = [
        ("manager", "Count the orders."),
        ("coder", "```python\nprint(7)\n```"),
        ("terminal", "exitcode: 0 (execution succeeded)\nCode output: 7\n"),
        ("terminal", "There is no code for me to execute."),
        ("checker", "There are 7."),
    ]
    history = [
        {"content": text, "role": "user" if n else "assistant", "name": name} for n, (name, text) in enumerate(said)
    ]
    found = read(write(tmp_path / "log.json", history), tmp_path)
    assert (found.format, [run.agent.name for run in found.all]) == ("autogen_v0", ["coder", "checker"])
    for run in found.all:
        assert [step.message for step in run.steps] == [text for _, text in said], "its output stays in the context"


def test_the_chats_of_an_autogen_0_2_agent_are_read_from_either_side(tmp_path: Path) -> None:
    texts = ("Where is order 7?", "```python\nprint(7)\n```", "exitcode: 0 (execution succeeded)", "It has shipped.")
    for owner, roles in (("user_proxy", ("user", "assistant")), ("assistant", ("assistant", "user"))):
        chat = [{"content": text, "role": roles[n % 2]} for n, text in enumerate(texts)]
        value = {owner: [{"content": "Be brief.", "role": "system"}, *chat]}
        got = read(write(tmp_path / f"{owner}.json", value), tmp_path)
        assert got.format == "autogen_v0"
        actors = ("user", "agent", "user", "agent")
        expected = [f"{actor}: {text}" for actor, text in zip(actors, texts, strict=True)]
        assert outline(got.only) == ["system: Be brief.", *expected]


# --- CrewAI ----------------------------------------------------------------------------------------------------------


def task_output(messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    task = {"description": "Where are orders 7 and 8?", "expected_output": "a sentence", "agent": "Clerk\n"}
    return {**task, "raw": "Order 7 has shipped.", "output_format": "raw", "messages": messages, **more}


def test_a_crewai_task_comes_in_with_its_calls_and_the_failures_that_it_lists(tmp_path: Path) -> None:
    calls = [smol_call("c1", "get_order", '{"id": 7}'), smol_call("c2", "get_order", '{"id": 8}')]
    messages = [
        {"role": "system", "content": "You are Clerk."},
        {"role": "user", "content": "Current Task: Where are orders 7 and 8?"},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "content": "shipped", "tool_call_id": "c1", "name": "get_order"},
        {"role": "tool", "content": "no order 8", "tool_call_id": "c2", "name": "get_order"},
        {"role": "assistant", "content": "Order 7 has shipped."},
    ]
    failure = {"tool_name": "get_order", "tool_args": {"id": 8}, "failure": {"message": "no order 8"}}
    value = {"raw": "x", "tasks_output": [task_output(messages, tool_failures=[failure])], "token_usage": {}}
    run, _ = read_one("crewai", write(tmp_path / "output.json", value), tmp_path)
    assert outline(run) == [
        "system: You are Clerk.",
        "user: Current Task: Where are orders 7 and 8?",
        "agent:  > get_order(c1) > get_order(c2) < shipped(c1) < !no order 8(c2)",
        "agent: Order 7 has shipped.",
    ]
    assert (run.trajectory.agent.name, run.trajectory.task.prompt) == ("Clerk", "Where are orders 7 and 8?")


def test_an_observation_that_crewai_appended_to_a_message_is_not_the_agents_text(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": "Current Task: Where is order 7?"},
        {"role": "assistant", "content": "Thought: look\nAction: get_order\nObservation: shipped"},
        {"role": "user", "content": "Analyze the tool result."},
    ]
    run, _ = read_one("crewai", write(tmp_path / "task.json", task_output(messages)), tmp_path)
    assert outline(run)[1:] == [
        "agent: Thought: look\nAction: get_order",
        "user: Observation: shipped",
        "user: Analyze the tool result.",
        "agent: Order 7 has shipped.",
    ]
    assert run.trajectory.agent_steps[-1].train is False, "the program took it out of a message"


def test_the_log_file_of_crewai_gives_tasks_and_answers_and_says_what_is_missing(tmp_path: Path) -> None:
    entry = {"timestamp": "2026-01-01 00:00:00", "task_name": None, "task": "Where is order 7?", "agent": "Clerk"}
    rows = [{**entry, "status": "started"}, {**entry, "status": "completed", "output": "It has shipped."}]
    run, report = read_one("crewai", write(tmp_path / "logs.json", rows), tmp_path)
    assert outline(run) == ["user: Where is order 7?", "agent: It has shipped."]
    assert any("what happened between them is unknown" in note for note in report.notes)


# --- Google ADK ------------------------------------------------------------------------------------------------------


def adk_event(author: str, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    role = "user" if author == "user" or "function_response" in parts[0] else "model"
    return {"author": author, "actions": {}, "timestamp": 1.76e9, "content": {"role": role, "parts": parts}, **more}


def adk_session() -> dict[str, Any]:
    call = {"function_call": {"id": "c1", "name": "get_order", "args": {"id": 7}}}
    result = {"function_response": {"id": "c1", "name": "get_order", "response": {"status": "shipped"}}}
    usage = {"prompt_token_count": 9, "candidates_token_count": 3}
    events = [
        adk_event("user", {"text": "Where is order 7?"}),
        adk_event("desk", {"text": "I loo"}, partial=True),
        adk_event("desk", {"text": "I look.", "thought": True}, call, usage_metadata=usage, model_version="gemini-x"),
        adk_event("desk", result),
        {"author": "desk", "actions": {"state_delta": {"seen": 7}}},
        adk_event("courier", {"text": "It has shipped."}),
    ]
    return {"id": "s1", "app_name": "shop", "user_id": "u", "state": {}, "events": events}


def test_a_google_adk_session_keeps_thoughts_calls_and_the_agent_that_wrote_each_turn(tmp_path: Path) -> None:
    run, report = read_one("google_adk", write(tmp_path / "1.session.json", adk_session()), tmp_path)
    assert outline(run) == [
        "user: Where is order 7?",
        'agent:  > get_order(c1) < {"status": "shipped"}(c1)',
        "agent: It has shipped.",
    ]
    first, last = run.trajectory.agent_steps
    assert (first.thought, first.usage and first.usage.input_tokens) == ("I look.", 9)
    assert [step.extra["author"] for step in (first, last)] == ["desk", "courier"]
    made = run.trajectory
    assert (made.session_id, made.agent.name, made.agent.model) == ("s1", "shop", "gemini-x")
    assert report.unknown == {"piece of a streamed message": 1, "event without content": 1}


def test_google_adk_sessions_are_read_from_lines_and_with_the_names_of_the_web_api(tmp_path: Path) -> None:
    session = adk_session() | {"appName": "shop", "app_name": None}
    renamed = json.loads(
        json.dumps(session).replace("function_call", "functionCall").replace("function_re", "functionRe")
    )
    runs, _ = read_as("google_adk", write(tmp_path / "all.jsonl", [adk_session(), renamed]), tmp_path)
    assert outline(runs[0]) == outline(runs[1])


# --- Agno ------------------------------------------------------------------------------------------------------------


def agno_message(role: str, content: str | None, *, history: bool = False, **more: Any) -> dict[str, Any]:
    about = {"id": "m", "from_history": history, "stop_after_tool_call": False, "created_at": 1_790_000_000}
    return {"role": role, "content": content, **about, **more}


def agno_run(run_id: str, *messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    """As `RunOutput.to_dict()` writes it."""
    about = {"agent_id": "desk", "agent_name": "Desk", "session_id": "s1", "model": "gpt-5-mini", "status": "COMPLETED"}
    return {"run_id": run_id, **about, "messages": list(messages), **more}


def agno_runs() -> list[dict[str, Any]]:
    call = {"id": "c1", "type": "function", "function": {"name": "get_order", "arguments": '{"id": 7}'}}
    asked = agno_message("assistant", None, tool_calls=[call], metrics={"input_tokens": 9, "output_tokens": 3})
    failed = agno_message("tool", "no order 7", tool_call_id="c1", tool_name="get_order", tool_call_error=True)
    first = [agno_message("system", "You are a clerk."), agno_message("user", "Where is order 7?"), asked, failed]
    first += [agno_message("assistant", "It is lost.")]
    again = [first[0], *({**message, "from_history": True} for message in first[1:]), agno_message("user", "Why?")]
    member = agno_run("r3", agno_message("user", "Look."), agno_message("assistant", "Lost."), agent_name="Scout")
    last = agno_run("r2", *again, agno_message("assistant", "The truck burned."), input={"input_content": "Why?"})
    return [agno_run("r1", *first), {**last, "member_responses": [member]}]


@pytest.mark.parametrize("shape", ["runs", "session", "table"])
def test_runs_of_agno_keep_calls_failures_history_and_the_runs_of_members(tmp_path: Path, shape: str) -> None:
    runs = agno_runs()
    session = {"session_id": "s1", "session_data": {}, "agent_data": {"name": "Desk"}, "runs": [*runs, runs[0]]}
    row = {"session_id": "s1", "run_type": "agent", "parent_run_id": None, "status": "COMPLETED"}
    table = [{**row, "run_id": run["run_id"], "run_data": run} for run in runs]
    value = {"runs": runs, "session": session, "table": table}[shape]
    got = read(write(tmp_path / "agno.json", value), tmp_path)
    first, last, member = (run.trajectory for run in got.runs)
    begin = ["system: You are a clerk.", "user: Where is order 7?", "agent:  > get_order(c1) < !no order 7(c1)"]
    assert got.format == "agno"
    assert outline(first) == [*begin, "agent: It is lost."]
    assert outline(last) == [*begin, "agent: It is lost.", "user: Why?", "agent: The truck burned."]
    assert outline(member) == ["user: Look.", "agent: Lost."]
    assert [step.copied_context for step in last.steps] == [False, True, True, True, False, False]
    assert usage(first) == [(9, 3), None]
    assert [(run.key, run.parent) for run in got.runs] == [("agno:r1", None), ("agno:r2", None), ("agno:r3", "agno:r2")]
    assert (first.agent.name, first.agent.model, member.agent.name) == ("Desk", "gpt-5-mini", "Scout")
    assert (first.session_id, last.task.prompt) == ("s1", "Why?")
    assert any("leaves out the history" in note for note in got.report.notes)
