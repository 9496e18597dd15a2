"""Readers of Copilot, Goose, Kimi, Aider and Cursor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agent_logs import moment, outline, read_as, read_log, read_one, tokens, write
from hostile import survives
from small_logs import log_path, small_log

NOW = 1_760_000_000


def test_a_copilot_chat_has_the_replies_of_the_model_with_their_results() -> None:
    """The results are text, a rendered prompt and an error.

    Of the second request only what the editor showed is known, and the third has no reply.
    """
    run, report = read_log("copilot_chat")
    assert outline(run) == [
        "user: Read it.",
        "agent: I read. > read_file(c0) > read_file(c1) > read_file(c2)"
        " < x = 1(c0) < \ntwotwo(c1) < !ERROR while calling tool: no path(c2)",
        "agent: Done.",
        "user: Again.",
        "agent:  > copilot_readFile(k1)",
        "agent: See a.py.",
        "user: And now?",
    ]
    made = run.trajectory
    first, _, shown, last = made.agent_steps
    assert (first.thought, first.actions[0].raw_args) == ("Read\n\nit.", '{"path": "a.py"}')
    assert (first.train, shown.train, last.train) == (None, False, None)
    assert shown.thought == "Look there."
    assert (made.agent.model, made.agent.version, made.session_id) == ("Model Two", "0.39.1", "s-1")
    assert moment(made.steps[0]) == NOW
    assert made.steps[0].extra == {"attached": ["file:a.py"]}
    assert report.unknown == {"part:confirmation": 1}
    assert any("lack arguments" in note for note in report.notes)


def test_a_copilot_chat_that_is_a_log_of_changes_is_the_same_chat(tmp_path: Path) -> None:
    """As VS Code writes a session now: a request grows, its shown response is cut and written anew, a value goes."""
    chat = small_log("copilot_chat")
    changes: list[dict[str, Any]] = [{"kind": 0, "v": {**chat, "requests": [], "draft": "x"}}]
    for n, request in enumerate(chat["requests"]):
        shown = request.get("response", [])
        changes += [
            {"kind": 2, "k": ["requests"], "v": [{**request, "response": [{"value": "no"}], "result": None}]},
            {"kind": 2, "k": ["requests", n, "response"], "i": 0, "v": shown[:1]},
            {"kind": 2, "k": ["requests", n, "response"], "v": shown[1:]},
            {"kind": 1, "k": ["requests", n, "result"], "v": request.get("result")},
        ]
    changes += [{"kind": 3, "k": ["draft"]}, {"kind": 1, "k": ["requests", 9, "result"], "v": {}}]
    run, report = read_one("copilot_chat", write(tmp_path / "s-1.jsonl", changes), tmp_path)
    assert run.trajectory.steps == read_log("copilot_chat")[0].trajectory.steps
    assert report.rejected == [(len(changes), "expected a change of a value that the session has")]


def copilot_event(kind: str, data: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": kind, "data": data, "id": "e", "parentId": None, "timestamp": "2026-01-01T00:00:00Z", **more}


def test_exported_prompts_of_copilot_are_one_run_with_the_calls_that_stand_in_records_beside_them() -> None:
    (run, title), report = read_as("copilot_debug", log_path("copilot_debug"), log_path("copilot_debug").parent)
    assert outline(run) == [
        "system: You help.",
        "user: Where is order 7?",
        "agent:  > read_file(call_1) < shipped(call_1)",
        "agent: One more look. > read_file(call_2) < lost(call_2)",
    ]
    looked, again = run.trajectory.agent_steps
    assert (looked.thought, looked.model, tokens(again), run.trajectory.tools[0]["function"]["name"]) == (
        "A file",
        "gpt-5.1",
        (10, 3),
        "read_file",
    )
    assert (outline(title), title.trajectory.agent.model) == (["user: Write a title.", "agent: Order 7"], "gpt-4o-mini")
    assert report.unknown == {"element": 1, "request: canceled": 1}


def test_a_copilot_cli_session_is_read_from_its_events() -> None:
    """The system prompt behind the first prompt and again; a denied call; a subagent; an id of a call used twice."""
    run, report = read_log("copilot_cli")
    assert outline(run) == [
        "system: You are Copilot.",
        "user: <now>1</now> List.",
        "agent: I look. > bash(c1) > view(c2) < !Permission denied.(c2) < a.txt(c1)",
        "agent:  > bash(c1) < b.txt(c1)",
        "agent: Done.",
    ]
    made = run.trajectory
    first = made.agent_steps[0]
    assert (first.thought, first.model, first.actions[1].args) == ("Look.", "m-1", {"path": "/x"})
    assert tokens(first) == (50, 7)
    assert made.agent_steps[1].usage is None
    assert (made.agent.version, made.task.prompt, run.key) == ("1.0.102", "List.", "copilot_cli:s-1")
    assert (made.extra["cwd"], made.extra["git_commit"]) == ("/w", "abc")
    assert report.unknown == {"tool.execution_start": 1, "event of a subagent": 1, "session.shutdown": 1}
    assert any("encrypted" in note for note in report.notes)


def test_the_output_of_a_copilot_prompt_names_its_model_where_the_tools_are_listed(tmp_path: Path) -> None:
    rows = [
        copilot_event("session.tools_updated", {"model": "m-2"}),
        copilot_event("user.message", {"content": "List.", "transformedContent": "List."}),
        copilot_event("assistant.message", {"content": "None.", "toolRequests": [], "outputTokens": 9}),
        copilot_event("session.model_change", {"previousModel": "m-2", "newModel": "m-3"}),
        copilot_event("assistant.message", {"content": "Done.", "toolRequests": []}),
        {"type": "result", "timestamp": "2026-01-01T00:00:00Z", "sessionId": "s-2", "exitCode": 0, "usage": {}},
    ]
    run, report = read_one("copilot_cli", write(tmp_path / "output.jsonl", rows), tmp_path)
    first, last = run.trajectory.agent_steps
    assert (first.model, last.model, run.trajectory.agent.model) == ("m-2", "m-3", "m-2")
    assert first.usage is not None
    assert (first.usage.output_tokens, last.usage, run.key) == (9, None, "copilot_cli:s-2")
    assert not report.rejected


def test_the_prompt_of_a_copilot_subagent_is_no_turn_of_the_user(tmp_path: Path) -> None:
    task = {"toolCallId": "c1", "name": "task", "arguments": {"prompt": "Look.", "mode": "sync"}}
    rows = [
        copilot_event("session.start", {"sessionId": "s-1", "copilotVersion": "1.0.82"}),
        copilot_event("user.message", {"content": "Delegate."}),
        copilot_event("assistant.message", {"content": "", "toolRequests": [task]}),
        copilot_event("tool.execution_start", {"toolCallId": "c1", "toolName": "task", "arguments": task["arguments"]}),
        copilot_event("subagent.started", {"toolCallId": "c1", "agentName": "task"}),
        copilot_event("user.message", {"content": "Look."}),
        copilot_event("assistant.message", {"content": "Found.", "parentToolCallId": "c1"}),
        copilot_event("tool.execution_complete", {"toolCallId": "c1", "success": True, "result": "Found."}),
        copilot_event("user.message", {"content": "Look."}),
        copilot_event("assistant.message", {"content": "Done.", "toolRequests": []}),
    ]
    run, report = read_one("copilot_cli", write(tmp_path / "events.jsonl", rows), tmp_path)
    assert outline(run) == ["user: Delegate.", "agent:  > task(c1) < Found.(c1)", "user: Look.", "agent: Done."]
    assert report.unknown["event of a subagent"] == 2


def test_a_goose_session_and_its_export_hold_the_same_turns(tmp_path: Path) -> None:
    """Two calls at once: one result has a part for the person alone, the other is an error; and a compaction."""
    run, report = read_log("goose")
    steps = [
        "user: Go",
        "agent: I look. > developer__shell(c1) > todo(c2) < a.py(c1) < !-32602: no such tool(c2)",
        "agent: Done.",
    ]
    assert outline(run) == steps
    first = run.trajectory.agent_steps[0]
    assert (first.thought, first.model, first.timestamp is not None) == ("Look.", "m-1", True)
    assert tokens(first) == (5, 2)
    assert (run.key, run.trajectory.extra["cwd"]) == ("goose:20260101_1", "/w")
    assert report.unknown == {"part:systemNotification": 1}
    assert any("compacted" in note for note in report.notes)
    about, *messages = small_log("goose")
    export = {"id": "20260101_1", **about, "name": "Try", "model_config": {"model_name": "vendor/m"}}
    run, _ = read_one("goose", write(tmp_path / "e.json", export | {"conversation": messages}), tmp_path)
    assert outline(run) == steps
    assert (run.trajectory.agent.model, run.key) == ("vendor/m", "goose:20260101_1")
    printed = {
        "messages": messages,
        "metadata": {"total_tokens": 9, "status": "completed"},
    }  # of `--output-format json`
    run, _ = read_one("goose", write(tmp_path / "run.json", printed), tmp_path)
    assert outline(run) == steps
    said = "Ran into this error: no route.\n\nPlease retry if you think this is a transient or recoverable error."
    failed = {"role": "assistant", "created": 9, "content": [{"type": "text", "text": said}]}
    run, _ = read_one("goose", write(tmp_path / "s.jsonl", [about, *messages, failed]), tmp_path)
    assert [step.train for step in run.trajectory.agent_steps] == [None, None, False]


def test_a_stream_of_goose_has_each_message_in_pieces(tmp_path: Path) -> None:
    def piece(name: str, role: str, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"type": "message", "message": {"id": name, "role": role, "content": list(parts), **more}}

    def text(value: str) -> dict[str, Any]:
        return {"type": "text", "text": value}

    call = {"status": "success", "value": {"name": "developer__shell", "arguments": {"command": "ls"}}}
    found = {"status": "success", "value": {"content": [text("a.py")], "isError": False}}
    inference = {"inference": {"provider": "openai", "requestedModel": "m-2"}}
    lines = [
        piece("m1", "assistant", {"type": "thinking", "thinking": "Lo"}, metadata=inference),
        piece("m1", "assistant", {"type": "thinking", "thinking": "ok."}),
        piece("m1", "assistant", text("I "), metadata=inference),
        piece("m1", "assistant", text("look.")),
        {"type": "notification", "extension_id": "developer", "log": {"message": "ls"}},
        piece("m1", "assistant", {"type": "toolRequest", "id": "c1", "toolCall": call}),
        piece("u1", "user", {"type": "toolResponse", "id": "c1", "toolResult": found}),
        piece("m2", "assistant", text("One ")),
        piece("m2", "assistant", text("file.")),
        {"type": "complete", "total_tokens": 20},
    ]
    run, report = read_one("goose", write(tmp_path / "stream.jsonl", lines), tmp_path)
    assert outline(run) == ["agent: I look. > developer__shell(c1) < a.py(c1)", "agent: One file."]
    first = run.trajectory.agent_steps[0]
    assert (first.thought, first.model) == ("Look.", "m-2")
    assert report.unknown == {"notification": 1, "complete": 1}
    assert any("does not have the task" in note for note in report.notes)


def kimi_event(second: int, kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": NOW + second + 0.5, "message": {"type": kind, "payload": payload}}


def kimi_result(call_id: str, output: str, message: str, *, is_error: bool) -> dict[str, Any]:
    return {"tool_call_id": call_id, "return_value": {"is_error": is_error, "output": output, "message": message}}


def kimi_call(call_id: str, arguments: str) -> dict[str, Any]:
    return {"type": "function", "id": call_id, "function": {"name": "Shell", "arguments": arguments}, "extras": None}


KIMI_CONTEXT = small_log("kimi_cli")
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
    assert moment(first) == NOW + 3.5
    assert (run.key, made.session_id, made.task.prompt) == ("kimi_cli:session-1", "session-1", "List.")
    assert {path.name for path in report.consumed} == {"wire.jsonl"}


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
    assert tokens(first) == (105, 20)
    assert run.parent == "kimi_cli:session-1"
    assert report.unknown == {"SubagentEvent": 1}
    assert any("system prompt, is not" in note for note in report.notes)
    assert any("compacted" in note for note in report.notes)
    survives("kimi_cli", KIMI_EVENTS, tmp_path)
    runs, _ = read_as("kimi_cli", write(tmp_path / "context.jsonl", KIMI_CONTEXT[:4]), tmp_path)
    assert not runs


def kimi_record(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields, "time": NOW * 1000}


def kimi_message(text: str, origin: str = "user") -> dict[str, Any]:
    message = {"role": "user", "content": [{"type": "text", "text": text}], "toolCalls": [], "origin": {"kind": origin}}
    return kimi_record("context.append_message", message=message)


def kimi_step(*events: dict[str, Any]) -> list[dict[str, Any]]:
    end = {"type": "step.end", "usage": {"inputOther": 5, "output": 2, "inputCacheRead": 1, "inputCacheCreation": 0}}
    return [kimi_record("context.append_loop_event", event=event) for event in ({"type": "step.begin"}, *events, end)]


def kimi_answer(text: str) -> dict[str, Any]:
    return {"type": "content.part", "part": {"type": "text", "text": text}}


def test_records_of_kimi_code_are_read_as_the_model_saw_them(tmp_path: Path) -> None:
    calls = [{"type": "tool.call", "toolCallId": f"t{n}", "name": "Bash", "args": {"n": n}} for n in (1, 2)]
    done = {"type": "tool.result", "toolCallId": "t1", "result": {"output": "a.txt", "note": "1 file"}}
    failed = {"type": "tool.result", "toolCallId": "t2", "result": {"output": "no", "isError": True}}
    thought = {"type": "content.part", "part": {"type": "think", "think": "Look."}}
    first = kimi_step(thought, *calls, done, failed)
    rows = [
        {"type": "metadata", "protocol_version": "1.4", "created_at": NOW * 1000},
        kimi_record("config.update", systemPrompt="You are Kimi.", modelAlias="vendor/m"),
        kimi_record("turn.prompt", input=[{"type": "text", "text": "List."}]),
        kimi_message("List."),
        kimi_record("llm.tools_snapshot", tools=[{"name": "Bash", "description": "Run.", "parameters": {}}]),
        kimi_record("llm.request", model="m"),
        # A reminder that comes while calls wait follows their results, of which the last comes after the step has ended.
        *(*first[:4], kimi_message("<system-reminder>x</system-reminder>", "injection"), first[4], first[6], first[5]),
        *kimi_step(kimi_answer("One file.")),
        kimi_message("Wrong."),
        *kimi_step(kimi_answer("Taken back.")),
        kimi_record("context.undo", count=1),
        kimi_message("Thanks."),
        kimi_record("context.undo", count=9),
        kimi_record("context.apply_compaction", summary="short", contextSummary="Summary."),
        *kimi_step(kimi_answer("Welcome.")),
        kimi_record("usage.record", model="m"),
    ]
    agents = tmp_path / "folder" / "session-1" / "agents"
    run, report = read_one("kimi_cli", write(agents / "main" / "wire.jsonl", rows), tmp_path)
    assert outline(run) == [
        "system: You are Kimi.",
        "user: List.",
        "agent:  > Bash(t1) > Bash(t2) < a.txt\n1 file(t1) < !no(t2)",
        "user: <system-reminder>x</system-reminder>",
        "agent: One file.",
        "user: Thanks.",
        "user: Summary.",
        "agent: Welcome.",
    ]
    found, step = run.trajectory, run.trajectory.agent_steps[0]
    assert [found.steps[n].extra.get("context") for n in (1, 3, 5, 6)] == [None, True, None, True]
    assert (step.thought, step.model, step.usage and step.usage.input_tokens) == ("Look.", "m", 6)
    assert (found.task.prompt, found.session_id, run.key) == ("List.", "session-1", "kimi_cli:session-1")
    assert [tool["function"]["name"] for tool in found.tools] == ["Bash"]
    assert report.unknown == {"usage.record": 1}
    assert len(report.notes) == 2
    part, _ = read_one("kimi_cli", write(agents / "agent-0" / "wire.jsonl", rows), tmp_path)
    assert (part.parent, part.trajectory.session_id) == ("kimi_cli:session-1", "session-1/agent-0")
    survives("kimi_cli", rows, tmp_path)


AIDER_THOUGHT = "thinking-content-" + "0123456789abcdef" * 2


def test_an_aider_history_tells_answers_from_the_programs_lines(tmp_path: Path) -> None:
    run, report = read_log("aider")
    assert outline(run) == [
        "user: add a function\n  in a.py",
        "agent: #### Plan\n> quoted\n\n# a.py\n<<<<<<< SEARCH\n=======\nx = 1\n>>>>>>> REPLACE",
        "agent: Fixed.",
        "user: why?",
        "agent: Because.",
        "user: /ask and you?",
        "agent: Me too.",
        "user: Me too.",
        "agent: Edited.",
    ]
    made = run.trajectory
    assert [step.model for step in made.agent_steps] == [f"vendor/m-{n}" for n in (1, 1, 2, 2, 3)]
    assert (made.agent_steps[0].thought, made.agent.version) == ("Think.", "0.86.2")
    assert made.extra["started_at"] == "2026-01-01 11:00:00"
    assert (made.outcome.status, made.steps[0].timestamp) == ("unknown", None)
    assert any("whether they were applied is not known" in note for note in report.notes)
    assert report.unknown["command"] == 3
    plain = "\n".join(line.rstrip() for line in small_log("aider").split("\n"))  # as an editor saves it
    plain = plain.replace("> quoted\n", "")
    run, _ = read_one("aider", write(tmp_path / ".aider.chat.history.md", plain.encode()), tmp_path)
    assert outline(run)[1] == "agent: #### Plan\n\n# a.py\n<<<<<<< SEARCH\n=======\nx = 1\n>>>>>>> REPLACE"
    assert outline(run)[-6:-2] == ["user: why?", "agent: Because.", "user: /ask and you?", "agent: Me too."]


def test_headings_of_an_answer_in_an_aider_history_without_marks_are_no_prompts(tmp_path: Path) -> None:
    """Only the first line of the prompt of two lines ends as the program writes lines, which is no mark of a prompt's end."""
    lines = ["# aider chat started at 2024-08-20 14:08:19", "> Models: m-0 with diff edit format, weak model m-1"]
    lines += ["#### Add a", "#### function", ""]
    lines += ["Two steps.", "", "#### 1. Write it", "x = 1", "#### 2. Test it", ""]
    lines += [
        "> Tokens: 2k sent, 83 received.",
        "> Applied edit to a.py",
        "",
        "#### Go on",
        "",
        "Done.",
        "> Tokens: 1 sent",
    ]
    lines[2] += "  "
    path = write(tmp_path / ".aider.chat.history.md", "\n".join(lines).encode())
    run, _ = read_one("aider", path, tmp_path)
    answer = "Two steps.\n\n#### 1. Write it\nx = 1\n#### 2. Test it"
    assert outline(run) == ["user: Add a\nfunction", f"agent: {answer}", "user: Go on", "agent: Done."]
    assert run.trajectory.agent.model == "m-0"


