"""Readers of Gemini CLI, OpenCode, Hub traces, Grok CLI, Qwen Code, OpenClaw, Cline, Amp and Crush."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_logs import message, moment, outline, read, read_as, read_file, read_log, read_one, tokens, write
from hostile import survives
from quintain.errors import InvalidInput
from quintain.importers.files import databases
from quintain.importers.files.probing import probe
from quintain.importers.registry import detect
from quintain.records.trajectory import text_of
from small_logs import content, small_log


def test_rounds_of_calls_in_one_gemini_message_are_told_apart_by_their_times() -> None:
    run, report = read_log("gemini_cli")
    assert outline(run) == [
        "user: /help",
        "user: Read it",
        "agent:  > f_c1(c1) > f_c2(c2) < one(c1) < !denied(c2)",
        "agent:  > f_c3(c3) < three(c3)",
        "agent: It says so.",
    ]
    first = run.trajectory.agent_steps[0]
    assert first.thought == "Plan\nread first"
    assert tokens(first) == (5, 5)
    assert run.trajectory.task.prompt == "Read it"
    assert report.unknown == {"info": 1}


def test_a_gemini_log_of_changes_is_replayed(tmp_path: Path) -> None:
    messages = small_log("gemini_cli")["messages"]
    grown = messages[4] | {"content": "It says more."}
    lines = [
        {"sessionId": "g2", "projectHash": "h", "kind": "subagent"},
        messages[2],
        messages[4],
        grown,
        {"$set": {"lastUpdated": "x", "messages": [5]}},
        {"id": "8", "type": "user", "content": "never mind"},
        {"id": "9", "type": "gemini", "content": "..."},
        {"$rewindTo": "8"},
    ]
    run, report = read_one("gemini_cli", write(tmp_path / "chats" / "g1" / "g2.jsonl", lines), tmp_path)
    assert outline(run) == ["user: Read it", "agent: It says more."]
    assert (run.key, run.parent) == ("gemini_cli:g2", "gemini_cli:g1")
    assert "2 rewound messages are left out" in report.notes
    assert report.rejected == [(5, "expected a message object, got int")]


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


def gemini_session(name: str) -> list[dict[str, Any]]:
    """Events of a session that ends within a call."""

    def event(kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": kind, "timestamp": "2026-01-30T06:10:01Z", **fields}

    return [
        event("init", session_id=name, model="gemini-3"),
        event("message", role="user", content="Go"),
        event("message", role="assistant", content="I lo", delta=True),
        event("message", role="assistant", content="ok.", delta=True),
        event("tool_use", tool_name="read", tool_id="c1", parameters={"path": "a"}),
        event("tool_use", tool_name="read", tool_id="c2", parameters={"path": "b"}),
        event("tool_result", tool_id="c1", status="success", output="A"),
        event("tool_result", tool_id="c2", status="error", error={"type": "missing", "message": "no b"}),
        event("tool_use", tool_name="read", tool_id="c3", parameters={}),
    ]


def test_a_stream_of_gemini_events_gives_a_run_for_each_session(tmp_path: Path) -> None:
    end = {"type": "result", "timestamp": "2026-01-30T06:11:01Z", "status": "error", "error": {"message": "quota"}}
    foreign = {"type": "message", "role": "user", "content": "Go"}
    rows = [foreign, *gemini_session("s1"), end, foreign, *gemini_session("s2")]
    got = read(write(tmp_path / "out.jsonl", rows), tmp_path)
    assert (got.format, got.report.unknown) == ("gemini_cli", {"line outside a session": 1})
    expected = ["user: Go", "agent: I look. > read(c1) > read(c2) < A(c1) < !no b(c2)", "agent:  > read(c3)"]
    assert [outline(run) for run in got.runs] == [expected, expected]
    ends = [(run.session_id, run.agent.model, run.outcome.status, run.outcome.exit_status) for run in got.all]
    assert ends == [("s1", "gemini-3", "error", "quota"), ("s2", "gemini-3", "unknown", None)]


def test_what_droid_exec_prints_is_a_run_for_each_session(tmp_path: Path) -> None:
    """Claude Code's `system` line opens these events too, and took them before."""
    rows = small_log("droid")
    again = [{**row, "session_id": "d2"} for row in rows]
    error = {"type": "error", "source": "cli", "message": "quota", "session_id": "d2"}
    got = read(write(tmp_path / "out.jsonl", [*rows, *again, error]), tmp_path)
    expected = ["user: Go", "agent: I look. > Read(c1) > Read(c2) < A(c1) < !no b(c2)", "agent: Done."]
    assert [outline(run) for run in got.runs] == [expected, expected]
    assert (got.format, got.report.rejected) == ("droid", [])
    assert [(run.session_id, run.agent.name, run.agent.model) for run in got.all] == [
        ("d1", "droid", "m-1"),
        ("d2", "droid", "m-1"),
    ]
    assert [step.thought for step in got.all[0].agent_steps] == ["hm", None]


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


