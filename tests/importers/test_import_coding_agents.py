"""Readers of Claude Code and Codex, on small logs made by hand after their layouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_logs import detected, outline, read_as, read_log, read_one, tokens, write
from hostile import survives
from quintain.importers.files.probing import probe
from quintain.importers.pipeline import ImportOptions, import_logs
from quintain.importers.protocol import Report, Run
from quintain.importers.registry import detect
from quintain.importers.run_sink import DryRun
from quintain.records.trajectory import OutcomeStatus, text_of


def copied(run: Run) -> list[bool]:
    return [step.copied_context for step in run.trajectory.steps]


# --- Claude Code


def claude(
    uuid: str, parent: str | None, kind: str, content: Any, *, session: str = "s1", minute: int = 5, **more: Any
) -> dict[str, Any]:
    """A line; that of a reply names the model."""
    message = {"role": kind, "content": content, **({"id": uuid, "model": "m-1"} if kind == "assistant" else {})}
    line = {"uuid": uuid, "parentUuid": parent, "type": kind, "sessionId": session, "message": message}
    time = f"2026-02-03T04:{minute:02}:06Z"
    return {**line, "isSidechain": False, "cwd": "/repo", "version": "2.1.0", "timestamp": time, **more}


def reply(uuid: str, parent: str, message_id: str, block: str | dict[str, Any], **more: Any) -> dict[str, Any]:
    """A line with one block of a reply; a text is a block of text."""
    content = [{"type": "text", "text": block} if isinstance(block, str) else block]
    line = claude(uuid, parent, "assistant", content, **more)
    line["message"]["id"] = message_id
    return line


def use(call_id: str, name: str = "Bash") -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {"command": "ls"}}


def result(call_id: str, content: Any, **more: Any) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": call_id, "content": content, **more}]


def claude_run(folder: Path, lines: list[Any]) -> tuple[Run, Report]:
    return read_one("claude_code", write(folder / "s1.jsonl", lines), folder)


def test_one_claude_reply_over_three_lines_is_one_turn_whose_usage_counts_once(tmp_path: Path) -> None:
    """Thought, text and two parallel calls share a message id; the results hang on different lines of the reply.

    Input tokens are 3 + 10 + 20 = 33; output is that of the last line, 9.
    """
    lines = [
        claude("u1", None, "user", "Fix the test"),
        reply("a1", "u1", "msg", {"type": "thinking", "thinking": "look first", "signature": "x"}),
        reply("a2", "a1", "msg", "I look."),
        reply("a3", "a2", "msg", use("t1")),
        reply("a4", "a3", "msg", use("t2", "Read")),
        claude("r1", "a3", "user", result("t1", "one"), toolUseResult={"stdout": "not this"}),
        claude("r2", "a4", "user", result("t2", [{"type": "text", "text": "two"}], is_error=True)),
        reply("a5", "r1", "msg2", "Done."),
    ]
    for line, out in zip(lines[1:5], (1, 1, 1, 9), strict=True):
        taken = {"input_tokens": 3, "cache_read_input_tokens": 10, "cache_creation_input_tokens": 20}
        line["message"]["usage"] = {**taken, "output_tokens": out}
    run, report = claude_run(tmp_path, lines)
    assert outline(run) == [
        "user: Fix the test",
        "agent: I look. > Bash(t1) > Read(t2) < one(t1) < !two(t2)",
        "agent: Done.",
    ]
    turn = run.trajectory.steps[1]
    assert (turn.thought, turn.model) == ("look first", "m-1")
    assert tokens(turn) == (33, 9)
    assert (run.key, run.trajectory.session_id) == ("claude_code:s1", "s1")
    assert run.trajectory.outcome.status is OutcomeStatus.UNKNOWN
    assert run.trajectory.extra == {"cwd": "/repo", "tools": "inferred"}
    assert [tool["function"]["name"] for tool in run.trajectory.tools] == ["Bash", "Read"]
    assert any("system prompt" in note for note in report.notes)
    assert not report.unknown


def test_of_a_claude_graph_the_latest_branch_is_read_and_the_others_are_counted(tmp_path: Path) -> None:
    lines = [
        claude("u1", None, "user", "first wording"),
        reply("a1", "u1", "m1", "to the first"),
        claude("u2", None, "user", "second wording"),
        reply("a2", "u2", "m2", use("t1")),
        claude("r0", "a2", "user", result("t1", "interrupted")),
        {"type": "system", "subtype": "api_error", "uuid": "e1", "parentUuid": "r0", "sessionId": "s1"},
        reply("x1", "e1", "x1", "API Error", isApiErrorMessage=True),
        reply("a3", "x1", "m3", "one way"),
        reply("a4", "x1", "m4", "other way"),
        claude("h1", "a4", "user", "Stop hook feedback: go on", isMeta=True),
        reply("a5", "h1", "m5", "the end"),
        {"type": "summary", "summary": "A title", "leafUuid": "a5"},
    ]
    run, report = claude_run(tmp_path, lines)
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
    run, report = claude_run(tmp_path, [*lines[:2], claude("u2", None, "user", "Unanswered rewind")])
    assert outline(run) == ["user: first wording", "agent: to the first"]
    assert any("1 left out" in note for note in report.notes)


def test_a_claude_session_goes_on_over_a_compact_boundary(tmp_path: Path) -> None:
    boundary = {"type": "system", "subtype": "compact_boundary", "uuid": "c1", "sessionId": "s1", "parentUuid": None}
    lines = [
        claude("m0", None, "user", "<command-name>/model</command-name>"),
        claude("u1", "m0", "user", "Do it"),
        reply("a1", "u1", "m1", "half"),
        boundary | {"logicalParentUuid": "a1"},
        claude("u2", "c1", "user", "This session is continued ...", isCompactSummary=True),
        reply("a2", "u2", "m2", {"type": "redacted_thinking", "data": "zzz"}),
        reply("a3", "a2", "m2", "whole"),
    ]
    run, report = claude_run(tmp_path, lines)
    assert outline(run)[1:] == ["user: Do it", "agent: half", "user: This session is continued ...", "agent: whole"]
    assert run.trajectory.task.prompt == "Do it"
    assert run.trajectory.steps[3].extra == {"compacted": True}
    assert report.unknown == {"system/compact_boundary": 1}
    assert sum("compacted" in note or "encrypted" in note for note in report.notes) == 2
    lines[3] = boundary | {"logicalParentUuid": "in-memory"}  # a line that the program did not write
    run, _ = claude_run(tmp_path, lines)
    assert outline(run)[1:] == ["user: Do it", "agent: half", "user: This session is continued ...", "agent: whole"]


def test_claude_subagents_are_runs_of_their_own_that_name_their_session(tmp_path: Path) -> None:
    lines = [
        claude("u1", None, "user", "Delegate"),
        reply("a1", "u1", "m1", use("t1", "Task")),
        claude("k1", "a1", "user", "Search the code", isSidechain=True),
        reply("k2", "k1", "m2", "Found it.", isSidechain=True),
        claude("r1", "a1", "user", result("t1", "Found it.")),
        claude("v1", None, "user", "Hi", session="s2"),
        reply("v2", "v1", "m9", "Hello", session="s2"),
    ]
    root = tmp_path / "projects"
    runs, _ = read_as("claude_code", write(root / "s1.jsonl", lines), root)
    assert [(run.key, run.parent, run.trajectory.session_id) for run in runs] == [
        ("claude_code:s1", None, "s1"),
        ("claude_code:s1:k1", "claude_code:s1", "s1:k1"),
        ("claude_code:s2", None, "s2"),
    ]
    assert outline(runs[1]) == ["user: Search the code", "agent: Found it."]
    path = write(root / "s1" / "subagents" / "agent-b7.jsonl", [{**line, "agentId": "b7"} for line in lines[2:4]])
    write(path.with_name("agent-b7.meta.json"), {"agentType": "explorer", "description": "d"})
    sub, report = read_one("claude_code", path, root)
    assert (sub.key, sub.parent) == ("claude_code:s1:b7", "claude_code:s1")
    assert sub.trajectory.extra["agent_type"] == "explorer"
    assert [file.name for file in report.consumed] == ["agent-b7.meta.json"]
    dry = import_logs(path.parent, ImportOptions(), DryRun({}))
    assert (dry.imported, [file.file for file in dry.files]) == (1, ["agent-b7.jsonl"])


def test_bad_claude_lines_are_rejected_and_the_rest_comes_in(tmp_path: Path) -> None:
    lines: list[Any] = [
        claude("u1", None, "user", "Task"),
        "text",
        {"type": "user", "sessionId": "s1", "uuid": "u2", "message": "expected an object"},
        claude("u3", "gone", "assistant", None),
        reply("a1", "gone", "m1", "still here"),
    ]
    run, report = claude_run(tmp_path, lines)
    assert outline(run) == ["user: Task", "agent: still here"]
    assert [line for line, _ in report.rejected] == [2, 3, 4]


def test_a_headless_claude_stream_ends_with_its_result_and_success_of_the_program_is_no_verdict(tmp_path: Path) -> None:
    stream = [
        {"type": "system", "subtype": "init", "session_id": "h1", "tools": ["Bash"], "model": "m"},
        {"type": "assistant", "session_id": "h1", "message": {"id": "m1", "content": [{"type": "text", "text": "ok"}]}},
        {"type": "result", "subtype": "success", "session_id": "h1", "is_error": False, "result": "ok"},
    ]
    run, report = claude_run(tmp_path, stream)
    assert (run.trajectory.outcome.status, run.trajectory.outcome.exit_status) == (OutcomeStatus.UNKNOWN, "success")
    assert report.unknown == {"system/init": 1, "result": 1}


def test_a_claude_session_that_another_of_its_file_goes_on_from_is_no_run_of_its_own(tmp_path: Path) -> None:
    lines = [
        claude("u1", None, "user", "Start"),
        reply("a1", "u1", "m1", "part"),
        reply("a2", "a1", "m1", use("t1")),
        claude("r1", "a2", "user", result("t1", "seen")),
        claude("u2", "r1", "user", "Go on", session="s2"),
        reply("a3", "u2", "m2", "rest", session="s2"),
    ]
    run, _ = claude_run(tmp_path, lines)
    assert outline(run) == ["user: Start", "agent: part > Bash(t1) < seen(t1)", "user: Go on", "agent: rest"]
    assert run.key == "claude_code:s2"


def test_every_step_of_a_claude_session_names_the_model_that_wrote_it(tmp_path: Path) -> None:
    """A model was changed midway; an error of the API that stands in for a reply is no turn of a model."""
    lines = [
        claude("u1", None, "user", "Go"),
        reply("a1", "u1", "m1", "One."),
        claude("u2", "a1", "user", "On"),
        reply("e1", "u2", "x", "API Error"),
        reply("a2", "e1", "m2", "Two."),
    ]
    for n, model in ((1, "claude-a"), (3, "<synthetic>"), (4, "claude-b")):
        lines[n]["message"]["model"] = model
    run, report = claude_run(tmp_path, lines)
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
    run, _ = claude_run(tmp_path, lines)
    seen = run.trajectory.agent_steps[0].observations[0].content
    assert isinstance(seen, str)
    assert "http://x/" in seen
    assert "zzz" not in seen
    assert text_of(run.trajectory.steps[0].message) == "ReadAll of it."


def test_the_task_of_a_claude_session_is_what_was_typed_beside_the_reminders_of_the_program(tmp_path: Path) -> None:
    reminder = {"type": "text", "text": "<system-reminder>\nThese files are open.\n</system-reminder>"}
    asked = [reminder, {"type": "text", "text": "Run the tests"}, reminder]
    run, _ = claude_run(tmp_path, [claude("u1", None, "user", asked), claude("a1", "u1", "assistant", "Done.")])
    assert run.trajectory.task.prompt == "Run the tests"
    assert len(run.trajectory.steps[0].message) == 3


def test_a_claude_fork_goes_on_from_its_parent_and_marks_what_it_repeats(tmp_path: Path) -> None:
    def session(name: str, *turns: tuple[str, str, int]) -> list[dict[str, Any]]:
        """Lines of the user and the agent in turn, each with its uuid, text and minute."""
        uuids = [None, *(uuid for uuid, _, _ in turns)]
        return [
            claude(uuid, uuids[n], "assistant" if n % 2 else "user", text, session=name, minute=minute)
            for n, (uuid, text, minute) in enumerate(turns)
        ]

    opening = (("u1", "Go", 1), ("a1", "Gone", 2))
    queued = {"type": "queue-operation", "operation": "enqueue", "content": "Else", "sessionId": "f"}
    fork = [queued, *session("f", *opening, ("u3", "Else", 10), ("a3", "No", 11))]
    files = {
        "a-fork": fork,
        "b-parent": session("p", *opening, ("u2", "More", 3), ("a2", "Yes", 4)),
        "c": session("x", ("u1", "Another", 1), ("a1", "A", 2)),
    }
    paths = [write(tmp_path / f"{name}.jsonl", rows) for name, rows in files.items()]
    forked, _ = read_one("claude_code", paths[0], tmp_path)
    assert (forked.continues, copied(forked)) == ("claude_code:p", [True, True, False, False])
    for path in paths[1:]:
        run, _ = read_one("claude_code", path, tmp_path)
        assert (run.continues, any(copied(run))) == (None, False)


def test_claude_lines_that_name_no_parent_go_on_from_the_line_before(tmp_path: Path) -> None:
    rows = [claude("u1", None, "user", "First"), claude("a1", None, "assistant", "One")]
    loose = [{key: value for key, value in row.items() if key != "parentUuid"} for row in rows]
    call = {"type": "tool_use", "sessionId": "s1", "name": "bash", "input": {"command": "ls"}, "uuid": "t1"}
    seen = {"type": "tool_result", "sessionId": "s1", "name": "bash", "output": "a.py", "uuid": "r1"}
    later = [claude("u2", "a1", "user", "Second"), claude("a2", "u2", "assistant", "Two")]
    run, _ = claude_run(tmp_path, [loose[0], call, seen, loose[1], *later])
    assert outline(run) == [
        "user: First",
        "agent:  > bash(None) < a.py(None)",
        "agent: One",
        "user: Second",
        "agent: Two",
    ]
    assert run.trajectory.task.prompt == "First"


def test_claude_lines_copied_without_their_session_are_one_session_named_by_its_file(tmp_path: Path) -> None:
    lines = [claude("a", None, "user", "Go"), claude("b", "a", "assistant", "Done.")]
    bare = [{key: line[key] for key in ("type", "message", "timestamp")} for line in lines]
    path = write(tmp_path / "copy.jsonl", bare)
    assert detect(probe(path, tmp_path)).confidence == 0.6
    run, _ = read_one("claude_code", path, tmp_path)
    assert (outline(run), run.trajectory.session_id) == (["user: Go", "agent: Done."], "copy")


def test_the_lines_of_a_session_of_claude_on_the_web_are_those_of_a_session(tmp_path: Path) -> None:
    call = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "a.py", "is_error": False}
    turns = [
        ("user", "Go"),
        ("assistant", [call]),
        ("user", [result]),
        ("assistant", [{"type": "text", "text": "Done."}]),
    ]
    lines = [
        {"type": role, "timestamp": f"2026-02-03T04:05:0{n}Z", "message": {"role": role, "content": content}}
        for n, (role, content) in enumerate(turns)
    ]
    run, _ = read_one("claude_code", write(tmp_path / "web.json", {"loglines": lines}), tmp_path)
    assert outline(run) == ["user: Go", "agent:  > Bash(c1) < a.py(c1)", "agent: Done."]
    assert (run.trajectory.session_id, run.trajectory.task.prompt) == ("web", "Go")


def steered() -> list[dict[str, Any]]:
    def queue(operation: str, **more: Any) -> dict[str, Any]:
        return {"type": "queue-operation", "operation": operation, "sessionId": "s1", **more}

    delivered = {"type": "queued_command", "prompt": "duplicate record"}
    rows = [
        claude("u1", None, "user", "Start"),
        claude("a1", "u1", "assistant", "On it"),
        queue("enqueue", content="parser first"),
        queue("remove"),
        queue("enqueue", content="duplicate record"),
        queue("remove", content="duplicate record"),
        {"type": "attachment", "uuid": "t", "parentUuid": "a1", "sessionId": "s1", "attachment": delivered},
        queue("enqueue", content="taken back"),
        queue("popAll", content="taken back"),
        claude("a2", "t", "assistant", "Fine"),
        reply("x", "a2", "x", "No response requested."),
    ]
    rows[-1]["message"]["model"] = "<synthetic>"
    return rows


def test_what_a_person_typed_while_claude_worked_is_a_turn_unless_another_line_says_it(tmp_path: Path) -> None:
    run, report = claude_run(tmp_path, steered())
    assert outline(run) == [
        "user: Start",
        "agent: On it",
        "user: parser first",
        "user: duplicate record",
        "agent: Fine",
    ]
    assert report.unknown["no response requested"] == 1
    assert "api error" not in report.unknown


# --- Codex


def codex(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": "2026-03-01T00:00:00Z", "type": kind, "payload": payload}


def item(kind: str, **fields: Any) -> dict[str, Any]:
    return codex("response_item", type=kind, **fields)


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return codex("event_msg", type=kind, **fields)


def words(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return item("message", role=role, content=[{"type": kind, "text": text}])


def typed(text: str) -> dict[str, Any]:
    return event("user_message", message=text)


def codex_run(folder: Path, lines: list[Any]) -> tuple[Run, Report]:
    return read_one("codex", write(folder / "r.jsonl", lines), folder)


def test_a_codex_rollout_is_its_response_items_with_models_and_exit_codes() -> None:
    run, report = read_log("codex")
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
    assert [call.raw_args for call in first.actions] == ['{"cmd": "ls"}', "*** Begin"]
    assert first.actions[1].args is None
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in run.trajectory.tools}
    assert schemas["exec_command"] == {"type": "object", "properties": {"cmd": {}}}
    assert schemas["apply_patch"]["type"] == "string", "its record says that its arguments are text"
    assert [step.usage and step.usage.output_tokens for step in (first, second, last)] == [2, None, 4]
    assert run.trajectory.task.prompt == "Make it pass"
    assert (run.key, run.parent, run.trajectory.agent.version) == ("codex:c1", "codex:c0", "0.99")
    assert (report.unknown["event_msg/agent_message"], report.unknown["compacted"]) == (1, 1)
    assert any("encrypted" in note for note in report.notes)


def test_codex_lines_without_an_envelope_are_the_first_generation(tmp_path: Path) -> None:
    bare = [
        {"id": "old", "timestamp": "2025-08-01T00:00:00Z", "instructions": "Be terse", "git": {"branch": "main"}},
        {"record_type": "state"},
        words("user", "<environment_context>")["payload"],
        words("user", "Count files")["payload"],
        {"type": "function_call", "name": "shell", "arguments": "{broken", "call_id": "k1"},
        {"type": "function_call_output", "call_id": "k1", "output": '{"output":"3","metadata":{"exit_code":1}}'},
        words("assistant", "3")["payload"],
    ]
    run, report = codex_run(tmp_path, bare)
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
    same, _ = read_one("codex", write(tmp_path / "rollout.json", whole), tmp_path)
    assert outline(same) == outline(run)


def test_codex_messages_without_a_type_are_known_by_their_role_and_bring_the_calls_among_their_parts(
    tmp_path: Path,
) -> None:
    parts = [{"type": "input_text", "text": "I look"}, {"type": "tool_use", "id": "k", "name": "Read", "input": {}}]
    lines = [
        codex("session_meta", id="c"),
        typed("Go"),
        codex("response_item", role="assistant", content=parts),
        item("function_call_output", call_id="k", output="text"),
    ]
    run, report = codex_run(tmp_path, lines)
    assert outline(run) == ["user: Go", "agent: I look > Read(k) < text(k)"]
    assert not report.rejected


def test_codex_exec_events_become_steps_and_their_usage_stays_with_the_run(tmp_path: Path) -> None:
    def done(name: str, kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": "item.completed", "item": {"id": name, "type": kind, **fields}}

    command = {"id": "i1", "type": "command_execution", "command": "pytest", "status": "in_progress"}
    events = [
        {"type": "thread.started", "thread_id": "x1"},
        {"type": "turn.started"},
        done("i0", "reasoning", text="Run the tests"),
        {"type": "item.started", "item": command},
        done("i1", "command_execution", command="pytest", status="failed", aggregated_output="1 failed", exit_code=1),
        done("i2", "agent_message", text="One fails."),
        {"type": "turn.completed", "usage": {"input_tokens": 100, "output_tokens": 50}},
        {"type": "item.started", "item": {**command, "id": "i3"}},
        {"type": "turn.failed", "error": {"message": "stream lost"}},
    ]
    run, report = codex_run(tmp_path, events)
    assert outline(run) == ["agent:  > shell(i1) < !1 failed(i1)", "agent: One fails.", "agent:  > shell(i3)"]
    assert run.trajectory.agent_steps[0].thought == "Run the tests"
    assert run.trajectory.extra["usage"] == {"input_tokens": 100, "output_tokens": 50}
    assert run.trajectory.outcome.exit_status == "stream lost"
    assert report.unknown == {"turn.started": 1, "turn.failed": 1}


def test_joined_codex_sessions_are_told_apart_but_a_fork_is_one_run(tmp_path: Path) -> None:
    one, two = codex("session_meta", id="a"), codex("session_meta", id="b")
    joined = [one, words("assistant", "1"), two, words("assistant", "2")]
    runs, _ = read_as("codex", write(tmp_path / "joined.jsonl", joined), tmp_path)
    assert [run.key for run in runs] == ["codex:a", "codex:b"]
    run, _ = codex_run(tmp_path, [codex("session_meta", id="c", forked_from_id="a"), one, words("assistant", "1")])
    assert (run.key, run.continues) == ("codex:c", "codex:a")


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
    run, _ = codex_run(tmp_path, [codex("session_meta", id="c1"), words("user", "Go"), *calls, *answers])
    seen = run.trajectory.agent_steps[0].observations
    assert [observation.is_error for observation in seen] == [True] * 4 + [False] * 3


@pytest.mark.parametrize("order", ["before the results", "after the results", "before the reply"])
def test_a_codex_token_count_belongs_to_its_reply_wherever_the_version_writes_it(tmp_path: Path, order: str) -> None:
    def count(n: int) -> dict[str, Any]:
        return event("token_count", info={"total_token_usage": {"n": n}, "last_token_usage": {"output_tokens": n}})

    (one, two), said = (
        (item("function_call", name="shell", arguments="{}", call_id=c) for c in "ab"),
        words("assistant", "!"),
    )
    seen = [item("function_call_output", call_id=c, output="ok") for c in "ab"]
    rows = {
        "before the results": [one, count(1), seen[0], two, count(2), seen[1], said, count(3)],
        "after the results": [one, seen[0], count(1), two, seen[1], count(2), said, count(3)],
        "before the reply": [count(1), one, seen[0], count(2), two, seen[1], count(3), said],
    }[order]
    run, _ = codex_run(tmp_path, [codex("session_meta", id="s"), words("user", "Go"), *rows])
    assert [step.usage and step.usage.output_tokens for step in run.trajectory.agent_steps] == [1, 2, 3]


def test_tools_in_a_namespace_of_codex_are_named_as_they_are_called(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"q": {}}}
    space = {"type": "namespace", "name": "web", "tools": [{"type": "function", "name": "find", "inputSchema": schema}]}
    call = item("function_call", name="find", namespace="web", arguments="{}", call_id="k1")
    run, _ = codex_run(tmp_path, [codex("session_meta", id="c1", dynamic_tools=[space]), words("user", "Go"), call])
    (tool,) = run.trajectory.tools
    assert (tool["function"]["name"], tool["function"]["parameters"]) == ("web.find", schema)
    assert run.trajectory.agent_steps[0].actions[0].tool == "web.find"


def rolled_back() -> list[dict[str, Any]]:
    return [
        codex("session_meta", id="s"),
        typed("one"),
        words("user", "one"),
        words("assistant", "1"),
        words("user", "bad"),
        typed("bad"),
        item("function_call", name="shell", arguments="{}", call_id="c"),
        words("user", "worse"),
        words("assistant", "x"),
        event("thread_rolled_back", num_turns=2),
        words("user", "two"),
        words("assistant", "2"),
        item("function_call_output", call_id="c", output="late"),
    ]


def test_codex_turns_that_were_rolled_back_are_left_out_with_their_calls(tmp_path: Path) -> None:
    run, report = codex_run(tmp_path, rolled_back())
    assert outline(run) == ["user: one", "agent: 1", "user: two", "agent: 2 < late(c)"]
    assert any("rolled back" in note for note in report.notes)
    rows = rolled_back()
    rows[9] = event("thread_rolled_back", num_turns=3)
    run, _ = codex_run(tmp_path, rows)
    assert (outline(run), run.trajectory.task.prompt) == (["user: two", "agent: 2 < late(c)"], "two")


def typed_item(text: str) -> dict[str, Any]:
    """A prompt as Codex records it since 0.148."""
    part = {"type": "text", "text": text, "text_elements": []}
    return event("item_completed", item={"type": "UserMessage", "id": "u", "content": [part]})


@pytest.mark.parametrize("told", [typed, typed_item])
def test_each_prompt_that_an_event_records_is_one_turn_of_the_codex_run(tmp_path: Path, told: Any) -> None:
    """Events alone, with an item, before an item with more text, and with an item and the event of the other kind."""
    rows = [codex("session_meta", id="s"), words("user", "<environment_context>x</environment_context>")]
    rows += [told("1+1?"), words("assistant", "2"), told("2+2?"), words("assistant", "4")]
    rows += [words("user", "both"), told("both"), words("assistant", "5")]
    rows += [told("again"), codex("turn_context", model="m"), words("user", "IDE: again"), words("assistant", "6")]
    rows += [words("user", "Go"), typed_item("Go"), typed("Go"), words("assistant", "7")]
    rows += [typed("Go"), typed_item("Go"), words("assistant", "8")]
    run, _ = codex_run(tmp_path, rows)
    asked = ("1+1?", "2+2?", "both", "IDE: again", "Go", "Go")
    turns = [
        f"{actor}: {text}"
        for pair in zip(asked, "245678", strict=True)
        for actor, text in zip(("user", "agent"), pair, strict=True)
    ]
    assert outline(run) == ["user: <environment_context>x</environment_context>", *turns]
    assert run.trajectory.task.prompt == "1+1?"


def test_a_codex_session_without_items_of_the_model_has_the_turns_of_its_events(tmp_path: Path) -> None:
    def said(kind: str, text: str) -> dict[str, Any]:
        return event("item_completed", item={"type": kind, "content": [{"type": "text", "text": text}]})

    older = [event("user_message", message="Go"), event("agent_message", message="Went."), event("turn_aborted")]
    newer = [words("user", "Go"), said("UserMessage", "Go"), said("AgentMessage", "Went.")]
    for rows in (older, newer):
        run, _ = codex_run(tmp_path, [codex("session_meta", id="s"), codex("turn_context", model="m"), *rows])
        assert outline(run.trajectory) == ["user: Go", "agent: Went."]
        assert run.trajectory.agent.model == "m"
    run, _ = codex_run(tmp_path, [codex("session_meta", id="s"), *older, words("assistant", "Item.")])
    assert outline(run.trajectory) == ["user: Go", "agent: Item."]


def test_a_codex_fork_marks_what_it_repeats_where_its_parent_lies_in_the_logs(tmp_path: Path) -> None:
    shared = [words("user", "one"), words("assistant", "1")]
    parent, name = "019a0000-0000-7000-8000-000000000001", "rollout-2026-01-0{}T00-00-00-{}.jsonl"
    meta = codex("session_meta", id=parent)
    write(tmp_path / "2026/01/01" / name.format(1, parent), [meta, *shared, words("user", "two")])
    rows = [codex("session_meta", id="f", forked_from_id=parent), meta, *shared]
    rows += [words("user", "else"), words("assistant", "2")]
    run, _ = read_one("codex", write(tmp_path / "2026/01/02" / name.format(2, "f"), rows), tmp_path)
    assert (run.continues, copied(run)) == (f"codex:{parent}", [True, True, False, False])
    run, report = codex_run(tmp_path / "apart", rows)
    assert not any(copied(run))
    assert any("not marked" in note for note in report.notes)


# --- both


def test_a_block_of_an_unknown_kind_is_no_word_of_the_agent(tmp_path: Path) -> None:
    strange = [{"type": "text", "text": "Done."}, {"type": "later_invention", "x": 1}]
    lines = [claude("u", None, "user", "Go"), claude("a", "u", "assistant", strange)]
    items = [words("user", "Go"), item("message", role="assistant", content=strange)]
    for run, report in (claude_run(tmp_path, lines), codex_run(tmp_path, [codex("session_meta", id="s"), *items])):
        assert outline(run) == ["user: Go", "agent: Done."]
        assert report.unknown["part:later_invention"] == 1


@pytest.mark.parametrize(
    ("format", "lines"),
    [("claude_code", steered()), ("codex", rolled_back())],
    ids=["claude_code", "codex"],
)
def test_sessions_with_odd_values_are_rejected_at_worst(tmp_path: Path, format: str, lines: list[Any]) -> None:
    survives(format, lines, tmp_path)


def test_items_of_the_responses_api_among_lines_of_another_program_are_not_a_codex_session() -> None:
    item = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I think."}]}
    assert detected([item, {"type": "answer", "content": "x"}]).confidence < 0.5
    assert detected([item, {"type": "function_call", "name": "a", "call_id": "c"}]).confidence < 0.9