AIDER_CALLS = f"""TO LLM 2026-01-01T11:00:05
-------
SYSTEM Be brief.
SYSTEM 
SYSTEM -------
-------
USER Example?
-------
ASSISTANT Ok.

-------
USER add a function
LLM RESPONSE 2026-01-01T11:00:09
ASSISTANT <{AIDER_THOUGHT}>
ASSISTANT Think.
ASSISTANT </{AIDER_THOUGHT}>
ASSISTANT 
ASSISTANT TO LLM is text.
TO LLM 2026-01-01T11:00:20
-------
USER Message for a commit
LLM RESPONSE 2026-01-01T11:00:21
ASSISTANT feat: add
TO LLM 2026-01-01T11:00:30
-------
USER cut
"""  # noqa: W291


def test_each_call_in_aiders_file_of_calls_is_a_run_with_its_whole_prompt(tmp_path: Path) -> None:
    write(tmp_path / ".aider.chat.history.md", small_log("aider").replace("m-2", "m-1").encode())
    path = write(tmp_path / ".aider.llm.history", AIDER_CALLS.encode())
    runs, report = read_as("aider", path, tmp_path)
    assert [outline(run) for run in runs] == [
        [
            "system: Be brief.\n\n-------",
            "user: Example?",
            "agent: Ok.",
            "user: add a function",
            "agent: TO LLM is text.",
        ],
        ["user: Message for a commit", "agent: feat: add"],
    ]
    context, answer = runs[0].trajectory.agent_steps
    assert (context.copied_context, answer.copied_context) == (True, False)
    assert (answer.thought, answer.model) == ("Think.", "vendor/m-1")
    assert runs[0].trajectory.task.prompt == "add a function"
    assert runs[0].trajectory.extra["ended_at"] == "2026-01-01T11:00:09"
    assert [line for line, _ in report.rejected] == [24]