OPENCODE_STEPS = [
    "user: Please fixnoise",
    "agent:  > bash(k1) < ok(k1)",
    "agent: Partly done. > edit(k2) > read(k3) < !no match(k2)",
]


def test_an_opencode_session_joins_the_files_of_its_storage(tmp_path: Path) -> None:
    export = small_log("opencode")
    for turn in export["messages"]:
        header = turn["info"]
        write(tmp_path / "storage" / "message" / "ses_1" / f"{header['id']}.json", header)
        for part in turn["parts"]:
            write(tmp_path / "storage" / "part" / header["id"] / f"{part['id']}.json", part)
    path = write(tmp_path / "storage" / "session" / "pr" / "ses_1.json", export["info"])
    run, report = read_one("opencode", path, tmp_path)
    assert outline(run) == OPENCODE_STEPS
    assert run.trajectory.task.prompt == "Please fix"
    assert (run.key, run.parent, run.trajectory.session_id) == ("opencode:ses_1", "opencode:ses_0", "ses_1")
    first = run.trajectory.agent_steps[0]
    assert (first.thought, first.model) == ("think", "m")
    assert tokens(first) == (10, 5)
    assert not report.rejected
    runs, report = read_as("opencode", path, path.parent)
    assert not runs
    assert "import all of `storage`" in report.rejected[0][1]


def test_an_opencode_database_holds_the_run_of_the_export(tmp_path: Path) -> None:
    """Its rows repeat neither their own ids nor those of session and message; ids tell the order of parts."""
    export, path = small_log("opencode"), tmp_path / "opencode.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE session (id TEXT PRIMARY KEY, parent_id TEXT, directory TEXT)")
        connection.execute("CREATE TABLE message (id TEXT PRIMARY KEY, session_id, time_created INTEGER, data TEXT)")
        connection.execute("CREATE TABLE part (id TEXT, message_id TEXT, data TEXT)")
        connection.execute("INSERT INTO session VALUES ('ses_1', 'ses_0', '/w'), ('ses_2', NULL, '/w')")
        for held in export["messages"]:
            info = {key: value for key, value in held["info"].items() if key not in ("id", "sessionID")}
            values = held["info"]["id"], "ses_1", info["time"]["created"], json.dumps(info)
            connection.execute("INSERT INTO message VALUES (?, ?, ?, ?)", values)
            for part in reversed(held["parts"]):
                data = json.dumps({key: value for key, value in part.items() if key != "id"})
                connection.execute("INSERT INTO part VALUES (?, ?, ?)", (part["id"], held["info"]["id"], data))
        connection.commit()
    run, report = read_one("opencode", path, tmp_path)
    assert run.trajectory == read_log("opencode")[0].trajectory
    assert (run.key, run.parent, report.n_rejected) == ("opencode:ses_1", "opencode:ses_0", 1)


