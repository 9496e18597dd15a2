"""Logs of kinds that real use showed: what their readers once lost, merged or took for another format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_logs import detected, outline, read, read_one, write
from quintain.errors import InvalidInput


def codex(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": "2026-01-01T00:00:00Z", "type": kind, "payload": payload}


def codex_text(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return codex("response_item", type="message", role=role, content=[{"type": kind, "text": text}])


def codex_user_item(text: str) -> dict[str, Any]:
    """A prompt as Codex records it since 0.148."""
    item = {"type": "UserMessage", "id": "u", "content": [{"type": "text", "text": text, "text_elements": []}]}
    return codex("event_msg", type="item_completed", item=item)


@pytest.mark.parametrize("is_new", [False, True], ids=["user_message", "item_completed"])
def test_each_codex_prompt_that_only_an_event_records_gets_its_own_answer(tmp_path: Path, is_new: bool) -> None:
    rows = [codex("session_meta", id="s"), codex_text("user", "<environment_context>x</environment_context>")]
    for question, answer in (("1+1?", "2"), ("2+2?", "4")):
        event = codex_user_item(question) if is_new else codex("event_msg", type="user_message", message=question)
        rows += [event, codex_text("assistant", answer)]
    run, _ = read_one("codex", write(tmp_path / "r.jsonl", rows), tmp_path)
    assert outline(run)[1:] == ["user: 1+1?", "agent: 2", "user: 2+2?", "agent: 4"]
    assert run.trajectory.task.prompt == "1+1?"


def test_a_codex_prompt_that_an_item_and_two_events_record_is_one_turn(tmp_path: Path) -> None:
    typed = codex("event_msg", type="user_message", message="Go")
    rows = [codex("session_meta", id="s"), codex_text("user", "<plugins>x</plugins>")]
    rows += [codex_text("user", "Go"), codex_user_item("Go"), typed, codex_text("assistant", "1")]
    rows += [typed, codex_user_item("Go"), codex_text("assistant", "2")]
    run, _ = read_one("codex", write(tmp_path / "r.jsonl", rows), tmp_path)
    assert outline(run) == ["user: <plugins>x</plugins>", "user: Go", "agent: 1", "user: Go", "agent: 2"]
    assert run.trajectory.task.prompt == "Go"


def test_openhands_events_of_2024_name_neither_source_nor_cause(tmp_path: Path) -> None:
    asked = {"action": "message", "content": "Fix it", "images_urls": None, "wait_for_response": False}
    listed = {"action": "run", "command": "ls", "thought": "I look.", "keep_prompt": True, "is_confirmed": "confirmed"}
    failed = {"observation": "run", "content": "ls: no", "command": "ls", "command_id": -1, "exit_code": 2}
    recall = {"action": "recall", "query": "Fix it", "thought": ""}
    recalled = {"observation": "recall", "content": "Added"}
    done = {"action": "message", "content": "Done?", "wait_for_response": True}
    history = [asked, recall, recalled, listed, failed, done, {**asked, "content": "Yes"}]
    issue = {"owner": "o", "repo": "r", "number": 7}
    row = {"issue": issue, "instruction": "Fix it", "git_patch": "x", "history": history, "success": True}
    run, report = read_one("openhands_output", write(tmp_path / "output.jsonl", [row]), tmp_path)
    assert outline(run) == ["user: Fix it", "agent:  > run(None) < !ls: no(None)", "agent: Done?", "user: Yes"]
    assert run.trajectory.agent_steps[0].actions[0].args == {"command": "ls"}
    assert (run.trajectory.agent_steps[0].thought, run.trajectory.task.id) == ("I look.", "o/r#7")
    assert report.unknown == {"action/recall": 1, "observation/recall": 1}


def test_swe_agent_steps_that_the_history_lacks_at_its_end_are_kept(tmp_path: Path) -> None:
    listing = {"id": "k1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
    history = [
        {"role": "system", "content": "S", "agent": "main", "message_type": "system_prompt"},
        {"role": "user", "content": "Issue", "agent": "main", "message_type": "observation"},
        {"role": "assistant", "content": "Look.", "agent": "main", "action": "ls", "tool_calls": [listing]},
        {"role": "tool", "content": "a.py", "agent": "main", "tool_call_ids": ["k1"]},
    ]
    refused = {"action": "ls -x", "observation": "no", "response": "Look so.", "thought": ""}
    looked = {"action": "ls", "observation": "a.py", "response": "Look.", "thought": "Look."}
    submitted = {"action": "submit", "observation": "diff", "response": "All done.", "thought": "All done."}
    row = {"history": history, "trajectory": [refused, looked, submitted], "info": {"exit_status": "submitted"}}
    run, report = read_one("swe_agent", write(tmp_path / "x.traj", row), tmp_path)
    expected = ["agent: Look. > bash(k1) < a.py(k1)", "agent: All done. > submit(None) < diff(None)"]
    assert outline(run)[2:] == expected
    assert any("last steps" in note for note in report.notes)
    whole = {**row, "trajectory": [refused, looked]}
    run, report = read_one("swe_agent", write(tmp_path / "x.traj", whole), tmp_path)
    assert outline(run)[2:] == expected[:1]
    assert not any("last steps" in note for note in report.notes)


def grok_session() -> list[dict[str, Any]]:
    call = {"id": "c1", "name": "read_file", "arguments": '{"path": "a"}'}
    searched = {"tool_type": "web_search", "id": "w1", "action": {"query": "a"}, "status": "completed"}
    return [
        {"type": "system", "content": "S"},
        {
            "type": "user",
            "content": [{"type": "text", "text": "<user_info>"}],
            "synthetic_reason": "environment_context",
        },
        {"type": "user", "content": [{"type": "text", "text": "Read a"}], "prompt_index": 0},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I read it."}], "encrypted_content": "x"},
        {"type": "assistant", "content": "Reading.", "tool_calls": [call], "model_id": "grok-4.5"},
        {"type": "tool_result", "tool_call_id": "c1", "content": "text"},
        {"type": "backend_tool_call", "kind": searched},
        {"type": "assistant", "content": "Done.", "tool_calls": [], "model_id": "grok-4.5"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Interrupted."}]},
    ]


def test_a_grok_cli_session_is_its_own_format_with_its_turns_apart(tmp_path: Path) -> None:
    path = write(tmp_path / "s1" / "chat_history.jsonl", grok_session())
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


def test_items_of_the_responses_api_among_lines_of_another_program_are_not_a_codex_session() -> None:
    item = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I think."}]}
    assert detected([item, {"type": "answer", "content": "x"}]).confidence < 0.5
    assert detected([item, {"type": "function_call", "name": "a", "call_id": "c"}]).confidence < 0.9


def qwen(kind: str, uuid: str, parent: str | None, *parts: Any, **more: Any) -> dict[str, Any]:
    where = {"uuid": uuid, "parentUuid": parent, "sessionId": "q1", "cwd": "/w", "version": "0.21"}
    return {**where, "type": kind, "message": {"role": "model", "parts": list(parts)}, **more}


def test_a_qwen_code_session_is_its_own_format_and_each_line_comes_in(tmp_path: Path) -> None:
    call = {"functionCall": {"id": "c1", "name": "read_file", "args": {"path": "a"}}}
    answer = {"functionResponse": {"id": "c1", "name": "read_file", "response": {"error": "gone"}}}
    usage = {"promptTokenCount": 12, "candidatesTokenCount": 4}
    rows = [
        qwen("user", "1", None, {"text": "Read a"}),
        qwen("assistant", "2", "1", {"text": "left behind"}, model="m0"),
        qwen("system", "3", "1", subtype="rewind"),
        qwen("assistant", "4", "3", {"text": "I read it.", "thought": True}),
        qwen("assistant", "4", "3", call, {"text": "Reading."}, model="m1", usageMetadata=usage),
        qwen("tool_result", "5", "4", answer, toolCallResult={"status": "error"}),
        qwen("user", "6", "5", {"text": "Background task done."}, subtype="notification"),
        qwen("assistant", "7", "6", {"text": "It is gone."}, model="m1"),
    ]
    run, report = read_one("qwen_code", write(tmp_path / "q1.jsonl", rows), tmp_path)
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


def test_two_lines_that_are_glued_together_are_detected_and_read(tmp_path: Path) -> None:
    rows = [qwen("user", "1", None, {"text": "Read a"}), qwen("assistant", "2", "1", {"text": "Done."}, model="m")]
    path = write(tmp_path / "q1.jsonl", "".join(map(json.dumps, rows)).encode())
    run, _ = read_one("qwen_code", path, tmp_path)
    assert outline(run) == ["user: Read a", "agent: Done."]


def phoenix_rows() -> list[dict[str, Any]]:
    """Spans as Phoenix's data frames have them: every column in every row, messages as lists with dotted names."""
    asked = {"message.role": "user", "message.content": "Look up 7"}
    call = {"tool_call.id": "c1", "tool_call.function.name": "find", "tool_call.function.arguments": '{"id": 7}'}
    called = {"message.role": "assistant", "message.tool_calls": [call]}
    answered = {"message.role": "tool", "message.content": "shipped", "message.tool_call_id": "c1"}
    result = {"message.role": "assistant", "message.content": "It has shipped."}
    exchanges = (("s1", [asked], [called]), ("s2", [asked, called, answered], [result]))
    rows = [
        {
            "name": "chat",
            "span_kind": "LLM",
            "parent_id": "s0",
            "start_time": 1_783_555_200_000 + n,
            "status_code": "OK",
            "context.trace_id": "t1",
            "context.span_id": span,
            "attributes.llm.model_name": "m",
            "attributes.llm.input_messages": given,
            "attributes.llm.output_messages": made,
            "attributes.input.value": None,
        }
        for n, (span, given, made) in enumerate(exchanges)
    ]
    root = {**dict.fromkeys(rows[0]), "name": "turn", "span_kind": "CHAIN", "context.trace_id": "t1"}
    return [{**root, "context.span_id": "s0", "attributes.input.value": "Look up 7"}, *rows]