def test_a_cursor_export_has_its_texts_and_says_what_it_lacks(tmp_path: Path) -> None:
    path = write(tmp_path / "chats.md", (small_log("cursor") * 2).replace("\n", "\r\n").encode())
    runs, report = read_as("cursor", path, tmp_path)
    for run in runs:
        assert outline(run) == [
            "user: What is it?",
            "agent: One.\n\n---\n\n**User** is a word here.",
            "user: Go on",
            "agent: Two.",
        ]
    made = runs[0].trajectory
    assert (made.agent.version, made.agent.model) == ("3.2.11", None)
    assert made.extra == {"title": "Names", "exported_on": "10/7/2026 at 17:09:40 GMT+5:30"}
    assert any("texts only" in note for note in report.notes)
    assert len(runs) == 2


def cursor_line(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "message": {"content": list(blocks)}}


def cursor_text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def test_a_cursor_agent_transcript_has_texts_and_calls_and_says_what_it_lacks(tmp_path: Path) -> None:
    shell = {"type": "tool_use", "name": "Shell", "input": {"command": "ls"}}
    lines = [
        cursor_line("user", cursor_text("<timestamp>now</timestamp>\n<user_query>\nList them.\n</user_query>")),
        cursor_line("assistant", cursor_text("I look.\n\n[REDACTED]"), shell),
        cursor_line("assistant", cursor_text("[REDACTED]")),
        cursor_line("assistant", cursor_text("One file.")),
        {"type": "turn_ended", "status": "error", "error": "User aborted request"},
        cursor_line("user", cursor_text("[Image]\n<user_query>Again</user_query>")),
        cursor_line("assistant", shell),
    ]
    path = write(tmp_path / "agent-transcripts" / "p-1" / "subagents" / "s-1.jsonl", lines)
    run, report = read_one("cursor_agent", path, tmp_path)
    assert outline(run) == [
        "user: <timestamp>now</timestamp>\n<user_query>\nList them.\n</user_query>",
        "agent: I look. > Shell(None)",
        "agent: One file.",
        "user: [Image]\n<user_query>Again</user_query>",
        "agent:  > Shell(None)",
    ]
    assert (run.trajectory.task.prompt, run.key, run.parent) == ("List them.", "cursor_agent:s-1", "cursor_agent:p-1")
    assert report.unknown == {"hidden thought": 1, "turn_ended/error": 1}
    assert any("without their results" in note for note in report.notes)
    assert any("hidden by Cursor" in note for note in report.notes)