def test_an_opencode_export_and_its_event_stream_hold_the_same_turns(tmp_path: Path) -> None:
    run, _ = read_log("opencode")
    assert outline(run) == OPENCODE_STEPS
    names = {"tool": "tool_use", "step-start": "step_start", "step-finish": "step_finish"}
    stream = [
        {"type": names.get(part["type"], part["type"]), "sessionID": "ses_1", "part": part | {"messageID": "m"}}
        for part in small_log("opencode")["messages"][1]["parts"]
    ]
    run, _ = read_one("opencode", write(tmp_path / "run.jsonl", stream), tmp_path)
    assert outline(run) == OPENCODE_STEPS[1:]
    cut = small_log("opencode")
    cut["messages"][1]["info"]["error"] = {"name": "MessageAbortedError"}
    run, _ = read_one("opencode", write(tmp_path / "cut.json", cut), tmp_path)
    assert [step.train for step in run.trajectory.agent_steps] == [None, False]


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


def test_a_droid_session_begins_with_its_title_and_has_its_model_beside_it(tmp_path: Path) -> None:
    call = {"type": "tool_use", "id": "k", "name": "Read", "input": {"path": "a"}}
    messages = [
        message("user", "Go"),
        message("assistant", [{"type": "text", "text": "I look"}, call]),
        message("user", [{"type": "tool_result", "tool_use_id": "k", "content": "text"}]),
    ]
    lines = [{"type": "session_start", "id": "d-1", "title": "Go", "cwd": "/w"}]
    lines += [{"type": "message", "timestamp": "2026-01-01T00:00:00Z", "message": each} for each in messages]
    settings = write(tmp_path / "d.settings.json", {"model": "claude-x", "autonomyMode": "normal"})
    run, report = read_one("hf_sts", write(tmp_path / "d.jsonl", lines), tmp_path)
    assert (run.trajectory.agent.model, report.consumed) == ("claude-x", {settings.resolve()})
    assert outline(run) == ["user: Go", "agent: I look > Read(k) < text(k)"]
    assert (run.trajectory.agent.name, run.trajectory.extra["title"]) == ("droid", "Go")
    assert all(step.timestamp for step in run.trajectory.steps)


def test_events_of_pi_have_a_message_where_it_ends(tmp_path: Path) -> None:
    """As `pi --mode json` writes them: a message begins, grows and ends, and its turn repeats it."""
    call = {"type": "toolCall", "id": "k", "name": "bash", "arguments": {"command": "ls"}}
    asked, answer = message("user", "Go"), message("assistant", [call], model="m", usage={"input": 9, "output": 2})
    result = {"role": "toolResult", "toolCallId": "k", "toolName": "bash", "content": [{"type": "text", "text": "a"}]}
    lines: list[dict[str, Any]] = [{"type": "session", "version": 3, "id": "pi-1", "cwd": "/w"}, {"type": "turn_start"}]
    for each in (asked, answer, result):
        lines += [
            {"type": "message_start", "message": {**each, "content": []}},
            {"type": "message_end", "message": each},
        ]
    lines += [
        {"type": "turn_end", "message": answer, "toolResults": [result]},
        {"type": "agent_end", "messages": [asked]},
    ]
    run, report = read_one("hf_sts", write(tmp_path / "pi.jsonl", lines), tmp_path)
    assert outline(run) == ["user: Go", "agent:  > bash(k) < a(k)"]
    assert (tokens(run.trajectory.agent_steps[0]), run.trajectory.agent.model) == ((9, 2), "m")
    assert report.unknown == {"turn_start": 1, "message_start": 3, "turn_end": 1, "agent_end": 1}


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


