"""Readers of Claude Code and Codex, on small logs made by hand after their layouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agent_logs import outline, read_as, write
from quintain.records.trajectory import OutcomeStatus, text_of


def claude(uuid: str, parent: str | None, kind: str, content: Any, **more: Any) -> dict[str, Any]:
    message = {"role": kind, "content": content, **more.pop("message", {})}
    line = {"uuid": uuid, "parentUuid": parent, "type": kind, "sessionId": "s1", "message": message}
    return line | {"isSidechain": False, "cwd": "/repo", "version": "2.1.0", "timestamp": "2026-02-03T04:05:06Z"} | more


def reply(uuid: str, parent: str, message_id: str, block: dict[str, Any], out: int = 1) -> dict[str, Any]:
    usage = {"input_tokens": 3, "cache_read_input_tokens": 10, "cache_creation_input_tokens": 20, "output_tokens": out}
    return claude(uuid, parent, "assistant", [block], message={"id": message_id, "model": "m-1", "usage": usage})


def use(call_id: str, name: str = "Bash") -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {"command": "ls"}}


def result(call_id: str, content: Any, **more: Any) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": call_id, "content": content, **more}]


def test_one_claude_reply_over_three_lines_is_one_turn_whose_usage_counts_once(tmp_path: Path) -> None:
    """Thought, text and two parallel calls share a message id; the results hang on different lines of the reply.

    Input tokens are 3 + 10 + 20 = 33; output is that of the last line, 9.
    """
    lines = [
        claude("u1", None, "user", "Fix the test"),
        reply("a1", "u1", "msg", {"type": "thinking", "thinking": "look first", "signature": "x"}),
        reply("a2", "a1", "msg", {"type": "text", "text": "I look."}),
        reply("a3", "a2", "msg", use("t1")),
        reply("a4", "a3", "msg", use("t2", "Read"), out=9),
        claude("r1", "a3", "user", result("t1", "one"), toolUseResult={"stdout": "not this"}),
        claude("r2", "a4", "user", result("t2", [{"type": "text", "text": "two"}], is_error=True)),
        reply("a5", "r1", "msg2", {"type": "text", "text": "Done."}),
    ]
    (run,), report = read_as("claude_code", write(tmp_path / "p" / "s1.jsonl", lines), tmp_path)
    assert outline(run) == [
        "user: Fix the test",
        "agent: I look. > Bash(t1) > Read(t2) < one(t1) < !two(t2)",
        "agent: Done.",
    ]
    turn = run.trajectory.steps[1]
    assert (turn.thought, turn.model) == ("look first", "m-1")
    assert turn.usage is not None
    assert (turn.usage.input_tokens, turn.usage.output_tokens) == (33, 9)
    assert (run.key, run.trajectory.session_id) == ("claude_code:s1", "s1")
    assert run.trajectory.outcome.status is OutcomeStatus.UNKNOWN
    assert run.trajectory.extra == {"cwd": "/repo", "tools": "inferred"}
    assert [tool["function"]["name"] for tool in run.trajectory.tools] == ["Bash", "Read"]
    assert any("system prompt" in note for note in report.notes)
    assert not report.unknown


def test_of_a_claude_graph_the_latest_branch_is_read_and_the_others_are_counted(tmp_path: Path) -> None:
    lines = [
        claude("u1", None, "user", "first wording"),
        reply("a1", "u1", "m1", {"type": "text", "text": "to the first"}),
        claude("u2", None, "user", "second wording"),
        reply("a2", "u2", "m2", use("t1")),
        claude("r0", "a2", "user", result("t1", "interrupted")),
        {"type": "system", "subtype": "api_error", "uuid": "e1", "parentUuid": "r0", "sessionId": "s1"},
        claude("x1", "e1", "assistant", [{"type": "text", "text": "API Error"}], isApiErrorMessage=True),
        reply("a3", "x1", "m3", {"type": "text", "text": "one way"}),
        reply("a4", "x1", "m4", {"type": "text", "text": "other way"}),
        claude("h1", "a4", "user", "Stop hook feedback: go on", isMeta=True),
        reply("a5", "h1", "m5", {"type": "text", "text": "the end"}),
        {"type": "summary", "summary": "A title", "leafUuid": "a5"},
    ]
    (run,), report = read_as("claude_code", write(tmp_path / "s1.jsonl", lines), tmp_path)
    assert outline(run) == [
        "user: second wording",
        "agent:  > Bash(t1) < interrupted(t1)",
        "agent: other way",
        "user: Stop hook feedback: go on",
        "agent: the end",
    ]
    assert run.trajectory.task.prompt == "second wording"
    assert run.trajectory.steps[3].extra == {"meta": True}
    assert report.unknown == {"system/api_error": 1, "api error": 1, "summary": 1}
    assert "only the branch with the latest turn is imported: 2 left out (edits, retries, rewinds)" in report.notes


def test_a_claude_session_that_ends_with_an_unanswered_rewind_is_read_up_to_its_latest_reply(tmp_path: Path) -> None:
    lines = [
        claude("u1", None, "user", "Task"),
        reply("a1", "u1", "m1", {"type": "text", "text": "done"}),
        claude("u2", None, "user", "Other task"),
    ]
    (run,), report = read_as("claude_code", write(tmp_path / "s1.jsonl", lines), tmp_path)
    assert outline(run) == ["user: Task", "agent: done"]
    assert any("1 left out" in note for note in report.notes)


def test_a_claude_session_goes_on_over_a_compact_boundary(tmp_path: Path) -> None:
    boundary = {"type": "system", "subtype": "compact_boundary", "uuid": "c1", "sessionId": "s1", "parentUuid": None}
    lines = [
        claude("m0", None, "user", "<command-name>/model</command-name>"),
        claude("u1", "m0", "user", "Do it"),
        reply("a1", "u1", "m1", {"type": "text", "text": "half"}),
        boundary | {"logicalParentUuid": "a1"},
        claude("u2", "c1", "user", "This session is continued ...", isCompactSummary=True),
        reply("a2", "u2", "m2", {"type": "redacted_thinking", "data": "zzz"}),
        reply("a3", "a2", "m2", {"type": "text", "text": "whole"}),
    ]
    (run,), report = read_as("claude_code", write(tmp_path / "s1.jsonl", lines), tmp_path)
    assert outline(run)[1:] == ["user: Do it", "agent: half", "user: This session is continued ...", "agent: whole"]
    assert run.trajectory.task.prompt == "Do it"
    assert run.trajectory.steps[3].extra == {"compacted": True}
    assert report.unknown == {"system/compact_boundary": 1}
    assert sum("compacted" in note or "encrypted" in note for note in report.notes) == 2


def test_claude_subagents_are_runs_of_their_own_that_name_their_session(tmp_path: Path) -> None:
    side = {"isSidechain": True}
    lines = [
        claude("u1", None, "user", "Delegate"),
        reply("a1", "u1", "m1", use("t1", "Task")),
        claude("k1", "a1", "user", "Search the code", **side),
        reply("k2", "k1", "m2", {"type": "text", "text": "Found it."}) | side,
        claude("r1", "a1", "user", result("t1", "Found it.")),
        claude("v1", None, "user", "Hi", sessionId="s2"),
        reply("v2", "v1", "m9", {"type": "text", "text": "Hello"}) | {"sessionId": "s2"},
    ]
    root = tmp_path / "projects"
    runs, _ = read_as("claude_code", write(root / "s1.jsonl", lines), root)
    assert [(run.key, run.parent, run.trajectory.session_id) for run in runs] == [
        ("claude_code:s1", None, "s1"),
        ("claude_code:s1:k1", "claude_code:s1", "s1:k1"),
        ("claude_code:s2", None, "s2"),
    ]
    assert outline(runs[1]) == ["user: Search the code", "agent: Found it."]
    agent = [line | {"isSidechain": True, "agentId": "b7"} for line in lines[2:4]]
    (sub,), _ = read_as("claude_code", write(root / "s1" / "subagents" / "agent-b7.jsonl", agent), root)
    assert (sub.key, sub.parent) == ("claude_code:s1:b7", "claude_code:s1")


def test_bad_claude_lines_are_rejected_and_the_rest_comes_in(tmp_path: Path) -> None:
    lines: list[Any] = [
        claude("u1", None, "user", "Task"),
        "text",
        {"type": "user", "sessionId": "s1", "uuid": "u2", "message": "expected an object"},
        claude("u3", "gone", "assistant", None),
        reply("a1", "gone", "m1", {"type": "text", "text": "still here"}),
    ]
    (run,), report = read_as("claude_code", write(tmp_path / "s1.jsonl", lines), tmp_path)
    assert outline(run) == ["user: Task", "agent: still here"]
    assert [line for line, _ in report.rejected] == [2, 3, 4]


def test_a_headless_claude_stream_ends_with_its_result_and_success_of_the_program_is_no_verdict(tmp_path: Path) -> None:
    stream = [
        {"type": "system", "subtype": "init", "session_id": "h1", "tools": ["Bash"], "model": "m"},
        {"type": "assistant", "session_id": "h1", "message": {"id": "m1", "content": [{"type": "text", "text": "ok"}]}},
        {"type": "result", "subtype": "success", "session_id": "h1", "is_error": False, "result": "ok"},
    ]
    (run,), report = read_as("claude_code", write(tmp_path / "out.jsonl", stream), tmp_path)
    assert (run.trajectory.outcome.status, run.trajectory.outcome.exit_status) == (OutcomeStatus.UNKNOWN, "success")
    assert report.unknown == {"system/init": 1, "result": 1}


def item(kind: str, **fields: Any) -> dict[str, Any]:
    return {"timestamp": "2026-03-01T00:00:00Z", "type": "response_item", "payload": {"type": kind, **fields}}


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "event_msg", "payload": {"type": kind, **fields}}


def words(role: str, said: str) -> dict[str, Any]:
    return item(
        "message", role=role, content=[{"type": "output_text" if role == "assistant" else "input_text", "text": said}]
    )


def spent(total: int, out: int) -> dict[str, Any]:
    counts = {
        "total_token_usage": {"total_tokens": total},
        "last_token_usage": {"input_tokens": 7, "output_tokens": out},
    }
    return event("token_count", info=counts)


def rollout() -> list[dict[str, Any]]:
    meta = {"id": "c1", "cwd": "/r", "cli_version": "0.99", "base_instructions": {"text": "You are Codex"}}
    return [
        {
            "type": "session_meta",
            "payload": meta | {"source": {"subagent": {"thread_spawn": {"parent_thread_id": "c0"}}}},
        },
        words("developer", "sandbox"),
        words("user", "# AGENTS.md instructions for /r\n..."),
        words("user", "<environment_context>x</environment_context>"),
        event("user_message", message="Make it pass"),
        words("user", "Make it pass"),
        {"type": "turn_context", "payload": {"model": "gpt-a"}},
        item("reasoning", summary=[{"type": "summary_text", "text": "Think"}], encrypted_content="gAAA"),
        item("function_call", name="exec_command", arguments='{"cmd": "ls"}', call_id="k1"),
        item("custom_tool_call", name="apply_patch", input="*** Begin", call_id="k2"),
        spent(10, 2),
        event("exec_command_end", call_id="k1", exit_code=2),
        item("function_call_output", call_id="k1", output="no such file"),
        item("custom_tool_call_output", call_id="k2", output=[{"type": "input_text", "text": "patched"}]),
        spent(10, 2),
        {"type": "turn_context", "payload": {"model": "gpt-b"}},
        item("web_search_call", id="w1", action={"type": "search", "query": "q"}),
        item("local_shell_call", call_id="k3", action={"type": "exec", "command": ["pwd"]}),
        item("function_call_output", call_id="k3", output={"content": "Exit code: 1\nOutput:\n/r", "success": False}),
        event("agent_message", message="All green."),
        words("assistant", "All green."),
        spent(20, 4),
        {"type": "compacted", "payload": {"message": "So far: ..."}},
        event("task_complete", last_agent_message="All green."),
    ]


def test_a_codex_rollout_is_its_response_items_with_models_and_exit_codes(tmp_path: Path) -> None:
    (run,), report = read_as("codex", write(tmp_path / "rollout-1.jsonl", rollout()), tmp_path)
    assert outline(run) == [
        "system: You are Codex",
        "system: sandbox",
        "user: # AGENTS.md instructions for /r\n...",
        "user: <environment_context>x</environment_context>",
        "user: Make it pass",
        "agent:  > exec_command(k1) > apply_patch(k2) < !no such file(k1) < patched(k2)",
        "agent:  > web_search(w1) > local_shell(k3) < !Exit code: 1\nOutput:\n/r(k3)",
        "agent: All green.",
        "user: So far: ...",
    ]
    first, second, last = run.trajectory.agent_steps
    assert (first.thought, first.model, second.model) == ("Think", "gpt-a", "gpt-b")
    assert (first.actions[0].raw_args, first.actions[1].raw_args, first.actions[1].args) == (
        '{"cmd": "ls"}',
        "*** Begin",
        None,
    )
    assert [step.usage and step.usage.output_tokens for step in (first, second, last)] == [2, None, 4]
    assert run.trajectory.task.prompt == "Make it pass"
    assert (run.key, run.parent, run.trajectory.agent.version) == ("codex:c1", "codex:c0", "0.99")
    assert report.unknown["event_msg/agent_message"] == 1
    assert report.unknown["compacted"] == 1
    assert any("encrypted" in note for note in report.notes)


def test_codex_lines_without_an_envelope_are_the_first_generation(tmp_path: Path) -> None:
    bare = [
        {"id": "old", "timestamp": "2025-08-01T00:00:00Z", "instructions": "Be terse", "git": {"branch": "main"}},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<environment_context>"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Count files"}]},
        {"type": "function_call", "name": "shell", "arguments": "{broken", "call_id": "k1"},
        {"type": "function_call_output", "call_id": "k1", "output": '{"output":"3","metadata":{"exit_code":1}}'},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "3"}]},
    ]
    (run,), report = read_as("codex", write(tmp_path / "r.jsonl", bare), tmp_path)
    assert outline(run) == [
        "system: Be terse",
        "user: <environment_context>",
        "user: Count files",
        'agent:  > shell(k1) < !{"output":"3","metadata":{"exit_code":1}}(k1)',
        "agent: 3",
    ]
    call = run.trajectory.agent_steps[0].actions[0]
    assert (call.args, call.raw_args) == (None, "{broken")
    assert (run.trajectory.session_id, run.trajectory.task.prompt) == ("old", "Count files")
    assert report.unknown == {"record_type": 1}
    whole = {"session": bare[0], "items": bare[2:]}
    (same,), _ = read_as("codex", write(tmp_path / "rollout.json", whole), tmp_path)
    assert outline(same) == outline(run)


def test_codex_exec_events_become_steps_and_their_usage_stays_with_the_run(tmp_path: Path) -> None:
    command = {"id": "i1", "type": "command_execution", "command": "pytest", "status": "in_progress"}
    events = [
        {"type": "thread.started", "thread_id": "x1"},
        {"type": "turn.started"},
        {"type": "item.completed", "item": {"id": "i0", "type": "reasoning", "text": "Run the tests"}},
        {"type": "item.started", "item": command},
        {
            "type": "item.completed",
            "item": command | {"aggregated_output": "1 failed", "exit_code": 1, "status": "failed"},
        },
        {"type": "item.completed", "item": {"id": "i2", "type": "agent_message", "text": "One fails."}},
        {"type": "turn.completed", "usage": {"input_tokens": 100, "output_tokens": 50}},
        {"type": "item.started", "item": {"id": "i3", "type": "command_execution", "command": "sleep 9"}},
        {"type": "turn.failed", "error": {"message": "stream lost"}},
    ]
    (run,), report = read_as("codex", write(tmp_path / "exec.jsonl", events), tmp_path)
    assert outline(run) == ["agent:  > shell(i1) < !1 failed(i1)", "agent: One fails.", "agent:  > shell(i3)"]
    assert run.trajectory.agent_steps[0].thought == "Run the tests"
    assert run.trajectory.extra["usage"] == {"input_tokens": 100, "output_tokens": 50}
    assert run.trajectory.outcome.exit_status == "stream lost"
    assert report.unknown == {"turn.started": 1, "turn.failed": 1}


def test_joined_codex_sessions_are_told_apart_but_a_fork_is_one_run(tmp_path: Path) -> None:
    def meta(name: str) -> dict[str, Any]:
        return {"type": "session_meta", "payload": {"id": name}}

    joined = [meta("a"), words("assistant", "1"), meta("b"), words("assistant", "2")]
    runs, _ = read_as("codex", write(tmp_path / "joined.jsonl", joined), tmp_path)
    assert [run.key for run in runs] == ["codex:a", "codex:b"]
    fork = [{"type": "session_meta", "payload": {"id": "c", "forked_from_id": "a"}}, meta("a"), words("assistant", "1")]
    (run,), _ = read_as("codex", write(tmp_path / "fork.jsonl", fork), tmp_path)
    assert (run.key, run.continues) == ("codex:c", "codex:a")


def test_a_claude_session_that_another_of_its_file_goes_on_from_is_no_run_of_its_own(tmp_path: Path) -> None:
    lines = [
        claude("u1", None, "user", "Start"),
        reply("a1", "u1", "m1", {"type": "text", "text": "part"}),
        reply("a2", "a1", "m1", use("t1")),
        claude("r1", "a2", "user", result("t1", "seen")),
        claude("u2", "r1", "user", "Go on", sessionId="s2"),
        reply("a3", "u2", "m2", {"type": "text", "text": "rest"}) | {"sessionId": "s2"},
    ]
    (run,), _ = read_as("claude_code", write(tmp_path / "s2.jsonl", lines), tmp_path)
    assert outline(run) == ["user: Start", "agent: part > Bash(t1) < seen(t1)", "user: Go on", "agent: rest"]
    assert run.key == "claude_code:s2"


def test_codex_outputs_say_in_several_ways_that_they_failed(tmp_path: Path) -> None:
    """As text with an exit code above it, as JSON of either generation, and as an object."""
    outputs: list[Any] = [
        "Exit code: 2\nOutput:\nExit code: 0",
        json.dumps({"output": "no", "metadata": {"exit_code": 1}}),
        json.dumps({"content": "no", "success": False}),
        {"content": "no", "success": False},
        json.dumps({"content": "yes", "success": True}),
        json.dumps({"output": "yes", "metadata": {"exit_code": 0}}),
        "Exit code: 0\nOutput:\nExit code: 2",
    ]
    calls = [item("function_call", name="shell", arguments="{}", call_id=f"k{i}") for i in range(len(outputs))]
    answers = [item("function_call_output", call_id=f"k{i}", output=output) for i, output in enumerate(outputs)]
    head = {"type": "session_meta", "payload": {"id": "c1"}}
    (run,), _ = read_as("codex", write(tmp_path / "log.jsonl", [head, words("user", "Go"), *calls, *answers]), tmp_path)
    seen = run.trajectory.agent_steps[0].observations
    assert [observation.is_error for observation in seen] == [True] * 4 + [False] * 3


def test_every_step_of_a_claude_session_names_the_model_that_wrote_it(tmp_path: Path) -> None:
    """A model was changed midway; an error of the API that stands in for a reply is no turn of a model."""
    lines = [
        claude("u1", None, "user", "Go"),
        reply("a1", "u1", "m1", {"type": "text", "text": "One."}),
        claude("u2", "a1", "user", "On"),
        claude("e1", "u2", "assistant", [{"type": "text", "text": "API Error"}]),
        reply("a2", "e1", "m2", {"type": "text", "text": "Two."}),
    ]
    lines[3]["message"] |= {"model": "<synthetic>", "id": "x"}
    lines[1]["message"]["model"], lines[4]["message"]["model"] = "claude-a", "claude-b"
    (run,), report = read_as("claude_code", write(tmp_path / "log.jsonl", lines), tmp_path)
    assert [step.model for step in run.trajectory.agent_steps] == ["claude-a", "claude-b"]
    assert (run.trajectory.agent.model, report.unknown["api error"]) == ("claude-a", 1)


def test_what_a_tool_of_the_vendor_found_is_text_and_no_picture(tmp_path: Path) -> None:
    found = [{"type": "web_search_result", "url": "http://x/", "title": "T", "encrypted_content": "zzz"}]
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "All of it."}}
    lines = [
        claude("u1", None, "user", [{"type": "text", "text": "Read"}, document]),
        reply("a1", "u1", "m1", {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}),
        reply("a2", "a1", "m1", {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": found}),
    ]
    (run,), _ = read_as("claude_code", write(tmp_path / "log.jsonl", lines), tmp_path)
    seen = run.trajectory.agent_steps[0].observations[0].content
    assert isinstance(seen, str)
    assert "http://x/" in seen
    assert "zzz" not in seen
    assert text_of(run.trajectory.steps[0].message) == "ReadAll of it."


def test_tools_in_a_namespace_of_codex_are_named_as_they_are_called(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"q": {}}}
    space = {"type": "namespace", "name": "web", "tools": [{"type": "function", "name": "find", "inputSchema": schema}]}
    lines = [
        {"type": "session_meta", "payload": {"id": "c1", "dynamic_tools": [space]}},
        words("user", "Go"),
        item("function_call", name="find", namespace="web", arguments="{}", call_id="k1"),
    ]
    (run,), _ = read_as("codex", write(tmp_path / "log.jsonl", lines), tmp_path)
    (tool,) = run.trajectory.tools
    assert (tool["function"]["name"], tool["function"]["parameters"]) == ("web.find", schema)
    assert run.trajectory.agent_steps[0].actions[0].tool == "web.find"