def test_the_older_cursor_agent_transcript_is_read_and_its_text_form_is_not_read_twice(tmp_path: Path) -> None:
    rows = [
        {"role": "user", "text": "<user_query>\nList them.\n</user_query>"},
        {
            "role": "assistant",
            "text": "<think>\nWhere?\n</think>\nI look.",
            "toolCalls": [{"toolName": "ls", "args": {"path": "."}}, {"toolName": "read", "args": {"path": "a"}}],
        },
        {"role": "tool", "toolResult": {"toolName": "read", "result": "x = 1"}},
        {"role": "tool", "toolResult": {"toolName": "ls"}},
        {"role": "assistant", "text": "Done."},
    ]
    folder = tmp_path / "agent-transcripts"
    path = write(folder / "s-1.json", rows)
    text = write(folder / "s-1.txt", b"user:\n<user_query>\nList them.\n</user_query>\n\nassistant:\nDone.\n")
    run, report = read_one("cursor_agent", path, tmp_path)
    assert outline(run)[1:] == ["agent: I look. > ls(None) > read(None) < x = 1(None)", "agent: Done."]
    first = run.trajectory.agent_steps[0]
    assert (first.thought, first.actions[1].args, run.trajectory.task.prompt) == ("Where?", {"path": "a"}, "List them.")
    assert report.unknown == {"result without its text": 1}
    assert text.resolve() in report.consumed
    runs, report = read_as("cursor_agent", text, tmp_path)
    assert not runs
    assert "no marks of where they end" in report.rejected[0][1]