def test_a_pi_session_has_the_model_that_was_set_and_what_took_the_place_of_its_context(tmp_path: Path) -> None:
    def line(kind: str, n: int, **more: Any) -> dict[str, Any]:
        return {"type": kind, "id": f"{n}", "parentId": f"{n - 1}", "timestamp": "2026-07-14T08:41:44Z", **more}

    def said(n: int, role: str, **more: Any) -> dict[str, Any]:
        return line("message", n, message={"role": role, **more})

    lines = [
        {"type": "session", "version": 3, "id": "0", "cwd": "/w"},
        line("model_change", 1, provider="vendor", modelId="m-1"),
        said(2, "user", content="Go"),
        said(3, "assistant", content=[{"type": "text", "text": "Gone."}]),
        said(4, "bashExecution", command="ls", output="a.py", exitCode=0),
        said(5, "bashExecution", command="id", output="me", excludeFromContext=True),
        line("compaction", 6, summary="It went.", firstKeptEntryId="4", tokensBefore=9),
        line("model_change", 7, provider="vendor", modelId="m-2"),
        said(8, "assistant", content=[{"type": "text", "text": "On."}]),
        said(9, "assistant", content=[{"type": "text", "text": "Off."}], model="m-3"),
    ]
    run, report = read_one("hf_sts", write(tmp_path / "pi.jsonl", lines), tmp_path)
    assert outline(run) == [
        "user: Go",
        "agent: Gone.",
        "user: Ran `ls`\n```\na.py\n```",
        "user: It went.",
        "agent: On.",
        "agent: Off.",
    ]
    assert [step.model for step in run.trajectory.agent_steps] == ["m-1", "m-2", "m-3"]
    assert any("compacted" in note for note in report.notes)


def test_a_pi_session_that_lost_its_header_is_read_and_added_context_is_not_its_task(tmp_path: Path) -> None:
    def line(n: int, kind: str, **more: Any) -> dict[str, Any]:
        return {"type": kind, "id": f"{n}", "parentId": f"{n - 1}", "timestamp": "2026-07-14T08:41:44Z", **more}

    lines = [
        line(1, "custom_message", customType="project", content="The folder has a.py."),
        line(2, "message", message=message("user", "Go")),
        line(3, "message", message=message("assistant", "Done.", model="m")),
    ]
    run, _ = read_one("hf_sts", write(tmp_path / "pi.jsonl", lines), tmp_path)
    assert outline(run) == ["user: The folder has a.py.", "user: Go", "agent: Done."]
    assert run.trajectory.task.prompt == "Go"
    page = "# The format\n\n" + "".join(f"```json\n{json.dumps(row)}\n```\n" for row in lines)
    assert detect(probe(write(tmp_path / "session.md", page.encode()), tmp_path)).importer is None


def test_a_grok_cli_session_is_its_own_format_with_its_turns_apart(tmp_path: Path) -> None:
    path = write(tmp_path / "s1" / "chat_history.jsonl", small_log("grok_cli"))
    about = {"info": {"id": "g1", "cwd": "/w"}, "head_branch": "main", "current_model_id": "grok-4.5"}
    write(tmp_path / "s1" / "summary.json", about)
    run, _ = read_one("grok_cli", path, tmp_path)
    assert outline(run) == [
        "system: S",
        "user: <user_info>",
        "user: Read a",
        "agent: Reading. > read_file(c1) < text(c1)",
        "agent: Done. > web_search(w1)",
        "agent: ",
    ]
    made = run.trajectory
    assert [step.thought for step in made.agent_steps] == ["I read it.", None, "Interrupted."]
    assert (made.task.prompt, made.agent.name, made.agent.model) == ("Read a", "grok-cli", "grok-4.5")
    assert (run.key, made.extra["cwd"], made.extra["git_branch"]) == ("grok_cli:g1", "/w", "main")
    assert {step.model for step in made.agent_steps} == {"grok-4.5", None}
    write(tmp_path / "s1" / "summary.json", {**about, "session_kind": "subagent", "agent_name": "explore"})
    run, _ = read_one("grok_cli", path, tmp_path)
    assert (run.key, run.parent, run.trajectory.extra["agent_type"]) == (None, "grok_cli:g1", "explore")


