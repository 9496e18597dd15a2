"""Logs of kinds that real use showed: what their readers once lost, merged or took for another format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent_logs import outline, read_as, read_one, write


def codex(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": "2026-01-01T00:00:00Z", "type": kind, "payload": payload}


def codex_text(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return codex("response_item", type="message", role=role, content=[{"type": kind, "text": text}])


def test_each_codex_prompt_that_only_an_event_records_gets_its_own_answer(tmp_path: Path) -> None:
    rows = [codex("session_meta", id="s"), codex_text("user", "<environment_context>x</environment_context>")]
    for question, answer in (("1+1?", "2"), ("2+2?", "4")):
        rows += [codex("event_msg", type="user_message", message=question), codex_text("assistant", answer)]
    run, _ = read_one("codex", write(tmp_path / "r.jsonl", rows), tmp_path)
    assert outline(run)[1:] == ["user: 1+1?", "agent: 2", "user: 2+2?", "agent: 4"]
    assert run.trajectory.task.prompt == "1+1?"


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
