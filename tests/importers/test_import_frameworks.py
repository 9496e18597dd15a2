"""Readers of agent frameworks: Pydantic AI, browser-use, smolagents, the AI SDK, AutoGen, CrewAI, Google ADK, Agno."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_logs import outline, read, read_as, read_log, read_one, tokens, write
from quintain.records.trajectory import Trajectory
from small_logs import small_log

TIME = "2026-01-01T00:00:00Z"


def usage(run: Trajectory) -> list[tuple[int | None, int | None] | None]:
    return [tokens(step) for step in run.agent_steps]


# --- Pydantic AI -----------------------------------------------------------------------------------------------------


def asks(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"kind": "request", "parts": list(parts), "timestamp": TIME, **more}


def answers(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"kind": "response", "parts": list(parts), "timestamp": TIME, "model_name": "gpt-5-mini", **more}


def part(kind: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"part_kind": kind, "content": content, **more}


HISTORY = small_log("pydantic_ai")


def test_a_pydantic_ai_history_keeps_thoughts_calls_and_failed_results_apart() -> None:
    run, report = read_log("pydantic_ai")
    assert outline(run) == [
        "system: You are a clerk.",
        "system: Be brief.",
        "user: Where are orders 7 and 8?",
        "agent: Let me look. > get_order(c1) > get_order(c2) > get_order(c3) > web_search(c4) < a fruit(c4)"
        ' < {"state": "shipped"}(c1) < !no order 8(c2) < ![{"type": "int_parsing", "msg": "no integer"}](c3)',
        "agent: Order 7 has shipped.",
    ]
    made, first = run.trajectory, run.trajectory.agent_steps[0]
    assert (first.thought, first.model, first.extra) == ("I need both.", "gpt-5-mini", {"finish_reason": "tool_call"})
    assert first.timestamp is not None
    assert usage(made) == [(100, 10), (120, 8)]
    assert [call.args for call in first.actions] == [{"id": 7}, {"id": 8}, {"id": "x"}, {"q": "mango"}]
    assert (made.session_id, made.outcome.status.value, report.rejected) == ("k1", "unknown", [])
    assert report.unknown == {"part:later-invention": 2}


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


# --- browser-use -----------------------------------------------------------------------------------------------------


def test_a_browser_use_history_has_actions_with_their_results_and_a_verdict_only_from_its_judge() -> None:
    run, report = read_log("browser_use")
    assert outline(run) == [
        'agent: {"evaluation_previous_goal": "Start", "next_goal": "Open"} > go_to_url(None) < Navigated(None)',
        'agent: {"evaluation_previous_goal": "Open. Verdict: Success", "memory": "At the shop", "next_goal": "Find 7 and 8"}'
        " > click(None) > click(None) < Clicked 7(None) < !no element 8(None)",
        'agent: {"evaluation_previous_goal": "Failed", "memory": "7 has shipped", "next_goal": "Answer"}'
        " > done(None) < Order 7 has shipped.(None)",
    ]
    opened, clicked, _ = run.trajectory.agent_steps
    assert (opened.train, clicked.train, clicked.thought) == (False, None, "Both are on this page")
    assert (clicked.actions[1].args, clicked.extra["url"]) == ({"index": 8}, "https://shop.example/")
    assert (run.trajectory.outcome.status.value, run.trajectory.extra["success_by_agent"]) == ("failure", True)
    assert report.unknown == {"step without an answer of the model": 1}
    assert any("neither the task nor the pages" in note for note in report.notes)


# --- Claude Managed Agents -------------------------------------------------------------------------------------------


def test_events_of_a_managed_agent_are_turns_by_request_with_the_verdict_of_the_last_grading(tmp_path: Path) -> None:
    run, report = read_log("managed_agents")
    assert outline(run) == [
        "user: Where are orders 7 and 8?",
        "agent: I look. > read(e7) > find(e8) < !no order 8(e8) < shipped(e7)",
        "agent: Order 7 has shipped.",
        "user: And 8?",
        "agent:  > ask(e17) < lost(e17)",
        "agent: Order 8 is lost.",
    ]
    looked = run.trajectory.agent_steps[0]
    assert (tokens(looked), looked.actions[1].args, run.trajectory.agent.name) == ((15, 4), {"order": 8}, "clerk")
    assert (run.trajectory.outcome.status.value, run.trajectory.task.metadata) == (
        "success",
        {"rubric": "Both are named."},
    )
    assert report.unknown == {"session.status_running": 1, "session.thread_status_running": 1, "session.status_idle": 1}
    events = small_log("managed_agents")
    page = write(tmp_path / "page.json", {"data": events, "next_page": None})
    kept = write(tmp_path / "kept.jsonl", [{"kind": "event", "raw": event} for event in events])
    for path in (page, kept):
        assert outline(read_one("managed_agents", path, tmp_path)[0]) == outline(run)


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


def test_smolagents_tool_calls_get_their_lines_of_the_shared_observation_and_their_errors() -> None:
    run, _ = read_log("smolagents")
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


def test_an_observation_is_not_the_task_of_smolagents_steps_without_one(tmp_path: Path) -> None:
    run, _ = read_one("smolagents", write(tmp_path / "archived.jsonl", small_log("smolagents")[1:]), tmp_path)
    assert run.trajectory.task.prompt == ""


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


CHAT = small_log("ai_sdk")


def test_a_message_of_the_ai_sdk_becomes_a_turn_for_each_step_with_its_calls_and_errors() -> None:
    run, report = read_log("ai_sdk")
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


def test_messages_of_the_ai_sdk_from_before_there_were_parts_have_their_calls(tmp_path: Path) -> None:
    """The calls of two steps, whose texts the SDK joined."""
    calls = [
        {
            "state": "result",
            "step": n,
            "toolCallId": f"c{n}",
            "toolName": "get_order",
            "args": {"id": n},
            "result": "ok",
        }
        for n in range(2)
    ]
    answer = {"id": "b", "role": "assistant", "content": "Both.", "toolInvocations": calls}
    chat = {"messages": [{"id": "a", "role": "user", "content": "And 0 and 1?"}, answer]}
    run, _ = read_one("ai_sdk", write(tmp_path / "chat.json", chat), tmp_path)
    assert outline(run) == [
        "user: And 0 and 1?",
        "agent:  > get_order(c0) < ok(c0)",
        "agent:  > get_order(c1) < ok(c1)",
        "agent: Both.",
    ]


# --- AutoGen ---------------------------------------------------------------------------------------------------------


RESULT = small_log("autogen")
THREAD = RESULT["messages"]
ORDER_CALLS, ORDERS = THREAD[2]["content"], THREAD[3]["content"]
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


def team_state(team: str = "") -> dict[str, Any]:
    """As `team.save_state()` gives it; the first versions append the id of the team to the names of its members."""
    agents: dict[str, Any] = {
        f"{name}{team}": {
            "type": "ChatAgentContainerState",
            "version": "1.0.0",
            "agent_state": {"type": "AssistantAgentState", "version": "1.0.0", "llm_context": {"messages": messages}},
            "message_buffer": [],
        }
        for name, messages in CONTEXTS.items()
    }
    agents["Manager"] = {"type": "RoundRobinManagerState", "version": "1.0.0", "message_thread": THREAD}
    return {"type": "TeamState", "version": "1.0.0", "agent_states": agents}


@pytest.mark.parametrize("shape", ["result", "messages", "stream", "state", "state of a team"])
def test_each_agent_of_an_autogen_team_has_the_conversation_that_its_model_saw(shape: str, tmp_path: Path) -> None:
    values: dict[str, Any] = {"messages": THREAD, "stream": [*THREAD, RESULT], "state": team_state()}
    values["state of a team"] = team_state("/2c10fd25")
    name = "log.jsonl" if shape == "stream" else "log.json"
    found = read(write(tmp_path / name, values.get(shape, RESULT)), tmp_path)
    assert (found.format, [run.agent.name for run in found.all]) == ("autogen", ["clerk", "critic"])
    clerk, critic = found.all
    assert (outline(clerk), outline(critic)) == (CLERK, CRITIC)
    assert clerk.agent_steps[0].thought == "I need both."
    assert (usage(clerk), usage(critic)) == ([(100, 10), (120, 8)], [(20, 2)])
    assert clerk.agent_steps[0].timestamp is not None
    assert clerk.outcome.status.value == "unknown"


def test_a_picture_in_a_message_of_autogen_is_no_text(tmp_path: Path) -> None:
    seen = {**THREAD[0], "type": "MultiModalMessage", "content": ["What is it?", {"data": "YWJj"}]}
    got = read(write(tmp_path / "log.json", {"messages": [seen, THREAD[6]], "stop_reason": None}), tmp_path)
    text, picture = got.only.steps[0].message
    assert (getattr(text, "text", None), str(getattr(picture, "uri", ""))[:11]) == ("What is it?", "urn:sha256:")


def test_in_a_chat_of_autogen_0_2_the_name_and_not_the_role_states_who_spoke(tmp_path: Path) -> None:
    history = small_log("autogen_v0")
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


def test_a_group_chat_with_the_prompts_of_its_speakers_is_a_run_for_each_that_answers(tmp_path: Path) -> None:
    history = [
        {"content": "Count them", "role": "assistant", "name": "Counter"},
        {"content": "Look", "role": "user", "name": "Reader"},
        {"content": "exitcode: 0 (execution succeeded)\nCode output: 4", "role": "user", "name": "Terminal"},
        {"content": "4", "role": "assistant", "name": "Counter"},
    ]
    record = {"is_correct": False, "question_ID": "q1", "ground_truth": "5", "history": history}
    record |= {"system_prompt": {"Counter": "You count", "Reader": "You read", "Silent": "You wait"}}
    got = read(write(tmp_path / "1.json", record), tmp_path)
    reader, counter = got.all
    assert (got.format, reader.agent.name, counter.agent.name) == ("autogen_v0", "Reader", "Counter")
    output = "user: exitcode: 0 (execution succeeded)\nCode output: 4"
    assert outline(counter) == ["system: You count", "user: Count them", "user: Look", output, "agent: 4"]
    assert outline(reader) == ["system: You read", "user: Count them", "agent: Look", output, "user: 4"]
    assert (counter.outcome.status, counter.task.id, counter.task.metadata) == ("failure", "q1", {"answer": "5"})


def test_the_chats_of_an_autogen_0_2_agent_are_read_from_either_side(tmp_path: Path) -> None:
    ran = "exitcode: 0 (execution succeeded)\nCode output: 7"
    texts = ("Where is order 7?", "```python\nprint(7)\n```", ran, "It has shipped.")
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


def test_a_crewai_task_comes_in_with_its_calls_and_the_failures_that_it_lists() -> None:
    run, _ = read_log("crewai")
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


def test_a_google_adk_session_keeps_thoughts_calls_and_the_agent_that_wrote_each_turn() -> None:
    """The last event names no author, only the role of its content."""
    run, report = read_log("google_adk")
    assert outline(run) == [
        "user: Where is order 7?",
        'agent:  > get_order(c1) < {"status": "shipped"}(c1)',
        "agent: It has shipped.",
        "user: Thanks.",
    ]
    first, last = run.trajectory.agent_steps
    assert (first.thought, first.usage and first.usage.input_tokens) == ("I look.", 9)
    assert [step.extra["author"] for step in (first, last)] == ["desk", "courier"]
    made = run.trajectory
    assert (made.session_id, made.agent.name, made.agent.model) == ("s1", "shop", "gemini-x")
    assert report.unknown == {"piece of a streamed message": 1, "event without content": 1}


def test_a_google_adk_session_of_the_first_versions_has_no_application(tmp_path: Path) -> None:
    def event(author: str, role: str, **part: Any) -> dict[str, Any]:
        content = {"role": role, "parts": [part]}
        return {"invocation_id": "i", "author": author, "content": content, "timestamp": 1_734_292_270.5}

    call, answer = {"name": "roll", "args": {}, "id": "k"}, {"name": "roll", "response": {"result": 4}, "id": "k"}
    events = [event("user", "user", text="Roll"), event("dice", "model", function_call=call)]
    events += [event("dice", "user", function_response=answer), event("dice", "model", text="4")]
    events[1]["id"] = "e1"
    answered = {"model_version": "gemini-x", "usage_metadata": {"prompt_token_count": 9, "candidates_token_count": 2}}
    logs = [{"event_id": "e1", "model_response": answered}]
    session = {"id": "s", "context": {}, "events": events, "past_events": [], "event_logs": logs}
    run, _ = read_one("google_adk", write(tmp_path / "sample.session.json", session), tmp_path)
    assert outline(run) == ["user: Roll", 'agent:  > roll(k) < {"result": 4}(k)', "agent: 4"]
    counts = [tokens(step) for step in run.trajectory.agent_steps]
    assert (counts, run.trajectory.agent.model) == ([(9, 2), None], "gemini-x")


def adk_case(name: str, **between: Any) -> dict[str, Any]:
    """As `adk web` writes a case of an evaluation set, with fields that are null."""
    asked, answered = {"parts": [{"text": "Roll", "thought": None}]}, {"parts": [{"text": "4"}], "role": "model"}
    turn = {"invocation_id": "i", "user_content": asked, "final_response": answered, "intermediate_data": between}
    return {"eval_id": name, "conversation": [turn], "session_input": {"app_name": "dice", "user_id": "u"}}


def test_cases_of_a_google_adk_evaluation_set_are_conversations_with_the_calls_that_are_expected(
    tmp_path: Path,
) -> None:
    call, answer = {"id": "k", "name": "roll", "args": {}}, {"id": "k", "name": "roll", "response": {"result": 4}}
    events = [
        {"author": "dice", "content": {"parts": [part]}}
        for part in ({"function_call": call}, {"function_response": answer})
    ]
    cases = [
        adk_case("bare", tool_uses=[{**call, "id": None}], intermediate_responses=[["dice", [{"text": "I roll"}]]]),
        adk_case("answered", tool_uses=[call], tool_responses=[answer]),
        adk_case("events", invocation_events=events),
    ]
    runs, report = read_as(
        "google_adk", write(tmp_path / "a.evalset.json", {"eval_set_id": "s", "eval_cases": cases}), tmp_path
    )
    whole = ["user: Roll", 'agent:  > roll(k) < {"result": 4}(k)', "agent: 4"]
    assert [outline(run) for run in runs] == [["user: Roll", "agent:  > roll(None)", "agent: 4"], whole, whole]
    assert [(run.trajectory.task.id, run.trajectory.agent.name) for run in runs] == [
        (case["eval_id"], "dice") for case in cases
    ]
    assert any("what the agent should do" in note for note in report.notes)
    assert sum(report.unknown.values()) == 1


@pytest.mark.parametrize("is_named", [False, True])
def test_the_first_evaluation_files_of_google_adk_are_one_conversation(tmp_path: Path, is_named: bool) -> None:
    use = {"tool_name": "roll", "tool_input": {"sides": 6}}
    queries = [
        {"query": "Roll", "expected_tool_use": [use], "reference": "4"},
        {"query": "Bye", "expected_tool_use": [], "reference": "Bye."},
    ]
    value = [{"name": "dice", "data": queries}] if is_named else queries
    run, _ = read_one("google_adk", write(tmp_path / "a.test.json", value), tmp_path)
    assert outline(run) == ["user: Roll", "agent:  > roll(None)", "agent: 4", "user: Bye", "agent: Bye."]


def test_google_adk_sessions_are_read_from_lines_and_with_the_names_of_the_web_api(tmp_path: Path) -> None:
    session = small_log("google_adk") | {"appName": "shop", "app_name": None}
    renamed = json.loads(
        json.dumps(session).replace("function_call", "functionCall").replace("function_re", "functionRe")
    )
    runs, _ = read_as("google_adk", write(tmp_path / "all.jsonl", [small_log("google_adk"), renamed]), tmp_path)
    assert outline(runs[0]) == outline(runs[1])


# --- Agno ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["runs", "session", "table"])
def test_runs_of_agno_keep_calls_failures_history_and_the_runs_of_members(tmp_path: Path, shape: str) -> None:
    runs = small_log("agno")
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


def test_each_chat_of_a_llama_index_store_is_a_run_though_the_store_was_written_twice(tmp_path: Path) -> None:
    store = small_log("llama_index")
    expected = ["user: Where is order 7?", "agent:  > get_order(c1) < shipped(c1)", "agent: It has shipped."]
    for name, value in (("once.json", store), ("twice.json", json.dumps(store))):
        run, _ = read_one("llama_index", write(tmp_path / name, value), tmp_path)
        assert (outline(run), run.trajectory.session_id) == (expected, "ann")