def qwen(kind: str, uuid: str, parent: str | None, *parts: Any, **more: Any) -> dict[str, Any]:
    where = {"uuid": uuid, "parentUuid": parent, "sessionId": "q1", "cwd": "/w", "version": "0.21"}
    return {**where, "type": kind, "message": {"role": "model", "parts": list(parts)}, **more}


def test_a_qwen_code_session_is_its_own_format_and_each_line_comes_in() -> None:
    """A rewind, two lines of one reply, a call that failed and a notification."""
    run, report = read_log("qwen_code")
    assert outline(run) == [
        "user: Read a",
        "agent: Reading. > read_file(c1) < !gone(c1)",
        "user: Background task done.",
        "agent: It is gone.",
    ]
    made = run.trajectory
    first = made.agent_steps[0]
    assert (first.thought, first.model, first.usage and first.usage.output_tokens) == ("I read it.", "m1", 4)
    assert (run.key, made.agent.name, made.task.prompt) == ("qwen_code:q1", "qwen-code", "Read a")
    assert made.steps[2].extra == {"meta": True}
    assert not report.n_rejected


def test_qwen_lines_that_are_glued_together_or_name_no_parent_are_detected_and_read(tmp_path: Path) -> None:
    rows = [qwen("user", "1", None, {"text": "Read a"}), qwen("assistant", "2", "1", {"text": "Done."}, model="m")]
    loose = [{key: value for key, value in row.items() if key != "parentUuid"} for row in rows]
    loose.insert(1, {"uuid": "3", "sessionId": "q1", "type": "system", "subtype": "ui_telemetry"})
    for held in ("".join(map(json.dumps, rows)).encode(), loose):
        run, _ = read_one("qwen_code", write(tmp_path / "q1.jsonl", held), tmp_path)
        assert outline(run) == ["user: Read a", "agent: Done."]


def test_what_qwen_code_prints_is_its_own_and_a_reply_in_two_lines_is_one_turn(tmp_path: Path) -> None:
    """As `qwen -p --output-format stream-json` writes: Claude Code's lines, but text and calls under ids of their own."""

    def line(n: int, role: str, *blocks: dict[str, Any], usage: Any = None) -> dict[str, Any]:
        about = {"id": f"m{n}", "model": "m1", "usage": usage} if role == "assistant" else {}
        return {
            "type": role,
            "uuid": f"u{n}",
            "session_id": "q1",
            "message": {"role": role, "content": blocks, **about},
        }

    call = {"type": "tool_use", "id": "c1", "name": "run_shell_command", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "a.py", "is_error": False}
    lines = [
        {"type": "system", "subtype": "init", "uuid": "q1", "session_id": "q1", "qwen_code_version": "0.15.10"},
        line(1, "assistant", text_block("I list."), usage={"input_tokens": 0, "output_tokens": 0}),
        line(2, "assistant", call, usage={"input_tokens": 9, "output_tokens": 3}),
        line(3, "user", result),
        line(4, "assistant", text_block("One file.")),
        {"type": "result", "subtype": "success", "session_id": "q1", "result": "One file."},
    ]
    unversioned = [{"type": "system", "subtype": "session_start", "session_id": "q1", "model": "m1"}, *lines[1:]]
    assert read(write(tmp_path / "old.jsonl", unversioned), tmp_path).format == "qwen_code"
    for name, value in (("q.jsonl", lines), ("q.json", lines)):
        run, _ = read_one("qwen_code", write(tmp_path / name, value), tmp_path)
        assert outline(run) == ["agent: I list. > run_shell_command(c1) < a.py(c1)", "agent: One file."]
        made = run.trajectory
        assert (made.agent.name, made.agent.version, made.agent.model) == ("qwen-code", "0.15.10", "m1")
        assert tokens(made.agent_steps[0]) == (9, 3)