def test_a_cline_task_as_a_person_saw_it_has_the_requests_and_what_the_tools_answered() -> None:
    run, report = read_log("cline_ui")
    assert outline(run) == [
        "user: <task>\nWhere are orders 7 and 8?\n</task>",
        "agent: I look. > read_file(None) > read_file(None) < [read_file for 'x'] Result:\nshipped(None) < lost(None)",
        "user: <environment_details>\n# Time\n</environment_details>",
        "agent:  > execute_command(None) < 7.txt(None)",
        "user: <feedback>\nAnd 9?\n</feedback>",
        "agent:  > attempt_completion(None)",
    ]
    first, second, last = run.trajectory.agent_steps
    assert (first.thought, first.model, tokens(first), tokens(second)) == (
        "Both are files",
        "claude-x",
        (15, 4),
        (20, 5),
    )
    assert (last.usage, run.trajectory.task.prompt) == (None, "Where are orders 7 and 8?")
    assert report.unknown == {"checkpoint_created": 1, "command_output": 1}
    assert any("names of the interface" in note for note in report.notes)


def test_a_cline_task_of_an_earlier_version_has_its_questions_pictures_and_failed_requests_once(tmp_path: Path) -> None:
    def said(kind: str, text: Any = "", how: str = "say", **fields: Any) -> dict[str, Any]:
        return {
            "ts": 1,
            "type": how,
            how: kind,
            "text": text if isinstance(text, str) else json.dumps(text),
            **fields,
        }

    described = "\n\n<environment_details>\n<model>m-2</model>\n</environment_details>"
    rows = [
        said("text", "Where is order 7?"),
        said("reasoning", "Cut off before it was asked.", partial=True),
        said("api_req_started", {"request": "<task>\nWhere is order 7?\n</task>"}),
        said("reasoning", "It may be in two shops.", partial=True),
        said("followup", {"question": "Which shop?", "options": ["A", "B"], "selected": "B"}, "ask"),
        said(
            "api_req_started",
            {
                "request": f"[ask_followup_question for 'Which\nof [the] shops?'] Result:\n\n<answer>B</answer>{described}"
            },
        ),
        said(
            "use_mcp_server",
            {"type": "use_mcp_tool", "serverName": "shop", "toolName": "find", "arguments": "{}"},
            "ask",
        ),
        said("load_mcp_documentation"),
        said(
            "api_req_started",
            {"request": "[use_mcp_tool for 'shop'] Result:\n\nshipped\n\n[load_mcp_documentation] Result:\n\nTools"},
        ),
        said("plan_mode_respond", {"response": "It has shipped."}, "ask"),
        said("user_feedback", "Look", images=["data:image/png;base64,aGk="]),
        said("api_req_started", {"request": "[plan_mode_respond] Result:\n\nSeen\n<feedback>\nLook\n</feedback>"}),
        said("api_req_retried"),
        said(
            "api_req_started",
            {
                "request": "[plan_mode_respond] Result:\n\nSeen\n<feedback>\nLook\n</feedback>\n\n[TASK RESUMPTION] Hello?"
            },
        ),
        said("text", "I see it."),
    ]
    run, _ = read_one("cline_ui", write(tmp_path / "ui_messages.json", rows), tmp_path)
    assert outline(run) == [
        "user: <task>\nWhere is order 7?\n</task>",
        "agent:  > ask_followup_question(None) < <answer>B</answer>(None)",
        f"user: {described.strip()}",
        "agent:  > use_mcp_tool(None) > load_mcp_documentation(None) < shipped(None) < Tools(None)",
        "agent:  > plan_mode_respond(None) < Seen(None)",
        "user: <feedback>\nLook\n</feedback>",
        "user: [TASK RESUMPTION] Hello?",
        "agent: I see it.",
    ]
    asked, called, *_ = run.trajectory.agent_steps
    assert asked.actions[0].args == {"question": "Which shop?", "options": ["A", "B"]}
    assert (asked.thought, called.thought, called.model) == ("It may be in two shops.", None, "m-2")
    assert called.actions[0].args == {"serverName": "shop", "toolName": "find", "arguments": "{}"}
    assert run.trajectory.task.prompt == "Where is order 7?"
    assert "urn:sha256:" in str(run.trajectory.steps[-3].message)