@pytest.mark.parametrize("orient", ["records", "columns", "index", "split", "lines", "records without their index"])
def test_a_phoenix_data_frame_is_read_however_pandas_wrote_it(tmp_path: Path, orient: str) -> None:
    rows = phoenix_rows()
    cells = [{key: value for key, value in row.items() if key != "context.span_id"} for row in rows]
    ids = [row["context.span_id"] for row in rows]
    split = {"columns": list(cells[0]), "index": ids, "data": [list(row.values()) for row in cells]}
    by_column = {name: {key: row[name] for key, row in zip(ids, cells, strict=True)} for name in cells[0]}
    forms = {
        "records": rows,
        "lines": rows,
        "columns": by_column,
        "index": dict(zip(ids, cells, strict=True)),
        "split": split,
        "records without their index": cells,
    }
    path = write(tmp_path / ("spans.jsonl" if orient == "lines" else "spans.json"), forms[orient])
    run, _ = read_one("otel", path, tmp_path)
    assert outline(run) == ["user: Look up 7", "agent:  > find(c1) < shipped(c1)", "agent: It has shipped."]
    assert run.trajectory.agent.model == "m"


def test_spans_without_a_model_call_are_refused_for_that_reason(tmp_path: Path) -> None:
    place = {"traceId": "t1", "spanId": "s1", "name": "openclaw.message.processed"}
    spans = [{**place, "attributes": [{"key": "openclaw.channel", "value": {"stringValue": "cli"}}]}]
    export = {"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": spans}]}]}
    with pytest.raises(InvalidInput, match=r"no span of a model call among 1 spans \(openclaw.message.processed\)"):
        read_one("otel", write(tmp_path / "t.json", export), tmp_path)