def openclaw_session() -> list[dict[str, Any]]:
    """Lines whose parent is the call that they answer, as OpenClaw writes them."""
    call = {"type": "toolCall", "id": "c1", "name": "shell", "arguments": {"command": "ls"}}
    answer = {"role": "toolResult", "toolCallId": "c1", "toolName": "shell", "content": "a.txt", "isError": False}
    lines = [
        ("m1", "s1", {"role": "user", "content": [{"type": "text", "text": "List"}]}),
        ("m2", "m1", {"role": "assistant", "model": "m", "content": [{"type": "text", "text": "I list."}, call]}),
        ("m3", "c1", answer),
        ("m4", "m3", {"role": "assistant", "content": [{"type": "text", "text": "One file."}]}),
    ]
    head = {"type": "session", "id": "s1", "version": 3, "cwd": "/w"}
    return [head, *({"type": "message", "id": i, "parentId": p, "message": m} for i, p, m in lines)]


def test_an_openclaw_line_that_hangs_on_a_call_goes_on_from_the_line_with_that_call(tmp_path: Path) -> None:
    rows = openclaw_session()
    run, report = read_one("hf_sts", write(tmp_path / "s.jsonl", rows), tmp_path)
    expected = ["user: List", "agent: I list. > shell(c1) < a.txt(c1)", "agent: One file."]
    assert outline(run) == expected
    assert not any("branch" in note for note in report.notes)
    assert run.trajectory.agent.name == "pi"
    injected = {"customType": "openclaw.runtime-context", "content": "It is Monday."}
    injected |= {"type": "custom_message", "id": "c", "parentId": "m4"}
    run, _ = read_one("hf_sts", write(tmp_path / "s.jsonl", [*rows, injected]), tmp_path)
    assert (outline(run)[3:], run.trajectory.agent.name) == (["user: It is Monday."], "openclaw")
    mirror = {"role": "assistant", "content": "One file.", "provider": "openclaw", "model": "delivery-mirror"}
    copied = {"type": "message", "id": "m5", "parentId": "m4", "message": mirror}
    run, _ = read_one("hf_sts", write(tmp_path / "s.jsonl", [*rows, copied]), tmp_path)
    assert [step.train for step in run.trajectory.agent_steps] == [None, None, False]
    assert run.trajectory.agent.name == "openclaw"
    side = {"type": "message", "id": "x", "parentId": "m1", "message": {"role": "assistant", "content": "Other."}}
    run, report = read_one("hf_sts", write(tmp_path / "s.jsonl", [*rows[:3], side, *rows[3:]]), tmp_path)
    assert outline(run) == expected
    assert any("1 messages of others are left out" in note for note in report.notes)


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def test_a_cline_task_has_its_model_and_each_answer_with_its_call(tmp_path: Path) -> None:
    """Its answers are texts of the user: two calls at once, one that fails, and one under another name."""
    path = write(tmp_path / "17" / "api_conversation_history.json", small_log("cline"))
    run, report = read_one("cline", path, tmp_path)
    environment = "<environment_details>\n# Current Mode\n</environment_details>"
    failed = "The tool execution failed:\n<error>\nNo such file\n</error>"
    assert outline(run) == [
        f"user: <task>\nRead [a] and b\n</task>{environment}",
        f"agent:  > read_file(c1) > read_file(c2) < x = 1(c1) < !{failed}(c2)",
        f"user: {environment}",
        "agent: Ask. > use_subagents(c3) < all good(c3)",
        "user: [note] hi",
        "agent:  > attempt_completion(c4)",
        "user: [a thought] Result: none",
    ]
    made = run.trajectory
    assert {step.model for step in made.agent_steps} == {"claude-x"} == {made.agent.model}
    assert (made.task.prompt, made.agent.name, run.key) == ("Read [a] and b", "cline", "cline:17")
    assert tokens(made.agent_steps[0]) == (15, 4)
    assert not report.n_rejected


