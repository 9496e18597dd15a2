"""Readers of Copilot, Goose and Kimi sessions, on small logs written by hand in the shape of the programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent_logs import outline, read_as, read_one, write
from hostile import survives

NOW = 1_760_000_000


def copilot_round(text: str, *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"response": text, "toolCalls": list(calls), "toolInputRetry": 0, "id": "r", "timestamp": NOW * 1000, **more}


def copilot_request(prompt: str, response: list[Any], **metadata: Any) -> dict[str, Any]:
    return {
        "requestId": "request_1",
        "message": {"text": prompt, "parts": [{"text": prompt, "kind": "text"}]},
        "variableData": {"variables": [{"kind": "file", "name": "file:a.py", "value": {}}]},
        "response": response,
        "agent": {"extensionId": {"value": "GitHub.copilot-chat"}, "extensionVersion": "0.39.1"},
        "modelId": "copilot/auto",
        "timestamp": NOW * 1000,
        "result": {"timings": {}, "metadata": {"sessionId": "s-1", **metadata}, "details": "Model Two • 1x"},
    }


def copilot_session() -> dict[str, Any]:
    """A request with the model's replies, whose results are text, a rendered prompt and an error; and one without."""
    calls = [{"id": f"c{n}", "name": "read_file", "arguments": '{"path": "a.py"}'} for n in range(3)]
    line = {"type": 2, "text": "two", "lineBreakBefore": True}
    node = {"node": {"type": 1, "children": [{"type": 1, "children": [line]}, line | {"lineBreakBefore": False}]}}
    results = {
        "c0": {"$mid": 20, "content": [{"$mid": 21, "value": "x = 1"}]},
        "c1": {"$mid": 20, "content": [{"$mid": 23, "value": node}]},
        "c2": {"$mid": 20, "content": [{"$mid": 21, "value": "ERROR while calling tool: no path"}]},
    }
    rounds = [
        copilot_round("I read.", *calls, thinking={"id": "t", "text": ["Read", "it."]}),
        copilot_round("", thinking=None),
        copilot_round("Done."),
    ]
    shown = [
        {"kind": "thinking", "value": "Look there."},
        {"kind": "prepareToolInvocation", "toolName": "copilot_readFile"},
        {"kind": "toolInvocationSerialized", "toolId": "copilot_readFile", "toolCallId": "k1", "isComplete": True},
        {"value": "See "},
        {"kind": "inlineReference", "name": "a.py", "inlineReference": {"path": "/a.py"}},
        {"kind": "confirmation", "title": "Continue?"},
        {"kind": "markdownContent", "content": {"value": "."}},
    ]
    requests = [
        copilot_request("Read it.", [{"value": "Done."}], toolCallRounds=rounds, toolCallResults=results),
        copilot_request("Again.", shown),
    ]
    return {"responderUsername": "GitHub Copilot", "initialLocation": "panel", "requests": requests}


def test_a_copilot_chat_has_the_replies_of_the_model_with_their_results(tmp_path: Path) -> None:
    run, report = read_one("copilot_chat", write(tmp_path / "chat.json", copilot_session()), tmp_path)
    assert outline(run) == [
        "user: Read it.",
        "agent: I read. > read_file(c0) > read_file(c1) > read_file(c2)"
        " < x = 1(c0) < \ntwotwo(c1) < !ERROR while calling tool: no path(c2)",
        "agent: Done.",
        "user: Again.",
        "agent:  > copilot_readFile(k1)",
        "agent: See a.py.",
    ]
    made = run.trajectory
    first, _, shown, last = made.agent_steps
    assert (first.thought, first.actions[0].raw_args) == ("Read\n\nit.", '{"path": "a.py"}')
    assert (first.train, shown.train, last.train) == (None, False, None)
    assert shown.thought == "Look there."
    assert (made.agent.model, made.agent.version, made.session_id) == ("Model Two", "0.39.1", "s-1")
    assert made.steps[0].timestamp is not None
    assert made.steps[0].timestamp.timestamp() == NOW
    assert made.steps[0].extra == {"attached": ["file:a.py"]}
    assert report.unknown == {"part:confirmation": 1}
    assert any("lack arguments" in note for note in report.notes)
    survives("copilot_chat", copilot_session(), tmp_path)