def test_a_langsmith_patch_without_an_id_belongs_to_the_run_that_its_dotted_order_ends_with(tmp_path: Path) -> None:
    root, child = "20260101T000000000000Zr0", "20260101T000000000000Zr0.20260101T000001000000Zr1"
    asked = {"messages": [{"role": "user", "content": "howdy"}]}
    answer = {"model": "m-1", "choices": [{"message": {"role": "assistant", "content": "Howdy!"}}]}
    posts = [
        {"id": "r0", "trace_id": "r0", "dotted_order": root, "run_type": "chain", "name": "bot", "inputs": {}},
        {
            "id": "r1",
            "trace_id": "r0",
            "parent_run_id": "r0",
            "dotted_order": child,
            "run_type": "llm",
            "inputs": asked,
        },
    ]
    patches = [{"trace_id": "r0", "dotted_order": child, "outputs": answer}, {"trace_id": "r0", "outputs": {}}]
    path = write(tmp_path / "batch.json", {"post": posts, "patch": patches})
    run, report = read_one("langsmith", path, tmp_path)
    assert outline(run) == ["user: howdy", "agent: Howdy!"]
    assert (run.trajectory.agent.model, run.trajectory.agent.name) == ("m-1", "bot")
    assert not any("other than a run" in kind for kind in report.unknown)


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
    side = {"type": "message", "id": "x", "parentId": "m1", "message": {"role": "assistant", "content": "Other."}}
    run, report = read_one("hf_sts", write(tmp_path / "s.jsonl", [*rows[:3], side, *rows[3:]]), tmp_path)
    assert outline(run) == expected
    assert any("1 messages of others are left out" in note for note in report.notes)


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def cline_task(**more: Any) -> list[dict[str, Any]]:
    """A task whose answers are texts of the user: two calls at once, one that fails, and one under another name."""
    environment = text_block("<environment_details>\n# Current Mode\n</environment_details>")

    def use(call_id: str, name: str) -> dict[str, Any]:
        return {"type": "tool_use", "id": call_id, "name": name, "input": {}}

    failed = "[read_file for 'b.py'] Result:\nThe tool execution failed:\n<error>\nNo such file\n</error>"
    return [
        {"role": "user", "content": [text_block("<task>\nRead [a] and b\n</task>"), environment], "ts": 1000},
        {"role": "assistant", "content": [use("c1", "read_file"), use("c2", "read_file")], "ts": 2000, **more},
        {
            "role": "user",
            "content": [text_block("[read_file for 'a.py'] Result:\nx = 1"), text_block(failed), environment],
        },
        {"role": "assistant", "content": [text_block("Ask."), use("c3", "use_subagents")], "ts": 4000, **more},
        {
            "role": "user",
            "content": [text_block("[subagents] Result:"), text_block("all good"), text_block("[note] hi")],
        },
        {"role": "assistant", "content": [use("c4", "attempt_completion")], "ts": 6000, **more},
        {"role": "user", "content": "[a thought] Result: none"},
    ]