def test_a_cline_task_in_xml_says_that_its_calls_are_text_and_is_not_trained_on_what_the_program_cut_off(
    tmp_path: Path,
) -> None:
    cut = "[Response interrupted by a tool use result. Only one tool may be used at a time.]"
    said = ["<read_file>\n<path>a</path>\n</read_file>\n\nThen\n\n" + cut, f"It ends with {cut} there."]
    task = [
        message("user", [text_block("<task>Go</task>")]),
        message("assistant", [text_block(said[0])]),
        message("user", [text_block("[read_file for 'a'] Result:"), text_block("x = 1")]),
        message("assistant", [text_block(said[1])]),
    ]
    run, report = read_one("cline", write(tmp_path / "17" / "api_conversation_history.json", task), tmp_path)
    made = run.trajectory
    assert [(text_of(step.message), step.train) for step in made.agent_steps] == [(said[0], False), (said[1], None)]
    assert any("not trained on" in note for note in report.notes)
    assert any("calls in XML are text" in note for note in report.notes)


def test_a_session_of_cline_4_has_the_model_of_each_message(tmp_path: Path) -> None:
    called = {"type": "tool_use", "id": "c1", "name": "editor", "input": {"path": "a"}}
    result = {"type": "tool_result", "tool_use_id": "c1", "name": "editor", "content": "Edited."}
    about = {"id": "vendor/m-1", "provider": "cline", "family": "m"}
    session = {
        "version": 1,
        "agent": "lead",
        "sessionId": "17_abc",
        "system_prompt": "You are Cline.",
        "messages": [
            {"role": "user", "content": [text_block("Edit "), {"type": "file", "path": "a", "content": "x = 1"}]},
            {
                "role": "assistant",
                "content": [called],
                "modelInfo": about,
                "metrics": {"inputTokens": 9, "outputTokens": 2},
            },
            {"role": "user", "content": [result]},
            {"role": "assistant", "content": [text_block("Done.")], "modelInfo": {**about, "id": "m-2"}},
        ],
    }
    run, report = read_one("cline", write(tmp_path / "17_abc.messages.json", session), tmp_path)
    assert outline(run) == [
        "system: You are Cline.",
        'user: Edit <file_content path="a">\nx = 1\n</file_content>',
        "agent:  > editor(c1) < Edited.(c1)",
        "agent: Done.",
    ]
    made = run.trajectory
    assert [step.model for step in made.agent_steps] == ["vendor/m-1", "m-2"]
    assert (made.task.prompt, run.key, tokens(made.agent_steps[0])) == ("Edit ", "cline:17_abc", (9, 2))
    assert not report.unknown


def test_a_cline_model_comes_from_the_files_beside_it_where_the_messages_lack_it(tmp_path: Path) -> None:
    folder = tmp_path / "saoudrizwan.claude-dev" / "tasks" / "17"
    task = [
        {key: message[key] for key in ("role", "content", "ts") if key in message} for message in small_log("cline")
    ]
    path = write(folder / "api_conversation_history.json", task)
    write(folder / "ui_messages.json", [{"ts": 1, "type": "say", "say": "text", "text": "Read"}])
    uses = [{"ts": 3000, "model_id": "m-late"}, {"ts": 500, "model_id": "m-early"}]
    write(folder / "task_metadata.json", {"files_in_context": [], "model_usage": uses})
    run, report = read_one("cline", path, tmp_path)
    assert [step.model for step in run.trajectory.agent_steps] == ["m-early", "m-late", "m-late"]
    assert {known.name for known in report.consumed} == {"ui_messages.json", "task_metadata.json"}
    timeless = [{key: value for key, value in message.items() if key != "ts"} for message in task]
    run, report = read_one("cline", write(path, timeless), tmp_path)
    assert {step.model for step in run.trajectory.agent_steps} == {None}
    assert any("several models" in note for note in report.notes)
    (folder / "task_metadata.json").unlink()
    described = (
        "<environment_details>\n# Current Mode\n<slug>code</slug>\n<model>vendor/m-2</model>\n</environment_details>"
    )
    roo = [{**timeless[0], "content": [text_block("<task>Go</task>"), text_block(described)]}, *timeless[1:]]
    run, _ = read_one("cline", write(tmp_path / "rooveterinaryinc.roo-cline" / "t" / path.name, roo), tmp_path)
    assert (run.trajectory.agent.name, run.trajectory.agent.model) == ("roo-code", "vendor/m-2")