def goose_message(role: str, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": "m", "role": role, "created": NOW, "content": list(parts), **more}


def goose_messages() -> list[dict[str, Any]]:
    """Two calls at once: one result has a part for the person alone, the other is an error; and a compaction."""
    for_person = {"type": "text", "text": "seen by a person", "annotations": {"audience": ["user"]}}
    for_model = {"type": "text", "text": "a.py", "annotations": {"audience": ["assistant"], "priority": 0.0}}
    return [
        goose_message("user", {"type": "text", "text": "Go"}, metadata={"userVisible": True, "agentVisible": False}),
        goose_message(
            "assistant",
            {"type": "thinking", "thinking": "Look.", "signature": "s"},
            {"type": "text", "text": "I look."},
            {
                "type": "toolRequest",
                "id": "c1",
                "toolCall": {
                    "status": "success",
                    "value": {"name": "developer__shell", "arguments": {"command": "ls"}},
                },
            },
            {"type": "toolRequest", "id": "c2", "toolCall": {"status": "success", "value": {"name": "todo"}}},
            metadata={"inference": {"requestedModel": "m-1"}, "usage": {"inputTokens": 5, "outputTokens": 2}},
        ),
        goose_message(
            "user",
            {
                "type": "toolResponse",
                "id": "c1",
                "toolResult": {"status": "success", "value": {"content": [for_model, for_person], "isError": False}},
            },
            {"type": "toolResponse", "id": "c2", "toolResult": {"status": "error", "error": "-32602: no such tool"}},
        ),
        goose_message("assistant", {"type": "systemNotification", "msg": "slow"}, {"type": "text", "text": "Done."}),
    ]


def test_a_goose_session_and_its_export_hold_the_same_turns(tmp_path: Path) -> None:
    about = {"working_dir": "/w", "description": "Try", "message_count": 4, "total_tokens": 7}
    path = write(tmp_path / "20260101_1.jsonl", [about, *goose_messages()])
    run, report = read_one("goose", path, tmp_path)
    steps = [
        "user: Go",
        "agent: I look. > developer__shell(c1) > todo(c2) < a.py(c1) < !-32602: no such tool(c2)",
        "agent: Done.",
    ]
    assert outline(run) == steps
    first = run.trajectory.agent_steps[0]
    assert (first.thought, first.model, first.timestamp is not None) == ("Look.", "m-1", True)
    assert first.usage is not None
    assert (first.usage.input_tokens, first.usage.output_tokens) == (5, 2)
    assert (run.key, run.trajectory.extra["cwd"]) == ("goose:20260101_1", "/w")
    assert report.unknown == {"part:systemNotification": 1}
    assert any("compacted" in note for note in report.notes)
    export = {"id": "20260101_1", **about, "name": "Try", "model_config": {"model_name": "vendor/m"}}
    run, _ = read_one("goose", write(tmp_path / "e.json", export | {"conversation": goose_messages()}), tmp_path)
    assert outline(run) == steps
    assert (run.trajectory.agent.model, run.key) == ("vendor/m", "goose:20260101_1")
    survives("goose", [about, *goose_messages()], tmp_path)


def kimi_event(second: int, kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": NOW + second + 0.5, "message": {"type": kind, "payload": payload}}


def kimi_result(call_id: str, output: str, message: str, *, is_error: bool) -> dict[str, Any]:
    return {"tool_call_id": call_id, "return_value": {"is_error": is_error, "output": output, "message": message}}


def kimi_call(call_id: str, arguments: str) -> dict[str, Any]:
    return {"type": "function", "id": call_id, "function": {"name": "Shell", "arguments": arguments}, "extras": None}


KIMI_CONTEXT = [
    {"role": "_system_prompt", "content": "You are Kimi."},
    {"role": "_checkpoint", "id": 0},
    {"role": "user", "content": "List."},
    {"role": "user", "content": "<system>CHECKPOINT 1</system>"},
    {
        "role": "assistant",
        "content": [{"type": "think", "think": "Look.", "encrypted": "x"}, {"type": "text", "text": "I look."}],
        "tool_calls": [kimi_call("t1", '{"command": "ls"}'), kimi_call("t2", "{}")],
    },
    {"role": "_usage", "token_count": 120},
    {"role": "tool", "content": [{"type": "text", "text": "<system>Done.</system>"}], "tool_call_id": "t1"},
    {"role": "tool", "content": "<system>ERROR: no command</system>", "tool_call_id": "t2"},
    {"role": "assistant", "content": "One file."},
]
KIMI_COUNTS = {"input_other": 100, "output": 20, "input_cache_read": 5, "input_cache_creation": 0}
KIMI_EVENTS = [
    {"type": "metadata", "protocol_version": "1.10"},
    kimi_event(0, "TurnBegin", user_input="List."),
    kimi_event(1, "StepBegin", n=1),
    kimi_event(2, "ContentPart", type="think", think="Look.", encrypted=None),
    kimi_event(3, "ToolCall", **kimi_call("t1", '{"command":')),
    kimi_event(4, "ToolCallPart", arguments_part=' "ls"}'),
    kimi_event(5, "ToolCall", **kimi_call("t2", "{}")),
    kimi_event(6, "StatusUpdate", context_usage=0.1, token_usage=KIMI_COUNTS, message_id="m"),
    kimi_event(7, "ToolResult", **kimi_result("t1", "a.txt", "Done.", is_error=False)),
    kimi_event(8, "ToolResult", **kimi_result("t2", "", "no command", is_error=True)),
    kimi_event(9, "StepBegin", n=2),
    kimi_event(10, "ContentPart", type="text", text="One file."),
    kimi_event(11, "TurnEnd"),
]


def test_a_kimi_context_is_read_with_the_times_of_its_events(tmp_path: Path) -> None:
    folder = tmp_path / "hash" / "session-1"
    write(folder / "wire.jsonl", KIMI_EVENTS)
    run, report = read_one("kimi_cli", write(folder / "context.jsonl", KIMI_CONTEXT), tmp_path)
    assert outline(run) == [
        "system: You are Kimi.",
        "user: List.",
        "user: <system>CHECKPOINT 1</system>",
        "agent: I look. > Shell(t1) > Shell(t2) < <system>Done.</system>(t1) < !<system>ERROR: no command</system>(t2)",
        "agent: One file.",
    ]
    made = run.trajectory
    assert made.steps[2].extra == {"context": True}
    first = made.agent_steps[0]
    assert (first.thought, first.actions[0].args) == ("Look.", {"command": "ls"})
    assert first.timestamp is not None
    assert first.timestamp.timestamp() == NOW + 3.5
    assert (run.key, made.session_id, made.task.prompt) == ("kimi_cli:session-1", "session-1", "List.")
    assert {path.name for path in report.consumed} == {"wire.jsonl"}
    survives("kimi_cli", KIMI_CONTEXT, tmp_path / "bent")


def test_kimi_events_without_a_context_are_a_run_of_their_own(tmp_path: Path) -> None:
    part = tmp_path / "session-1" / "subagents" / "a1"
    compacted = [*KIMI_EVENTS, kimi_event(12, "CompactionEnd"), kimi_event(13, "SubagentEvent", event={})]
    run, report = read_one("kimi_cli", write(part / "wire.jsonl", compacted), tmp_path)
    assert outline(run) == [
        "user: List.",
        "agent:  > Shell(t1) > Shell(t2) < a.txt(t1) < !no command(t2)",
        "agent: One file.",
    ]
    first = run.trajectory.agent_steps[0]
    assert (first.thought, first.actions[0].args) == ("Look.", {"command": "ls"})
    assert first.usage is not None
    assert (first.usage.input_tokens, first.usage.output_tokens) == (105, 20)
    assert run.parent == "kimi_cli:session-1"
    assert report.unknown == {"SubagentEvent": 1}
    assert any("system prompt, is not" in note for note in report.notes)
    assert any("compacted" in note for note in report.notes)
    survives("kimi_cli", KIMI_EVENTS, tmp_path / "bent")
    runs, _ = read_as("kimi_cli", write(tmp_path / "context.jsonl", KIMI_CONTEXT[:4]), tmp_path)
    assert not runs