def test_a_kiro_session_is_its_messages_with_the_model_and_status_of_results() -> None:
    run, _ = read_log("kiro_cli")
    assert outline(run) == [
        "user: Where are orders 7 and 8?",
        "agent: I look. > read(t1) > read(t2) < shipped(t1) < !no file(t2)",
        "agent: Order 7 has shipped.",
    ]
    first, second = run.trajectory.agent_steps
    assert (first.thought, first.model, second.model, run.key) == ("Both are files", "claude-x", None, "kiro_cli:k1")
    assert moment(run.trajectory.steps[0]) == 1_770_000_000


def test_an_antigravity_transcript_gives_the_steps_after_an_answer_to_its_calls_in_order() -> None:
    run, report = read_log("antigravity")
    assert outline(run) == [
        "user: <USER_REQUEST>\nWhere are orders 7 and 8?\n</USER_REQUEST>",
        "user: Use the best tool.",
        "agent:  > view_file(None) > run_command(None) < shipped(None) < !no file(None)",
        "agent: Order 7 has shipped.",
        "agent:  > write_to_file(None)",
        "user: invalid tool call error",
    ]
    assert run.trajectory.steps[1].extra == {"context": True}
    looked, _, cut = run.trajectory.agent_steps
    read_file, shell = looked.actions
    assert (read_file.args, shell.args) == ({"AbsolutePath": "/orders/7", "StartLine": 1}, {"CommandLine": "cat 8"})
    assert (looked.thought, report.unknown) == ("Both are files", {"CONVERSATION_HISTORY": 1})
    assert (looked.train, cut.train, "long texts cut short" in " ".join(report.notes)) == (None, False, True)