def test_an_amp_thread_keeps_what_its_tools_gave_with_model_and_place() -> None:
    """Five results: done, done with an exit code, a list, an error, and an object."""
    run, report = read_log("amp")
    made = run.trajectory
    answers = '< one(c0) < !two(c1) < a.py\nb.py(c2) < !no such tool(c3) < {"diff": "+1"}(c4)'
    assert outline(run)[1].endswith(answers)
    assert outline(run)[2:] == ["agent: Done."]
    assert (made.agent.model, made.agent.version, made.extra["cwd"]) == ("m-1", "0.9", "/home/u/p")
    assert [moment(step) for step in made.steps] == [1_760_000_000, None, 1_760_000_001]
    assert (tokens(made.agent_steps[0]), run.key) == ((10, 2), "amp:T-1")
    assert any("may have seen other words" in note for note in report.notes)


def test_an_amp_result_without_an_output_is_how_its_run_ended(tmp_path: Path) -> None:
    call = {"type": "tool_use", "id": "c1", "name": "edit_file", "input": {}}
    result = {"type": "tool_result", "toolUseID": "c1", "run": {"status": "rejected-by-user"}}
    messages = [
        {"role": "user", "messageId": 0, "content": [text_block("Edit")]},
        {"role": "assistant", "messageId": 1, "content": [call]},
        {"role": "user", "messageId": 2, "content": [result]},
    ]
    run, _ = read_one("amp", write(tmp_path / "T-2.json", {"id": "T-2", "created": 1, "messages": messages}), tmp_path)
    assert outline(run) == ["user: Edit", "agent:  > edit_file(c1) < !rejected-by-user(c1)"]


def crush_write_ahead(path: Path) -> Path:
    """Write the log of Crush as the program leaves it: with a write-ahead log, and with a session that has no answer."""
    path.write_bytes(content("crush.db", small_log("crush")))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("INSERT INTO sessions (id, title, created_at) VALUES ('s3', 'Empty', 1756000002)")
        connection.commit()
    return path


def test_each_session_of_a_crush_database_is_a_run(tmp_path: Path) -> None:
    path = crush_write_ahead(tmp_path / "crush.db")
    (one, two), report = read_as("crush", path, tmp_path)
    assert outline(one) == ["user: Go", "agent: I look. > view(c1) < !no a(c1)", "agent: Gone."]
    assert outline(two) == ["user: Look for a.", "agent: Gone."]
    trajectory = one.trajectory
    assert (trajectory.agent.model, trajectory.extra["title"], two.parent) == ("m-1", "Look", "crush:s1")
    assert (trajectory.steps[1].thought, moment(trajectory.steps[1])) == ("hm", 1_756_000_001)
    assert (report.n_rejected, len(report.notes)) == (1, 2)
    (tmp_path / "crush.db-wal").write_bytes(b"x")
    assert any("crush.db-wal is not read" in note for note in read_as("crush", path, tmp_path)[1].notes)


def test_a_database_above_the_bound_is_no_log_and_a_forced_reading_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = crush_write_ahead(tmp_path / "crush.db")
    monkeypatch.setattr(databases, "MAX_BYTES", 2**10)
    assert detect(probe(path, tmp_path)).importer is None
    with pytest.raises(InvalidInput, match=r"at most 1.*export its runs as JSON"):
        read_file(tmp_path, "crush", "crush.db")


def test_a_view_in_the_place_of_a_table_of_crush_is_not_run(tmp_path: Path) -> None:
    path = crush_write_ahead(tmp_path / "crush.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE messages")
        endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT * FROM n"
        connection.execute(f"CREATE VIEW messages AS {endless}")
        connection.commit()
    assert detect(probe(path, tmp_path)).importer is None
