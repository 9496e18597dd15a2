"""Readers of OpenHands, on small logs made by hand after its layouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent_logs import outline, read_as, write
from quintain.importers.probing import probe
from quintain.importers.registry import detect
from quintain.records.trajectory import OutcomeStatus


def called(name: str, arguments: str, call_id: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def v0_events() -> list[dict[str, Any]]:
    message = {
        "content": "Both at once.",
        "reasoning_content": "why not",
        "tool_calls": [called("execute_bash", '{"command": "ls"}', "k1"), called("read", '{"path": "a"}', "k2")],
    }
    response = {
        "id": "r1",
        "model": "m-1",
        "choices": [{"message": message}],
        "usage": {"prompt_tokens": 8, "completion_tokens": 4},
    }
    metadata = {"function_name": "execute_bash", "tool_call_id": "k1", "model_response": response}
    tools = [{"type": "function", "function": {"name": "execute_bash", "parameters": {"type": "object"}}}]
    return [
        {"id": 0, "source": "agent", "action": "system", "args": {"content": "You are OpenHands", "tools": tools}},
        {"id": 1, "source": "user", "action": "message", "args": {"content": "Fix it"}},
        {"id": 2, "source": "user", "action": "recall", "args": {"query": "Fix it"}},
        {"id": 3, "source": "environment", "observation": "recall", "cause": 2, "content": "added"},
        {"id": 4, "source": "agent", "action": "run", "args": {"command": "ls"}, "tool_call_metadata": metadata},
        {
            "id": 5,
            "source": "agent",
            "action": "read",
            "args": {},
            "tool_call_metadata": metadata | {"tool_call_id": "k2"},
        },
        {"id": 6, "source": "agent", "observation": "read", "cause": 5, "content": "text of a", "extras": {}},
        {
            "id": 7,
            "source": "agent",
            "observation": "run",
            "cause": 4,
            "content": "no",
            "extras": {"metadata": {"exit_code": 2}},
        },
        {"id": 8, "source": "environment", "observation": "agent_state_changed", "content": "", "extras": {}},
        {
            "id": 9,
            "source": "agent",
            "action": "run",
            "args": {"command": "pwd", "thought": "where?", "blocking": True},
        },
        {"id": 10, "source": "agent", "observation": "run", "cause": 9, "content": "/w", "extras": {"exit_code": 0}},
        {"id": 11, "source": "agent", "action": "finish", "args": {"final_thought": "done", "thought": ""}},
    ]


V0_STEPS = [
    "system: You are OpenHands",
    "user: Fix it",
    "agent: Both at once. > execute_bash(k1) > read(k2) < text of a(k2) < !no(k1)",
    "agent:  > run(event-9) < /w(event-9)",
    "agent:  > finish(event-11)",
]


def test_openhands_v0_actions_of_one_response_are_one_turn_and_results_find_their_cause(tmp_path: Path) -> None:
    (run,), report = read_as("openhands_v0", write(tmp_path / "trajectory.json", v0_events()), tmp_path)
    assert outline(run) == V0_STEPS
    both, where, _ = run.trajectory.agent_steps
    assert (both.thought, both.model, both.actions[1].raw_args) == ("why not", "m-1", '{"path": "a"}')
    assert both.usage is not None
    assert (both.usage.input_tokens, both.usage.output_tokens) == (8, 4)
    assert (where.thought, where.actions[0].args) == ("where?", {"command": "pwd"})
    assert [tool["function"]["name"] for tool in run.trajectory.tools] == ["execute_bash"]
    assert "tools" not in run.trajectory.extra
    assert run.trajectory.outcome.status is OutcomeStatus.UNKNOWN
    assert report.unknown == {"action/recall": 1, "observation/recall": 1, "observation/agent_state_changed": 1}


def test_openhands_v0_reads_lines_downloads_and_a_file_an_event_alike(tmp_path: Path) -> None:
    (lines,), _ = read_as("openhands_v0", write(tmp_path / "events.jsonl", v0_events()), tmp_path)
    (whole,), _ = read_as("openhands_v0", write(tmp_path / "down.json", {"trajectory": v0_events()}), tmp_path)
    for event in v0_events():
        write(tmp_path / "sessions" / "conv" / "events" / f"{event['id']}.json", event)
    first, later = (tmp_path / "sessions" / "conv" / "events" / f"{n}.json" for n in (0, 10))
    (run,), _ = read_as("openhands_v0", first, tmp_path)
    assert outline(lines) == outline(whole) == outline(run) == V0_STEPS
    assert (run.key, run.trajectory.session_id) == ("openhands_v0:conv", "conv")
    assert detect(probe(later, tmp_path)).importer is None


def v1_action(name: str, call_id: str, reply: str, thought: str = "", **more: Any) -> dict[str, Any]:
    call = {"id": call_id, "name": "terminal", "arguments": '{"command": "ls"}', "origin": "completion"}
    told = [{"type": "text", "text": thought}] if thought else []
    event = {"id": name, "kind": "ActionEvent", "source": "agent", "thought": told, "llm_response_id": reply}
    return event | {"tool_name": "terminal", "tool_call_id": call_id, "tool_call": call} | more


def v1_events() -> list[dict[str, Any]]:
    state = {"usage_to_metrics": {"default": {"model_name": "prov/m-2"}}}
    seen = {"kind": "TerminalObservation", "content": [{"type": "text", "text": "a.txt"}], "is_error": False}
    tool = {"type": "function", "function": {"name": "terminal", "parameters": {"type": "object"}}}
    return [
        {"kind": "SystemPromptEvent", "source": "agent", "system_prompt": {"text": "You are"}, "tools": [tool]},
        {
            "kind": "MessageEvent",
            "source": "user",
            "llm_message": {"role": "user", "content": [{"type": "text", "text": "List"}]},
        },
        {"kind": "ConversationStateUpdateEvent", "source": "environment", "key": "stats", "value": state},
        v1_action("a1", "k1", "r1", "<think>hm</think>Listing.", reasoning_content="hm"),
        v1_action("a2", "k2", "r1"),
        {
            "kind": "ObservationEvent",
            "source": "environment",
            "action_id": "a1",
            "tool_call_id": "k1",
            "observation": seen,
        },
        {"kind": "AgentErrorEvent", "source": "agent", "tool_call_id": "k2", "error": "unknown tool"},
        v1_action("a3", "k3", "r2"),
        {"kind": "UserRejectObservation", "source": "user", "action_id": "a3", "rejection_reason": "not that"},
        {"kind": "Condensation", "source": "environment", "forgotten_event_ids": ["a1"], "summary": "Listed."},
        {
            "kind": "MessageEvent",
            "source": "agent",
            "llm_message": {"role": "assistant", "content": [{"type": "text", "text": "Done"}]},
        },
    ]


V1_STEPS = [
    "system: You are",
    "user: List",
    "agent: Listing. > terminal(k1) > terminal(k2) < a.txt(k1) < !unknown tool(k2)",
    "agent:  > terminal(k3) < !not that(k3)",
    "user: Listed.",
    "agent: Done",
]


def test_openhands_v1_actions_that_share_a_response_are_one_turn_with_one_thought(tmp_path: Path) -> None:
    (run,), report = read_as("openhands_v1", write(tmp_path / "events.jsonl", v1_events()), tmp_path)
    assert outline(run) == V1_STEPS
    first = run.trajectory.agent_steps[0]
    assert (first.thought, first.model) == ("hm", "prov/m-2")
    assert first.actions[0].raw_args == '{"command": "ls"}'
    assert run.trajectory.session_id is None
    assert report.unknown == {"ConversationStateUpdateEvent": 1, "Condensation": 1}
    assert any("condensed" in note for note in report.notes)


def test_openhands_v1_events_in_files_of_their_own_take_id_and_model_from_the_state(tmp_path: Path) -> None:
    folder = tmp_path / "conversations" / "c9"
    for n, event in enumerate(v1_events()):
        write(folder / "events" / f"event-{n:05d}-{n}abc.json", event | {"id": event.get("id", f"e{n}")})
    write(folder / "base_state.json", {"id": "conv-9", "agent": {"llm": {"model": "m-0", "api_key": "**"}}})
    (run,), _ = read_as("openhands_v1", folder / "events" / "event-00000-0abc.json", tmp_path)
    assert outline(run) == V1_STEPS
    assert (run.key, run.trajectory.session_id) == ("openhands_v1:conv-9", "conv-9")


def test_openhands_output_takes_its_verdict_from_row_or_report_and_no_other_word(tmp_path: Path) -> None:
    v0 = v0_events()
    pairs = [[v0[4], v0[7]], [v0[9], v0[10]]]
    rows = [
        {"instance_id": "a", "instruction": "Do a", "history": v0, "test_result": {"report": {"resolved": False}}},
        {"instance_id": "b", "history": pairs, "test_result": {"git_patch": "x"}, "metrics": {"accumulated_cost": 0.5}},
        {"instance_id": "c", "history": v1_events(), "error": "RuntimeError: stuck", "test_result": {}},
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


def test_calls_in_a_message_of_openhands_v1_keep_their_ids(tmp_path: Path) -> None:
    message = {"role": "assistant", "content": [{"type": "text", "text": "Both."}]}
    message["tool_calls"] = [called("terminal", '{"command": "ls"}', "k1"), called("terminal", "{}", "k2")]  # type: ignore[assignment]
    events = [
        {"kind": "MessageEvent", "source": "user", "llm_message": {"role": "user", "content": "List"}},
        {"kind": "MessageEvent", "source": "agent", "llm_message": message},
        {"kind": "ObservationEvent", "source": "environment", "tool_call_id": "k2", "observation": {"content": "b"}},
        {"kind": "ObservationEvent", "source": "environment", "tool_call_id": "k1", "observation": {"content": "a"}},
    ]
    (run,), _ = read_as("openhands_v1", write(tmp_path / "log.jsonl", events), tmp_path)
    assert outline(run) == ["user: List", "agent: Both. > terminal(k1) > terminal(k2) < b(k2) < a(k1)"]
