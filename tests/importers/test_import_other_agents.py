"""Readers of Gemini CLI, OpenCode and Hub traces, on small logs made by hand after their layouts; and real sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent_logs import message, outline, read_as, read_one, write
from hostile import survives


def gemini_call(name: str, time: str, output: Any, status: str = "success") -> dict[str, Any]:
    answer = [{"functionResponse": {"id": name, "name": "f", "response": output}}]
    return {"id": name, "name": f"f_{name}", "args": {"p": 1}, "timestamp": time, "status": status, "result": answer}


def gemini_messages() -> list[dict[str, Any]]:
    calls = [
        gemini_call("c1", "2026-01-01T00:00:01.000Z", {"output": "one"}),
        gemini_call("c2", "2026-01-01T00:00:01.001Z", {"error": "denied"}, "cancelled"),
        gemini_call("c3", "2026-01-01T00:00:09.000Z", {"output": "three"}),
    ]
    thoughts = [{"subject": "Plan", "description": "read first", "timestamp": "2026-01-01T00:00:00Z"}]
    reply = {"id": "4", "type": "gemini", "model": "g"}
    counts = {"input": 5, "output": 2, "thoughts": 3, "cached": 1, "tool": 0, "total": 10}
    return [
        {"id": "1", "type": "user", "content": "/help"},
        {"id": "2", "type": "info", "content": "help text"},
        {"id": "3", "type": "user", "content": [{"text": "Read it"}]},
        {**reply, "content": "", "thoughts": thoughts, "tokens": counts, "toolCalls": calls},
        {**reply, "id": "5", "content": "It says so."},
    ]


def test_rounds_of_calls_in_one_gemini_message_are_told_apart_by_their_times(tmp_path: Path) -> None:
    session = {"sessionId": "g1", "projectHash": "h", "messages": gemini_messages()}
    run, report = read_one("gemini_cli", write(tmp_path / "session-1.json", session), tmp_path)
    assert outline(run) == [
        "user: /help",
        "user: Read it",
        "agent:  > f_c1(c1) > f_c2(c2) < one(c1) < !denied(c2)",
        "agent:  > f_c3(c3) < three(c3)",
        "agent: It says so.",
    ]
    first = run.trajectory.agent_steps[0]
    assert first.thought == "Plan\nread first"
    assert first.usage is not None
    assert (first.usage.input_tokens, first.usage.output_tokens) == (5, 5)
    assert run.trajectory.task.prompt == "Read it"
    assert report.unknown == {"info": 1}


def test_a_gemini_log_of_changes_is_replayed(tmp_path: Path) -> None:
    messages = gemini_messages()
    grown = messages[4] | {"content": "It says more."}
    lines = [
        {"sessionId": "g2", "projectHash": "h", "kind": "subagent"},
        messages[2],
        messages[4],
        grown,
        {"$set": {"lastUpdated": "x"}},
        {"id": "8", "type": "user", "content": "never mind"},
        {"id": "9", "type": "gemini", "content": "..."},
        {"$rewindTo": "8"},
    ]
    run, report = read_one("gemini_cli", write(tmp_path / "chats" / "g1" / "g2.jsonl", lines), tmp_path)
    assert outline(run) == ["user: Read it", "agent: It says more."]
    assert (run.key, run.parent) == ("gemini_cli:g2", "gemini_cli:g1")
    assert "2 rewound messages are left out" in report.notes


def test_a_gemini_checkpoint_finds_calls_without_ids_by_name(tmp_path: Path) -> None:
    calls = [{"functionCall": {"name": name, "args": {}}} for name in "ab"]
    turns = [
        {"role": "user", "parts": [{"text": "This is the Gemini CLI. We are setting up the context for our chat."}]},
        {"role": "model", "parts": [{"text": "Got it."}]},
        {"role": "user", "parts": [{"text": "Go"}]},
        {"role": "model", "parts": [{"text": "hm", "thought": True}, *calls]},
        {"role": "user", "parts": [{"functionResponse": {"id": "x", "name": "b", "response": {"error": "bad"}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "a", "response": {"output": "good"}}}]},
    ]
    run, _ = read_one("gemini_cli", write(tmp_path / "checkpoint-t.json", {"history": turns}), tmp_path)
    assert outline(run)[2:] == ["user: Go", "agent:  > a(None) > b(None) < good(None) < !bad(None)"]
    assert (run.trajectory.task.prompt, run.trajectory.agent_steps[1].thought) == ("Go", "hm")


def test_what_a_person_typed_into_gemini_is_no_run(tmp_path: Path) -> None:
    typed = [{"sessionId": "g", "messageId": 0, "type": "user", "message": "hi", "timestamp": "2026-01-01T00:00:00Z"}]
    runs, report = read_as("gemini_cli", write(tmp_path / "logs.json", typed), tmp_path)
    assert not runs
    assert report.n_rejected == 1


def test_a_result_that_gemini_also_wrote_as_a_turn_of_the_user_comes_in_once(tmp_path: Path) -> None:
    def answer(name: str, said: str) -> dict[str, Any]:
        return {"functionResponse": {"id": name, "name": "ls", "response": {"output": said}}}

    call = {"id": "c1", "name": "ls", "args": {}}
    calls = [{**call, "result": [answer("c1", "one")]}, {**call, "id": "c2"}]
    lines = [
        {"sessionId": "s", "projectHash": "h"},
        {"id": "1", "type": "user", "content": [{"text": "Look"}]},
        {"id": "2", "type": "gemini", "content": "I look.", "toolCalls": calls},
        {"id": "3", "type": "user", "content": [answer("c1", "one"), answer("c2", "two")]},
        {"id": "4", "type": "user", "content": [answer("c1", "one"), {"text": "and now?"}]},
        {"id": "5", "type": "gemini", "content": "Done."},
    ]
    run, _ = read_one("gemini_cli", write(tmp_path / "session-1.jsonl", lines), tmp_path)
    assert outline(run) == [
        "user: Look",
        "agent: I look. > ls(c1) > ls(c2) < one(c1) < two(c2)",
        "user: and now?",
        "agent: Done.",
    ]
    survives("gemini_cli", lines, tmp_path)


def opencode_call(part: str, call: str, tool: str, status: str, **state: Any) -> dict[str, Any]:
    return {"id": part, "type": "tool", "tool": tool, "callID": call, "state": {"status": status, "input": {}, **state}}


SPENT = {"input": 1, "output": 2, "reasoning": 3, "cache": {"read": 4, "write": 5}}
OPENCODE_PARTS = [
    {"id": "p1", "type": "step-start"},
    {"id": "p2", "type": "reasoning", "text": "think"},
    opencode_call("p3", "k1", "bash", "completed", output="ok"),
    {"id": "p4", "type": "step-finish", "tokens": SPENT},
    {"id": "p5", "type": "step-start"},
    opencode_call("p6", "k2", "edit", "error", error="no match"),
    opencode_call("p7", "k3", "read", "running"),
    {"id": "p8", "type": "text", "text": "Partly done."},
]
OPENCODE_STEPS = [
    "user: Please fixnoise",
    "agent:  > bash(k1) < ok(k1)",
    "agent: Partly done. > edit(k2) > read(k3) < !no match(k2)",
]


def opencode_session() -> tuple[dict[str, Any], list[tuple[dict[str, Any], list[dict[str, Any]]]]]:
    info = {"id": "ses_1", "projectID": "pr", "directory": "/w", "parentID": "ses_0", "time": {"created": 1}}
    asked = {"id": "msg_1", "sessionID": "ses_1", "role": "user", "time": {"created": 10}}
    said = {"id": "msg_2", "sessionID": "ses_1", "role": "assistant", "modelID": "m", "time": {"created": 11}}
    texts = [
        {"id": "p0", "type": "text", "text": "Please fix"},
        {"id": "p1", "type": "text", "text": "noise", "synthetic": True},
        {"id": "p2", "type": "text", "text": "hidden", "ignored": True},
    ]
    return info, [(said, OPENCODE_PARTS), (asked, texts)]


def test_an_opencode_session_joins_the_files_of_its_storage(tmp_path: Path) -> None:
    info, messages = opencode_session()
    for header, parts in messages:
        write(tmp_path / "storage" / "message" / "ses_1" / f"{header['id']}.json", header)
        for part in parts:
            write(tmp_path / "storage" / "part" / header["id"] / f"{part['id']}.json", part)
    path = write(tmp_path / "storage" / "session" / "pr" / "ses_1.json", info)
    run, report = read_one("opencode", path, tmp_path)
    assert outline(run) == OPENCODE_STEPS
    assert run.trajectory.task.prompt == "Please fix"
    assert (run.key, run.parent, run.trajectory.session_id) == ("opencode:ses_1", "opencode:ses_0", "ses_1")
    first = run.trajectory.agent_steps[0]
    assert (first.thought, first.model) == ("think", "m")
    assert first.usage is not None
    assert (first.usage.input_tokens, first.usage.output_tokens) == (10, 5)
    assert not report.rejected
    runs, report = read_as("opencode", path, path.parent)
    assert not runs
    assert "import all of `storage`" in report.rejected[0][1]


def test_an_opencode_export_and_its_event_stream_hold_the_same_turns(tmp_path: Path) -> None:
    info, messages = opencode_session()
    export = {"info": info, "messages": [{"info": m, "parts": parts} for m, parts in reversed(messages)]}
    run, _ = read_one("opencode", write(tmp_path / "export.json", export), tmp_path)
    assert outline(run) == OPENCODE_STEPS
    stream = [
        {"type": str(part["type"]).replace("-", "_"), "sessionID": "ses_1", "part": part | {"messageID": "m"}}
        for part in OPENCODE_PARTS
    ]
    for row in stream:
        row["type"] = {"tool": "tool_use"}.get(row["type"], row["type"])
    run, _ = read_one("opencode", write(tmp_path / "run.jsonl", stream), tmp_path)
    assert outline(run) == OPENCODE_STEPS[1:]


def test_a_hub_trace_reads_calls_and_results_in_either_spelling(tmp_path: Path) -> None:
    call = {"id": "t1", "function": {"name": "get_time", "arguments": '{"zone": "utc"}'}}
    messages: list[dict[str, Any]] = [
        message("system", "Be exact."),
        message("user", "What time is it?"),
        message("assistant", "", toolCalls=[call], reasoning="ask", model="m", timestamp=1790000000000),
        message("tool", "15:00", toolCallId="t1"),
        message("assistant", "15:00", tool_calls=[call | {"id": "t2"}]),
        message("tool", "15:01", tool_call_id="t2"),
    ]
    lines = [{"type": "session", "harness": "my-agent", "id": "z", "name": "Time"}]
    lines += [{"type": "message", "message": each} for each in messages] + [{"type": "note"}]
    run, report = read_one("hf_sts", write(tmp_path / "t.jsonl", lines), tmp_path)
    assert outline(run)[2:] == ["agent:  > get_time(t1) < 15:00(t1)", "agent: 15:00 > get_time(t2) < 15:01(t2)"]
    step = run.trajectory.agent_steps[0]
    assert (step.thought, step.model, step.actions[0].raw_args) == ("ask", "m", '{"zone": "utc"}')
    assert step.timestamp is not None
    assert (run.trajectory.agent.name, run.key) == ("my-agent", "hf_sts:z")
    assert report.unknown == {"note": 1}


def test_of_a_pi_session_the_branch_that_ends_last_is_read(tmp_path: Path) -> None:
    def line(name: str, parent: str | None, message: dict[str, Any]) -> dict[str, Any]:
        return {"type": "message", "id": name, "parentId": parent, "message": message}

    call = {"type": "toolCall", "id": "k", "name": "bash", "arguments": {"command": "ls"}}
    lines = [
        {"type": "session", "version": 3, "id": "pi-1", "cwd": "/w"},
        line("1", None, {"role": "user", "content": "Go"}),
        line("2", "1", {"role": "assistant", "content": [{"type": "text", "text": "left"}]}),
        line("3", "1", {"role": "assistant", "content": [{"type": "thinking", "thinking": "t"}, call]}),
        line("4", "3", message("toolResult", [{"type": "text", "text": "a"}], toolCallId="k", isError=True)),
    ]
    run, report = read_one("hf_sts", write(tmp_path / "pi.jsonl", lines), tmp_path)
    assert outline(run) == ["user: Go", "agent:  > bash(k) < !a(k)"]
    assert "only the branch with the last line is imported: 1 messages of others are left out" in report.notes
