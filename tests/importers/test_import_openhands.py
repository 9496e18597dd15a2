"""Readers of OpenHands, on small logs made by hand after its layouts."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

from agent_logs import function_call, message, outline, read_as, read_log, read_one, tokens, write
from quintain.importers.files.probing import probe
from quintain.importers.registry import detect
from quintain.records.trajectory import OutcomeStatus
from small_logs import small_log

V0_STEPS = [
    "system: You are OpenHands",
    "user: Fix it",
    "agent: Both at once. > execute_bash(k1) > read(k2) < text of a(k2) < !no(k1)",
    "agent:  > run(event-9) < /w(event-9)",
    "agent:  > finish(event-11)",
]


def test_openhands_v0_actions_of_one_response_are_one_turn_and_results_find_their_cause() -> None:
    run, report = read_log("openhands_v0")
    assert outline(run) == V0_STEPS
    both, where, _ = run.trajectory.agent_steps
    assert (both.thought, both.model, both.actions[1].raw_args) == ("why not", "m-1", '{"path": "a"}')
    assert tokens(both) == (8, 4)
    assert (where.thought, where.actions[0].args) == ("where?", {"command": "pwd"})
    assert [tool["function"]["name"] for tool in run.trajectory.tools] == ["execute_bash"]
    assert "tools" not in run.trajectory.extra
    assert run.trajectory.outcome.status is OutcomeStatus.UNKNOWN
    assert report.unknown == {"action/recall": 1, "observation/recall": 1, "observation/agent_state_changed": 1}


def test_openhands_v0_reads_lines_downloads_and_a_file_an_event_alike(tmp_path: Path) -> None:
    lines, _ = read_one("openhands_v0", write(tmp_path / "events.jsonl", small_log("openhands_v0")), tmp_path)
    whole, _ = read_one(
        "openhands_v0", write(tmp_path / "down.json", {"trajectory": small_log("openhands_v0")}), tmp_path
    )
    for event in small_log("openhands_v0"):
        write(tmp_path / "sessions" / "conv" / "events" / f"{event['id']}.json", event)
    first, later = (tmp_path / "sessions" / "conv" / "events" / f"{n}.json" for n in (0, 10))
    run, _ = read_one("openhands_v0", first, tmp_path)
    assert outline(lines) == outline(whole) == outline(run) == V0_STEPS
    assert (run.key, run.trajectory.session_id) == ("openhands_v0:conv", "conv")
    assert detect(probe(later, tmp_path)).importer is None


def v1_event(kind: str, source: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "source": source, "timestamp": "2026-01-01T00:00:00", **more}


def v1_message(role: str, text: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    source = "agent" if role == "assistant" else role
    return v1_event("MessageEvent", source, llm_message=message(role, content, **more))


def test_tools_that_the_agent_sdk_writes_by_their_titles_have_the_parameters_of_their_calls(tmp_path: Path) -> None:
    rows = small_log("openhands_v1")
    mcp = {"kind": "MCPTool", "title": "Fetch a page", "mcp_tool": {"name": "fetch", "inputSchema": {"type": "object"}}}
    rows[0]["tools"] = [{"kind": "TerminalTool", "title": "terminal", "description": "Runs."}, mcp]
    run, report = read_one("openhands_v1", write(tmp_path / "events.jsonl", rows), tmp_path)
    terminal, fetch = (tool["function"] for tool in run.trajectory.tools)
    assert (terminal["name"], terminal["description"], fetch["name"]) == ("terminal", "Runs.", "fetch")
    assert terminal["parameters"] == {"type": "object", "properties": {"command": {}}}
    assert any("without their parameters" in note for note in report.notes)


def v1_action(name: str, call_id: str, reply: str, thought: str = "", **more: Any) -> dict[str, Any]:
    call = {"id": call_id, "name": "terminal", "arguments": '{"command": "ls"}', "origin": "completion"}
    parts = [{"type": "text", "text": thought}] if thought else []
    about = {"tool_name": "terminal", "tool_call_id": call_id, "tool_call": call, **more}
    return v1_event("ActionEvent", "agent", id=name, thought=parts, llm_response_id=reply, **about)


def v1_result(call_id: str, text: str, **more: Any) -> dict[str, Any]:
    seen = {"kind": "TerminalObservation", "content": [{"type": "text", "text": text}], "is_error": False}
    return v1_event("ObservationEvent", "environment", tool_call_id=call_id, observation=seen, **more)


V1_STEPS = [
    "system: You are",
    "user: List",
    "agent: Listing. > terminal(k1) > terminal(k2) < a.txt(k1) < !unknown tool(k2)",
    "agent:  > terminal(k3) < !not that(k3)",
    "user: Listed.",
    "agent: Done",
]


def test_openhands_v1_actions_that_share_a_response_are_one_turn_with_one_thought() -> None:
    run, report = read_log("openhands_v1")
    assert outline(run) == V1_STEPS
    first = run.trajectory.agent_steps[0]
    assert (first.thought, first.model) == ("hm", "prov/m-2")
    assert first.actions[0].raw_args == '{"command": "ls"}'
    assert run.trajectory.session_id is None
    assert report.unknown == {"ConversationStateUpdateEvent": 1, "Condensation": 1}
    assert any("condensed" in note for note in report.notes)


def test_openhands_v1_events_in_files_of_their_own_take_id_and_model_from_the_state(tmp_path: Path) -> None:
    folder = tmp_path / "conversations" / "c9"
    for n, event in enumerate(small_log("openhands_v1")):
        write(folder / "events" / f"event-{n:05d}-{n}abc.json", event | {"id": event.get("id", f"e{n}")})
    write(folder / "base_state.json", {"id": "conv-9", "agent": {"llm": {"model": "m-0", "api_key": "**"}}})
    run, _ = read_one("openhands_v1", folder / "events" / "event-00000-0abc.json", tmp_path)
    assert outline(run) == V1_STEPS
    assert (run.key, run.trajectory.session_id) == ("openhands_v1:conv-9", "conv-9")


def test_openhands_output_takes_its_verdict_from_row_or_report_and_no_other_word(tmp_path: Path) -> None:
    v0 = small_log("openhands_v0")
    pairs = [[v0[4], v0[7]], [v0[9], v0[10]]]
    rows = [
        {"instance_id": "a", "instruction": "Do a", "history": v0, "test_result": {"report": {"resolved": False}}},
        {"instance_id": "b", "history": pairs, "test_result": {"git_patch": "x"}, "metrics": {"accumulated_cost": 0.5}},
        {"instance_id": "c", "history": small_log("openhands_v1"), "error": "RuntimeError: stuck", "test_result": {}},
        {"instance_id": "d", "history": [], "error": "image not found", "test_result": {}},
        {"issue": {"owner": "o", "repo": "r", "number": 7}, "history": v0, "git_patch": "x", "success": True},
    ]
    write(tmp_path / "report.json", {"resolved_ids": ["b"], "unresolved_ids": ["z"]})
    runs, report = read_as("openhands_output", write(tmp_path / "output.jsonl", rows), tmp_path)
    assert [(run.trajectory.task.id, run.trajectory.outcome.status.value) for run in runs] == [
        ("a", "failure"),
        ("b", "success"),
        ("c", "error"),
        ("o/r#7", "unknown"),
    ]
    assert runs[0].trajectory.task.prompt == "Do a"
    assert outline(runs[1])[0] == "agent: Both at once. > execute_bash(k1) > read(k2) < !no(k1)"
    assert outline(runs[2]) == V1_STEPS
    assert (runs[1].trajectory.extra["cost"], runs[3].trajectory.extra["claimed_success"]) == (0.5, True)
    assert report.rejected == [(4, "expected events, got none: image not found")]


def test_thoughts_and_errors_of_openhands_v1_that_stand_in_a_text_alone_are_kept(tmp_path: Path) -> None:
    failed = {"kind": "ThinkObservation", "content": [], "error": "no such file"}
    events = [v1_message("user", "List"), v1_action("a1", "k1", "r1", "<think>hm</think>Listing.")]
    events += [v1_event("ObservationEvent", "environment", tool_call_id="k1", observation=failed)]
    run, _ = read_one("openhands_v1", write(tmp_path / "log.jsonl", events), tmp_path)
    assert outline(run) == ["user: List", "agent: Listing. > terminal(k1) < !no such file(k1)"]
    assert run.trajectory.agent_steps[0].thought == "hm"


def test_calls_in_a_message_of_openhands_v1_keep_their_ids(tmp_path: Path) -> None:
    calls = [function_call("terminal", '{"command": "ls"}', "k1"), function_call("terminal", "{}", "k2")]
    events = [v1_message("user", "List"), v1_message("assistant", "Both.", tool_calls=calls)]
    events += [v1_result("k2", "b"), v1_result("k1", "a")]
    run, _ = read_one("openhands_v1", write(tmp_path / "log.jsonl", events), tmp_path)
    assert outline(run) == ["user: List", "agent: Both. > terminal(k1) > terminal(k2) < b(k2) < a(k1)"]


def test_a_download_from_the_openhands_cloud_is_read_as_a_folder_and_as_a_zip(tmp_path: Path) -> None:
    events = [v1_message("user", "Fix"), v1_action("a1", "c", "r"), v1_result("c", "ok")]
    files = {f"event_{n:06d}_ab-cd.json": event for n, event in enumerate(events)}
    files["meta.json"] = {"id": "conv", "llm_model": "m-1", "title": "T"}
    for name, value in files.items():
        write(tmp_path / "download" / name, value)
    with zipfile.ZipFile(tmp_path / "download.zip", "w") as packed:
        for name, value in files.items():
            packed.writestr(name, json.dumps(value))
    for path in (tmp_path / "download" / "event_000000_ab-cd.json", tmp_path / "download.zip"):
        run, report = read_one("openhands_v1", path, tmp_path)
        assert outline(run) == ["user: Fix", "agent:  > terminal(c) < ok(c)"]
        assert (run.trajectory.session_id, run.trajectory.agent.model, report.rejected) == ("conv", "m-1", [])


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