def test_a_cline_task_has_its_model_and_each_answer_with_its_call(tmp_path: Path) -> None:
    tokens = {"tokens": {"prompt": 10, "completion": 4, "cached": 5}}
    task = cline_task(modelInfo={"modelId": "claude-x", "providerId": "anthropic"}, metrics=tokens)
    path = write(tmp_path / "17" / "api_conversation_history.json", task)
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
    usage = made.agent_steps[0].usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (15, 4)
    assert not report.n_rejected


def test_a_cline_model_comes_from_the_files_beside_it_where_the_messages_lack_it(tmp_path: Path) -> None:
    folder = tmp_path / "saoudrizwan.claude-dev" / "tasks" / "17"
    path = write(folder / "api_conversation_history.json", cline_task())
    write(folder / "ui_messages.json", [{"ts": 1, "type": "say", "say": "text", "text": "Read"}])
    uses = [{"ts": 3000, "model_id": "m-late"}, {"ts": 500, "model_id": "m-early"}]
    write(folder / "task_metadata.json", {"files_in_context": [], "model_usage": uses})
    run, report = read_one("cline", path, tmp_path)
    assert [step.model for step in run.trajectory.agent_steps] == ["m-early", "m-late", "m-late"]
    assert {known.name for known in report.consumed} == {"ui_messages.json", "task_metadata.json"}
    timeless = [{key: value for key, value in message.items() if key != "ts"} for message in cline_task()]
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