def test_a_specstory_history_has_its_sessions_and_calls_in_other_words_are_not_trained_on() -> None:
    """Histories of Codex and Cursor, in the Markdown of version 2.1 and of the first one."""
    runs, report = read_as("specstory", log_path("specstory"), log_path("specstory").parent)
    assert [outline(run) for run in runs] == [
        [
            "user: Add it",
            "agent: I look. > exec_command(None) > run_terminal_command_v2(None) < a.py(None) < ```bash\ngit status\n```(None)",
            "agent: Done.",
            "agent: Really.",
        ],
        ["user: Thanks", "agent: Welcome."],
    ]
    made = runs[0].trajectory
    called, said, last = made.agent_steps
    assert [call.args for call in called.actions] == [{"specstory": "ls -la"}, {"specstory": "Run command: git status"}]
    assert (called.thought, called.train, said.train) == ("Look first.", False, None)
    assert (called.model, said.model, moment(called), said.timestamp) == ("gpt-x", "claude-x", 1772215938.0, None)
    assert last.model is None  # Cursor chose it
    assert [(run.trajectory.agent.name, run.trajectory.session_id) for run in runs] == [
        ("codex-cli", "019ca04c-00df"),
        ("claude-code", "5d8bb710"),
    ]
    assert any("wording of SpecStory" in note for note in report.notes)
    assert report.unknown == {"thought without an answer": 1}