def amp_result(call_id: str, **run: Any) -> dict[str, Any]:
    return {"type": "tool_result", "toolUseID": call_id, "run": run}


def test_an_amp_thread_keeps_what_its_tools_gave_with_model_and_place(tmp_path: Path) -> None:
    calls = [
        {"type": "tool_use", "id": f"c{n}", "name": "Bash", "input": {"cmd": "x"}, "complete": True} for n in range(5)
    ]
    results = [
        amp_result("c0", status="done", result={"output": "one", "exitCode": 0}),
        amp_result("c1", status="done", result={"output": "two", "exitCode": 2}),
        amp_result("c2", status="done", result=["a.py", "b.py"]),
        amp_result("c3", status="error", error={"message": "no such tool"}),
        amp_result("c4", status="done", result={"diff": "+1"}),
    ]
    usage = {
        "model": "m-1",
        "inputTokens": 1,
        "cacheReadInputTokens": 4,
        "cacheCreationInputTokens": 5,
        "outputTokens": 2,
    }
    tree, platform = {"uri": "file:///home/u/p"}, {"client": "CLI", "clientVersion": "0.9"}
    thread = {
        "v": 3,
        "id": "T-1",
        "title": "Try",
        "env": {"initial": {"trees": [tree], "platform": platform}},
        "messages": [
            {"role": "user", "messageId": 0, "content": [text_block("Go")], "meta": {"sentAt": 1_760_000_000_000}},
            {"role": "assistant", "messageId": 1, "content": calls, "usage": usage},
            {"role": "user", "messageId": 2, "content": results},
            {
                "role": "assistant",
                "messageId": 3,
                "content": [text_block("Done.")],
                "usage": {"timestamp": 1_760_000_001_000},
            },
        ],
    }
    run, report = read_one("amp", write(tmp_path / "T-1.json", thread), tmp_path)
    made = run.trajectory
    answers = '< one(c0) < !two(c1) < a.py\nb.py(c2) < !no such tool(c3) < {"diff": "+1"}(c4)'
    assert outline(run)[1].endswith(answers)
    assert outline(run)[2:] == ["agent: Done."]
    assert (made.agent.model, made.agent.version, made.extra["cwd"]) == ("m-1", "0.9", "/home/u/p")
    times = [step.timestamp and step.timestamp.timestamp() for step in made.steps]
    assert times == [1_760_000_000, None, 1_760_000_001]
    first = made.agent_steps[0].usage
    assert first is not None
    assert (first.input_tokens, first.output_tokens, run.key) == (10, 2, "amp:T-1")
    assert any("may have seen other words" in note for note in report.notes)


def test_a_document_with_one_message_a_line_is_one_document(tmp_path: Path) -> None:
    asked, answer = '{"role": "user", "content": "Go"}', '{"role": "assistant", "content": "Done."}'
    for messages in ([asked, answer], [asked, answer, asked, answer]):
        text = '{"model": "m", "messages": [\n' + ",\n".join(messages) + "\n]}\n"
        run, report = read_one("openai_chat", write(tmp_path / "chat.json", text.encode()), tmp_path)
        assert len(run.trajectory.steps) == len(messages)
        assert not report.n_rejected


def test_lines_after_a_torn_first_line_are_still_lines(tmp_path: Path) -> None:
    row = json.dumps({"messages": [{"role": "user", "content": "Go"}, {"role": "assistant", "content": "Done."}]})
    for torn in ('{"messages": [', row[:40], row[:-1]):
        path = write(tmp_path / "rows.jsonl", f"{torn}\n{row}\n{row}\n".encode())
        found = read(path, tmp_path)
        assert (len(found.runs), found.report.n_rejected) == (2, 1)
