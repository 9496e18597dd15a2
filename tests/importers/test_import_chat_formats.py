"""Chat messages of every flavour, ShareGPT and its kin, traces and dialogs become runs; what is malformed is listed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_logs import counts, detected, message, outline, read, read_file, read_one, read_rows, tokens, write
from quintain.errors import InvalidInput
from quintain.importers.transcripts.chat_messages import from_messages
from quintain.importers.transcripts.transcript import Transcript, make_call
from quintain.importers.values import parse_time
from quintain.records.trajectory import OutcomeStatus, read_trajectory
from small_logs import small_log

SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}}}
TOOL = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": SCHEMA}}


def _call(call_id: str | None, arguments: Any, name: str = "add") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


(OPENAI_ROW,) = small_log("openai_chat")
ANTHROPIC = small_log("anthropic_messages")
(SHAREGPT,) = small_log("sharegpt")
(AGENTGYM,) = small_log("agentgym")


def test_a_row_of_openai_messages_keeps_every_turn_and_what_stands_beside(tmp_path: Path) -> None:
    (run,), report = read_rows(tmp_path, "openai_chat", [OPENAI_ROW])
    assert [step.actor for step in run.steps] == ["system", "user", "agent", "agent"]
    called, said = run.agent_steps
    assert [(a.call_id, a.args, a.raw_args) for a in called.actions] == [
        ("c1", {"a": 1}, '{"a": 1}'),
        ("c2", {"a": 2}, None),
    ]
    assert [(o.call_id, o.content) for o in called.observations] == [("c2", "4"), ("c1", "2")]
    assert (called.thought, called.train) == ("Two sums.", False)
    assert (said.thought, said.message, said.train) == ("Done.", "2 and 4.", True)
    assert (run.task.id, run.task.prompt, run.episode_key) == ("sum-1", "1+1 and 2+2?", "sum-1.a")
    assert (run.outcome.status, run.agent.model, run.tools) == (OutcomeStatus.SUCCESS, "m-1", (TOOL,))
    assert run.extra == {"row": {"subset": "easy", "resolved": True}}
    assert (report.n_rejected, report.unknown, report.notes) == (0, {}, {})


def test_a_model_that_the_metadata_of_a_row_or_its_messages_name_is_its_model(tmp_path: Path) -> None:
    for column in ("metadata", "meta"):
        row = {"messages": [message("user", "Q"), message("assistant", "A")], column: {"model": "m-2026", "steps": 1}}
        assert read(write(tmp_path / "a.json", row), tmp_path).only.agent.model == "m-2026"
    said = {"messages": [message("user", "Q"), message("assistant", "A", model="llama3.2:3b")]}
    assert read(write(tmp_path / "b.json", said), tmp_path).only.agent.model == "llama3.2:3b"


@pytest.mark.parametrize(
    ("columns", "status", "reward", "scores"),
    [
        ({}, "unknown", None, {}),
        ({"resolved": False, "reward": 0.25}, "failure", 0.25, {}),
        ({"verified": True}, "success", None, {}),
        ({"is_correct": 1}, "success", None, {}),
        ({"success": "1"}, "success", None, {}),
        ({"success": "0"}, "failure", None, {}),
        ({"label": "1"}, "unknown", None, {}),
        ({"test_result": {"git_patch": "x"}}, "unknown", None, {}),
        ({"test_result": {"resolved": False}}, "failure", None, {}),
        ({"reward": 1}, "success", 1.0, {}),
        ({"reward": 0.0}, "failure", 0.0, {}),
        ({"reward": 0.7}, "unknown", 0.7, {}),
        ({"score": 1}, "unknown", None, {"score": 1.0}),
        ({"score": False}, "failure", None, {}),
        ({"label": "failed"}, "failure", None, {}),
        ({"label": 1}, "unknown", None, {}),
        ({"exit_status": "submitted", "status": "completed"}, "unknown", None, {}),
        ({"reward": 10**400, "success": "maybe"}, "unknown", None, {}),
    ],
)
def test_an_outcome_is_only_a_verdict_of_a_side_column(
    tmp_path: Path, columns: dict[str, Any], status: str, reward: float | None, scores: dict[str, float]
) -> None:
    row = {"messages": [{"role": "user", "content": "go"}, {"role": "assistant", "content": "ok"}], **columns}
    ((run,), _) = read_rows(tmp_path, "openai_chat", [row])
    assert (run.outcome.status, run.outcome.reward, run.outcome.scores) == (status, reward, scores)


MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "1+1?"},
    {"role": "assistant", "content": None, "tool_calls": [_call("c1", "{}")]},
    {"role": "tool", "tool_call_id": "c1", "content": "2"},
    {"role": "assistant", "content": "2."},
]


LAYOUTS: dict[str, Any] = {
    "list": MESSAGES,
    "rows": [{"messages": MESSAGES}],
    "JSON text": [{"messages": json.dumps(MESSAGES)}],
    "conversations": [{"conversations": MESSAGES}],
    "trajectory": [{"trajectory_id": "t", "trajectory": MESSAGES, "resolved": 1, "exit_status": "submit"}],
    "object": {"messages": MESSAGES},
    "lists": [MESSAGES],
    "request": {
        "request": {"messages": MESSAGES[:3], "model": "m"},
        "response": {"choices": [{"message": MESSAGES[3]}]},
    },
    "choices": {"messages": MESSAGES[:3], "choices": [{"message": {"content": "2."}}]},
    "Ollama": {"request": {"messages": MESSAGES[:3]}, "response": {"message": MESSAGES[3], "done": True}},
    "Ollama in one": {"messages": MESSAGES[:3], "message": MESSAGES[3], "done": True},
    "batch": {"body": {"messages": MESSAGES[:3]}, "response": {"body": {"choices": [{"message": MESSAGES[3]}]}}},
    "Arrow": [
        {"messages": {key: [m.get(key) for m in MESSAGES] for key in ("role", "content", "tool_calls", "tool_call_id")}}
    ],
    "flat calls": [
        {**m, "tool_calls": [{"id": "c1", "name": "add", "arguments": {}}]} if "tool_calls" in m else m
        for m in MESSAGES
    ],
    "calls as text": [
        {"messages": [{**m, "tool_calls": json.dumps(m["tool_calls"])} if "tool_calls" in m else m for m in MESSAGES]}
    ],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_ways_of_keeping_messages_give_the_same_steps(tmp_path: Path, layout: str) -> None:
    value = LAYOUTS[layout]
    (tmp_path / "chat.json").write_text(json.dumps(value), encoding="utf-8")
    (run,), report = read_file(tmp_path, "openai_chat", "chat.json")
    assert [step.actor for step in run.steps] == ["user", "agent", "agent"]
    assert [(a.tool, a.args, a.call_id) for a in run.steps[1].actions] == [("add", {}, "c1")]
    assert [o.content for o in run.steps[1].observations] == ["2"]
    assert (run.steps[2].message, run.task.prompt, run.extra["tools"]) == ("2.", "1+1?", "inferred")
    assert (report.n_rejected, report.unknown) == (0, {})
    shape = "object" if isinstance(value, dict) else "array"
    found = detected([value] if shape == "object" else value, shape)
    assert found.importer is not None
    assert (found.importer.name, found.confidence >= 0.7) == ("openai_chat", True)


def test_the_legacy_function_call_is_read_by_both_ways(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "", "function_call": {"name": "add", "arguments": '{"a": 1}'}},
        {"role": "function", "name": "add", "content": "2"},
        {"role": "assistant", "content": "2."},
    ]
    ((run,), _) = read_rows(tmp_path, "openai_chat", [{"messages": messages}])
    for made in (run, from_messages(messages)):
        (acted, _) = made.agent_steps
        assert [(a.tool, a.args, a.raw_args, a.call_id) for a in acted.actions] == [("add", {"a": 1}, '{"a": 1}', None)]
        assert [o.content for o in acted.observations] == ["2"]


@pytest.mark.parametrize(
    "text",
    [
        "I look.\n\n<function=bash>\n<parameter=command>ls</parameter>\n</function>",
        'I look.\n<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>',
    ],
)
def test_calls_that_were_written_as_text_stay_text(tmp_path: Path, text: str) -> None:
    system = 'Tools: <tools>[{"name": "bash", "parameters": {"type": "object"}}]</tools>'
    messages = [
        {"role": "system", "content": system},
        {"role": "user", "content": "What is here?"},
        {"role": "assistant", "content": text},
        {"role": "user", "content": "OBSERVATION:\na.txt"},
        {"role": "assistant", "content": "a.txt"},
    ]
    ((run,), _) = read_rows(tmp_path, "openai_chat", [{"messages": messages}])
    assert [step.message for step in run.steps] == [message["content"] for message in messages]
    assert (counts([run]), run.tools) == ((1, 2, 0, 0), ())


@pytest.mark.parametrize(
    "system",
    [
        f"<|im_system|>tool_declare<|im_middle|>[{json.dumps(TOOL)}]<|im_end|>",
        f"You may call:\n<tools>\n{json.dumps(TOOL)}\n</tools>",
    ],
)
def test_tools_that_the_system_prompt_declares_are_taken_where_calls_are_told_apart(
    tmp_path: Path, system: str
) -> None:
    ((run,), _) = read_rows(tmp_path, "openai_chat", [{"messages": [{"role": "system", "content": system}, *MESSAGES]}])
    assert (run.tools, run.extra) == ((TOOL,), {})


def test_parts_of_the_llama_factory_v1_format_are_sorted(tmp_path: Path) -> None:
    parts = [
        {"type": "reasoning", "value": "Look it up."},
        {"type": "tool_call", "value": '{"name": "add", "arguments": {"a": 1}}'},
        {"type": "tool_call", "value": '{"name": "mul", "arguments": "{\\"a\\": 2}"}'},
    ]
    messages = [
        {"role": "user", "content": [{"type": "text", "value": "Go."}], "loss_weight": 0.0},
        {"role": "assistant", "content": parts, "loss_weight": 1.0},
        {"role": "tool", "content": [{"type": "text", "value": "1"}]},
        {"role": "tool", "content": [{"type": "text", "value": "2"}]},
        {"role": "assistant", "content": [{"type": "text", "value": "Both."}], "loss_weight": 0.0},
    ]
    ((run,), _) = read_rows(tmp_path, "openai_chat", [{"messages": messages}])
    first, last = run.agent_steps
    assert (first.thought, first.train, last.train) == ("Look it up.", True, False)
    assert [(a.tool, a.args) for a in first.actions] == [("add", {"a": 1}), ("mul", {"a": 2})]
    assert [o.content for o in first.observations] == ["1", "2"]


def test_items_of_the_responses_api_are_turns(tmp_path: Path) -> None:
    record = {
        "model": "m",
        "instructions": "Be brief.",
        "tools": [{"type": "function", "name": "add", "parameters": SCHEMA}],
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "1+1?"}]},
            {
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": "Use the tool."}],
                "encrypted_content": "x",
            },
            {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'},
            {"type": "function_call", "call_id": "c2", "name": "add", "arguments": '{"a": 2}'},
            {"type": "function_call_output", "call_id": "c2", "output": "two"},
            {"type": "function_call_output", "call_id": "c1", "output": "one"},
        ],
        "output": [
            {"type": "web_search_call", "id": "ws"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "2."}]},
        ],
    }
    assert detected([record], "object").importer.name == "openai_chat"  # type: ignore[union-attr]
    (run,), report = read_rows(tmp_path, "openai_chat", [record])
    assert [step.actor for step in run.steps] == ["system", "user", "agent", "agent"]
    assert run.steps[2].thought == "Use the tool."
    assert [(o.call_id, o.content) for o in run.steps[2].observations] == [("c2", "two"), ("c1", "one")]
    assert (run.steps[3].message, run.tools[0]["function"]["name"]) == ("2.", "add")
    assert [call.tool for call in run.steps[3].actions] == ["web_search"], "a tool of the vendor is a call too"
    assert report.unknown == {}


def test_an_anthropic_request_keeps_results_with_their_calls_and_text_with_the_user(tmp_path: Path) -> None:
    (run,), report = read_rows(tmp_path, "anthropic_messages", [ANTHROPIC])
    assert [(step.actor, step.message) for step in run.steps] == [
        ("system", "Be brief."),
        ("user", "1+1?"),
        ("agent", "I add."),
        ("user", "And 3?"),
        ("agent", "3 too."),
    ]
    acted = run.steps[2]
    assert (acted.thought, [a.args for a in acted.actions]) == ("Use it.", [{"a": 1}, {"a": 2}])
    assert [(o.call_id, o.content, o.is_error) for o in acted.observations] == [("t2", "no", True), ("t1", "2", False)]
    assert (run.tools, run.agent.model, report.unknown) == ((TOOL,), "claude-x", {})


def test_a_response_of_anthropic_ends_the_request_that_it_answers(tmp_path: Path) -> None:
    response = {
        "type": "message", "role": "assistant", "model": "claude-y", "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "Bye."}],
        "usage": {"input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 5},
    }  # fmt: skip
    ((run, alone), _) = read_rows(
        tmp_path, "anthropic_messages", [{"request": ANTHROPIC, "response": response}, response]
    )
    last = run.agent_steps[-1]
    assert (len(run.agent_steps), last.message, last.model) == (3, "Bye.", "claude-y")
    assert tokens(last) == (7, 5)
    assert [step.message for step in alone.steps] == ["Bye."]


def test_anthropic_and_openai_are_told_apart() -> None:
    def name(rows: list[Any], shape: str) -> str:
        found = detected(rows, shape)
        assert found.importer is not None
        return found.importer.name

    assert name([ANTHROPIC], "object") == "anthropic_messages"
    assert name(ANTHROPIC["messages"], "array") == "anthropic_messages"
    assert name([ANTHROPIC["messages"]], "array") == "anthropic_messages"
    assert name([{"messages": ANTHROPIC["messages"]}] * 2, "lines") == "anthropic_messages"
    assert name(MESSAGES, "array") == name(MESSAGES, "lines") == name([OPENAI_ROW], "lines") == "openai_chat"


def test_blocks_of_one_reply_in_several_messages_are_one_turn_and_a_message_without_blocks_is_none(
    tmp_path: Path,
) -> None:
    calls = [{"type": "tool_use", "id": id, "name": "add", "input": {}} for id in ("c1", "c2")]
    rows = [
        message("user", "1+1 and 2+2?"),
        message("assistant", []),
        message("assistant", [{"type": "text", "text": "I add."}], model="m-1"),
        *(message("assistant", [call], model="m-1") for call in calls),
        *(message("user", [{"type": "tool_result", "tool_use_id": id, "content": id}]) for id in ("c1", "c2")),
        *(message("assistant", [{"type": "text", "text": text}]) for text in ("Two.", "Four.")),
    ]
    (run,), report = read_rows(tmp_path, "anthropic_messages", rows)
    assert [(step.message, len(step.actions), len(step.observations)) for step in run.agent_steps] == [
        ("I add.", 2, 2),
        ("Two.", 0, 0),
        ("Four.", 0, 0),
    ]
    assert (run.agent.model, report.unknown) == ("m-1", {"empty message": 1})


def test_a_content_that_is_an_object_is_its_text_or_its_json_which_is_said(tmp_path: Path) -> None:
    said = [{"answer": "4", "thought": "Two and two."}, {"text": "Four."}, {"answer": 4}]
    messages = [step for content in said for step in (message("user", "2+2?"), message("assistant", content))]
    (run,), report = read_rows(tmp_path, "openai_chat", [{"messages": messages}])
    assert [(step.message, step.thought) for step in run.agent_steps] == [
        ("4", "Two and two."),
        ("Four.", None),
        ('{"answer": 4}', None),
    ]
    assert ["read as its JSON text" in note for note in report.notes] == [True]


def test_a_result_of_geminis_api_is_its_output_or_its_error_with_the_pictures_beside(tmp_path: Path) -> None:
    picture = {"fileData": {"mimeType": "image/png", "fileUri": "gs://b/a.png"}}
    answers = [{"output": "4"}, {"error": {"message": "no"}}, {"sum": 4}]
    contents = [
        {"role": "user", "parts": [{"text": "2+2?"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "add", "args": {}}}] * 3},
        {"role": "user", "parts": [{"functionResponse": {"name": "add", "response": each}} for each in answers]},
        {"role": "model", "parts": [{"functionCall": {"name": "draw", "args": {}}}]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "draw", "response": {"output": "See"}, "parts": [picture]}}],
        },
    ]
    (run,), _ = read_rows(tmp_path, "openai_chat", [{"contents": contents}])
    added, drawn = run.agent_steps
    assert [(o.content, o.is_error) for o in added.observations] == [("4", False), ("no", True), ('{"sum": 4}', False)]
    assert [part.type for part in drawn.observations[0].content] == ["text", "image"]


def test_unknown_roles_and_parts_are_counted_and_the_rest_comes_in(tmp_path: Path) -> None:
    messages = [
        {"role": "critic", "content": ""},
        {"role": "user", "content": [{"type": "video", "url": "v"}, {"type": "text", "text": "Hi"}]},
        "junk",
        {"role": "model", "content": "ok", "logprobs": ["x" * 600], "name": "bot"},
        {"role": "tool", "tool_call_id": "lost", "content": {"rows": [1]}},
    ]
    (run,), report = read_rows(tmp_path, "openai_chat", [{"messages": messages}])
    assert [(step.actor, step.message) for step in run.steps] == [("user", "Hi"), ("agent", "ok")]
    assert [(o.call_id, o.content) for o in run.steps[1].observations] == [("lost", '{"rows": [1]}')]
    assert run.steps[1].extra == {"name": "bot"}
    assert report.unknown == {"role:critic": 1, "part:video": 1, "message": 1, "field:logprobs": 1}
    assert list(report.notes) == ["results without a call in the log are attached to the preceding turn"]


@pytest.mark.parametrize(("reader", "keys"), [("openai_chat", ("role", "content")), ("sharegpt", ("from", "value"))])
def test_a_chat_that_would_lose_messages_of_unknown_speakers_is_rejected(
    tmp_path: Path, reader: str, keys: tuple[str, str]
) -> None:
    spoken = [("human", "Book a table."), ("Planner (thought)", "Who calls?"), ("Planner (-> Caller)", "Call them.")]
    spoken += [("Caller", "It rings."), ("Planner (thought)", "Wait."), ("Assistant", "Done.")]
    column = {"openai_chat": "messages", "sharegpt": "conversations"}[reader]
    chat = [dict(zip(keys, one, strict=True)) for one in spoken]
    runs, report = read_rows(tmp_path, reader, [{column: chat}, {column: [chat[0], chat[-1]]}])
    assert [[step.message for step in run.steps] for run in runs] == [["Book a table.", "Done."]]
    ((line, reason),) = report.rejected
    assert line == 1
    assert "got 4 of 6 with others (Planner (thought), Planner (-> Caller), Caller)" in reason


def test_a_speaker_with_a_call_is_the_agent_and_one_with_a_call_id_a_tool(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": "1+1?"},
        {"role": "Solver", "content": "I add.", "tool_calls": [_call("c1", {"a": 1})]},
        {"role": "Calculator", "tool_call_id": "c1", "content": "2"},
        {"role": "assistant", "content": "2"},
    ]
    (run,), report = read_rows(tmp_path, "openai_chat", [{"messages": messages}])
    assert [(step.actor, step.message) for step in run.steps] == [("user", "1+1?"), ("agent", "I add."), ("agent", "2")]
    assert [seen.content for seen in run.steps[1].observations] == ["2"]
    assert not report.rejected
    assert not report.unknown


def test_results_that_stand_in_their_calls_answer_them_and_the_text_beside_them_follows(tmp_path: Path) -> None:
    """As agentv, LibreChat and many loops of people's own store a turn when its tools have run."""
    calls = [{"tool": "ls", "input": {"p": "."}, "output": "a.py", "id": "c1"}, {"name": "cat", "error": "no b.py"}]
    part = {"type": "tool_call", "tool_call": {"id": "c2", "name": "cat", "args": '{"p": "a.py"}', "output": "x = 1"}}
    said = [
        message("assistant", "It is there.", tool_calls=calls),
        message("assistant", [part]),
        message("user", "And?"),
    ]
    again = message("assistant", "I look", tool_calls=[{"name": "ls", "id": "c3", "result": "a.py"}])
    rows = [{"messages": [message("user", "Look"), *said, again, message("tool", "a.py", tool_call_id="c3")]}]
    (run,), report = read_rows(tmp_path, "openai_chat", rows)
    assert outline(run) == [
        "user: Look",
        "agent:  > ls(c1) > cat(None) < a.py(c1) < !no b.py(None)",
        "agent: It is there.",
        "agent:  > cat(c2) < x = 1(c2)",
        "user: And?",
        "agent: I look > ls(c3) < a.py(c3)",
    ]
    assert not any("without a call" in note for note in report.notes)


def test_messages_a_line_whose_positions_begin_anew_are_chats_of_their_own(tmp_path: Path) -> None:
    turns = [("user", 0), ("assistant", 1), ("user", 0), ("assistant", 0), ("user", 1), ("assistant", 1)]
    rows = [message(role, f"{role} {n}", message_index=at, test="t") for n, (role, at) in enumerate(turns)]
    runs, report = read_rows(tmp_path, "openai_chat", rows)
    assert [outline(run) for run in runs] == [
        ["user: user 0", "agent: assistant 1"],
        ["user: user 2", "agent: assistant 3", "user: user 4", "agent: assistant 5"],
    ]
    assert (runs[0].extra["row"], dict(report.notes)) == ({"test": "t"}, {})


def test_messages_a_line_that_name_their_parents_are_a_chat_for_each_branch(tmp_path: Path) -> None:
    """As OpenAssistant publishes its trees: the second question has two answers, and one has a follow-up."""
    tree = {"q1": None, "a1": "q1", "q2": None, "a2": "q2", "b2": "q2", "c2": "b2"}
    roles = {"q": "prompter", "a": "assistant", "b": "assistant", "c": "prompter"}
    rows = [
        {"message_id": name, "parent_id": parent, "role": roles[name[0]], "text": name, "lang": "en"}
        for name, parent in tree.items()
    ]
    runs, _ = read_rows(tmp_path, "openai_chat", rows)
    assert [outline(run) for run in runs] == [
        ["user: q1", "agent: a1"],
        ["user: q2", "agent: a2"],
        ["user: q2", "agent: b2", "user: c2"],
    ]
    assert [(run.episode_key, run.extra["row"]) for run in runs] == [
        (leaf, {"lang": "en"}) for leaf in ("a1", "a2", "c2")
    ]


def test_bad_rows_are_listed_with_their_line_and_reason(tmp_path: Path) -> None:
    rows = [{"messages": MESSAGES}, {"messages": [{"role": "user", "content": "x"}]}, 5, {"prompt": "task"}, {"a": 1}]
    runs, report = read_rows(tmp_path, "openai_chat", rows)
    assert len(runs) == 1
    assert [(line, reason[:30]) for line, reason in report.rejected] == [
        (2, "expected a run, got a task wit"),
        (3, "expected a row that is an obje"),
        (4, "expected a run, got a task wit"),
        (5, "expected chat messages (`messa"),
    ]


def test_sharegpt_turns_become_calls_and_results(tmp_path: Path) -> None:
    (run,), report = read_rows(tmp_path, "sharegpt", [SHAREGPT])
    assert [(step.actor, step.message) for step in run.steps] == [
        ("system", "Be brief."),
        ("user", "1+1?"),
        ("agent", ""),
        ("agent", "2 and 0."),
        ("agent", "not json"),
    ]
    assert [(a.tool, a.args) for a in run.steps[2].actions] == [("add", {"a": 1}), ("mul", {})]
    assert [o.content for o in run.steps[2].observations] == ["2", "0"]
    assert (run.tools, report.unknown) == ((TOOL,), {"role:judge": 1})
    assert detected([SHAREGPT]).importer.name == "sharegpt"  # type: ignore[union-attr]


def test_fields_of_a_sharegpt_turn_that_nothing_reads_are_counted(tmp_path: Path) -> None:
    calls = [{"API_name": "zoom", "API_params": {"box": [0, 1]}}]
    turns = [
        {"from": "human", "value": "What is this?"},
        {"from": "gpt", "value": "I look closer.", "thoughts": "Too small.", "actions": calls, "weight": 1},
        {"from": "human", "value": "zoom: a cat", "role": "user", "content": "zoom: a cat"},
        {"from": "gpt", "value": "A cat.", "thoughts": "Clear now.", "actions": []},
    ]
    (run,), report = read_rows(tmp_path, "sharegpt", [{"conversations": turns}])
    assert [step.message for step in run.agent_steps] == ["I look closer.", "A cat."]
    assert report.unknown == {"field:thoughts": 2, "field:actions": 1}


def test_agentgym_keeps_its_marks_its_text_and_its_reward(tmp_path: Path) -> None:
    ((run,), _) = read_rows(tmp_path, "agentgym", [AGENTGYM])
    assert [step.message for step in run.steps] == [turn["value"] for turn in AGENTGYM["conversations"]]
    assert [step.actor for step in run.steps] == ["user", "agent", "user", "agent", "user", "agent"]
    assert [step.train for step in run.agent_steps] == [False, True, True]
    assert (run.task.id, run.task.prompt, run.task.environment) == ("webshop_3", "WebShop: buy tea", "webshop")
    assert (run.outcome.reward, run.outcome.status) == (1.0, "success")


def test_rows_of_turns_go_to_the_reader_that_their_marks_name() -> None:
    without_loss = {
        "id": "t-1",
        "conversations": [{k: v for k, v in t.items() if k != "loss"} for t in AGENTGYM["conversations"]],
    }
    instruct = {"id": "os_4", "conversations": AGENTGYM["conversations"]}
    chat = {"id": "os_4", "conversations": MESSAGES}
    harbor = {"conversations": MESSAGES, "trial_name": "t", "episode": "episode-0", "task": "x"}
    expected = {
        "agentgym": [AGENTGYM, without_loss, {**without_loss, "id": "webshop_1", "reward": 0.5}],
        "agentinstruct": [instruct, chat],
        "harbor_traces": [harbor],
        "sharegpt": [SHAREGPT],
        "openai_chat": [{"id": "other", "conversations": MESSAGES}],
    }
    for name, rows in expected.items():
        for row in rows:
            assert detected([row, row]).importer.name == name  # type: ignore[union-attr]


def test_an_agent_that_only_says_ok_is_not_trained_on_even_without_marks(tmp_path: Path) -> None:
    turns = [{k: v for k, v in turn.items() if k != "loss"} for turn in AGENTGYM["conversations"]]
    ((run,), _) = read_rows(tmp_path, "agentgym", [{"id": "alfworld_7", "conversations": turns}])
    assert [step.train for step in run.agent_steps] == [False, None, None]
    assert (run.task.environment, run.outcome.status) == ("alfworld", "unknown")


def test_agentinstruct_is_read_in_both_of_its_shapes(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "Count the files."}, {"role": "assistant", "content": "Think: ls\n\nAct: bash"}]
    turns = [
        {"from": "human", "loss": None, "value": "Count the files."},
        {"from": "gpt", "loss": True, "value": "Think: ls"},
    ]
    rows = [{"id": "os_1", "conversations": chat}, {"id": "os_2", "conversations": turns}, {"id": "os_3"}]
    (one, two), report = read_rows(tmp_path, "agentinstruct", rows)
    assert [step.message for step in one.steps] == ["Count the files.", "Think: ls\n\nAct: bash"]
    assert [step.train for step in two.agent_steps] == [True]
    assert (one.task.environment, one.task.prompt, report.n_rejected) == ("os", "Count the files.", 1)


def _trace(episode: int, messages: list[dict[str, Any]], result: Any, trial: str = "trial-1") -> dict[str, Any]:
    return {
        "conversations": messages, "agent": "terminus-2", "model": "gpt-4o", "model_provider": "openai", "task": "hello",
        "episode": f"episode-{episode}", "run_id": "r", "trial_name": trial, "tool_definitions": [TOOL], "result": result,
    }  # fmt: skip


def test_later_episodes_of_a_harbor_trial_that_repeat_earlier_ones_are_one_run(tmp_path: Path) -> None:
    texts = ["go", "first", "seen", "second"]
    messages = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]
    fresh = [{"role": "user", "content": "summary"}, {"role": "assistant", "content": "third"}]
    rows = [_trace(0, messages[:2], "1.0"), _trace(1, messages, "1.0"), _trace(2, fresh, "AgentTimeoutError"), 7]
    runs, report = read_rows(tmp_path, "harbor_traces", rows)
    assert [[step.message for step in run.steps] for run in runs] == [texts, ["summary", "third"]]
    assert [(run.outcome.status, run.outcome.reward, run.outcome.exit_status) for run in runs] == [
        ("success", 1.0, None),
        ("error", None, "AgentTimeoutError"),
    ]
    assert [run.episode_key for run in runs] == ["trial-1/episode-1", "trial-1/episode-2"]
    first = runs[0]
    assert (first.agent.name, first.agent.model, first.task.id, first.group_id) == (
        "terminus-2",
        "openai/gpt-4o",
        "hello",
        "hello",
    )
    assert (first.tools, report.n_rejected) == ((TOOL,), 1)


def test_adp_actions_and_observations_become_turns(tmp_path: Path) -> None:
    (run,), report = read_rows(tmp_path, "adp", small_log("adp"))
    assert [(step.actor, step.message) for step in run.steps] == [
        ("user", "Fix it."),
        ("agent", "I look."),
        ("agent", "Open both."),
        ("agent", ""),
        ("agent", "Done."),
    ]
    looked, opened, coded, _ = run.agent_steps
    assert (looked.thought, looked.reward) == ("hm\n\nwhy", 0.5)
    assert [(a.call_id, a.args) for a in opened.actions] == [("a", {"p": 1}), ("b", {"p": 2})]
    assert ([(o.call_id, o.content) for o in opened.observations], opened.reward) == (
        [("b", "two"), ("a", "one")],
        0.25,
    )
    assert [(a.tool, a.args) for a in coded.actions] == [("bash", {"code": "ls"})]
    assert [o.content for o in coded.observations] == ["[1] b"]
    assert coded.extra["led_to"] == {"url": "http://x", "html": "<b>"}
    assert (run.task.id, run.outcome.status, report.unknown) == ("adp-1", "success", {"class_:video_observation": 1})


def test_a_crew_session_that_completed_is_not_called_a_success(tmp_path: Path) -> None:
    rows = small_log("crew")
    (run,), report = read_rows(tmp_path, "crew", rows)
    assert [(step.actor, step.message) for step in run.steps] == [("user", "Review."), ("agent", "Looks good.")]
    assert (run.outcome.status, run.outcome.exit_status) == ("unknown", "completed")
    assert (run.session_id, run.agent.name, run.task.prompt) == ("rows", "crew/reviewer", "main")
    acted = run.agent_steps[0]
    assert acted.usage is not None
    assert (acted.model, acted.usage.input_tokens, report.unknown) == ("m", 5, {"event:project_info": 1})
    assert detected(rows).importer.name == "crew"  # type: ignore[union-attr]
    pipeline = [
        {**rows[0], "session_type": "pipeline"},
        {**rows[2], "role": "step"},
        rows[3],
        {**rows[2], "role": "step"},
        rows[3],
    ]
    ((run,), _) = read_rows(tmp_path, "crew", pipeline)
    assert (run.agent.name, len(run.agent_steps)) == ("crew/pipeline/reviewer", 2)
    assert read_rows(tmp_path, "crew", rows[:3])[1].rejected == [
        (1, "expected a run, got a task without an agent turn")
    ]


def test_a_sage_dialog_keeps_results_without_inventing_calls(tmp_path: Path) -> None:
    (dialog,) = small_log("sage")
    (run,), report = read_rows(tmp_path, "sage", [dialog])
    assert [(step.actor, step.message) for step in run.steps] == [(("user", "agent")[t["role"] == "assistant"], t["content"])
        for t in dialog["turns"] if t["role"] != "tool"]  # fmt: skip
    asked = run.agent_steps[0]
    assert (asked.actions, [o.content for o in asked.observations]) == ((), ['Tool executed\n{"hz": 3}'])
    assert asked.extra == {"tools_used": ["oscilloscope_log_014"]}
    assert (run.task.id, run.task.prompt, run.task.difficulty) == ("sft_000045", "Debug the chip", "hard")
    assert run.task.metadata == {"target_tools": ["oscilloscope_log_014"], "source": "self-play"}
    assert (run.tags, len(report.notes)) == (("split:train",), 1)


def test_results_without_ids_go_to_the_newest_turn_by_the_name_of_their_tool_or_in_order(tmp_path: Path) -> None:
    def called(*tools: str) -> dict[str, Any]:
        return {"role": "assistant", "content": "", "tool_calls": [_call(None, "{}", tool) for tool in tools]}

    def result(text: str, **fields: str) -> dict[str, str]:
        return {"role": "tool", "content": text, **fields}

    messages = [called("aborted"), {"role": "user", "content": "again"}]
    messages += [called("a", "b"), result("of b", name="b"), result("of a")]
    messages += [called("c", "d"), result("of d", name="d"), result("of c", name="c")]
    messages += [called("e", "e"), result("one"), result("two")]
    (run,), report = read_rows(tmp_path, "openai_chat", [{"messages": messages}])
    assert [[seen.content for seen in step.observations] for step in run.agent_steps] == [
        [], ["of a", "of b"], ["of c", "of d"], ["one", "two"],
    ]  # fmt: skip
    assert not any("without a call" in note for note in report.notes)


def test_a_transcript_goes_on_where_it_ended() -> None:
    transcript = Transcript.resumed(
        [{"actor": "agent", "actions": [make_call("a", {}, "c1"), make_call("b", {}, None), make_call("b", {}, None)],
          "observations": [{"content": "x", "call_id": None}]}]
    )  # fmt: skip
    assert transcript.waiting == (None, "c1")
    assert transcript.add_result("y", call_id="c1")
    assert transcript.add_result("z")
    assert not transcript.add_result("more", call_id="c1")
    assert transcript.orphans == 1


def test_moments_out_of_the_calendar_are_unknown() -> None:
    assert parse_time("0001-01-01T00:00:00+14:00") is None
    assert parse_time("2026-01-01T00:00:00+02:00").isoformat() == "2025-12-31T22:00:00+00:00"  # type: ignore[union-attr]
    with pytest.raises(InvalidInput, match="years 1 to 9999"):
        read_trajectory({"steps": [{"actor": "agent", "timestamp": "0001-01-01T00:00:00+14:00"}]})


def _spoken(**message: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "1+1?"}, {"role": "assistant", **message}]


def test_several_answers_to_one_request_are_attempts_of_their_own(tmp_path: Path) -> None:
    choices = [{"index": i, "message": {"role": "assistant", "content": said}} for i, said in enumerate(("2", "3"))]
    body = {"model": "m-1", "choices": choices}
    request = {"model": "m-1", "messages": [{"role": "user", "content": "1+1?"}]}
    for row in ({"request": request, "response": body}, {**request, "response": {"body": body}}, {**request, **body}):
        runs, report = read_rows(tmp_path, "openai_chat", [row])
        assert [(run.agent_steps[0].message, run.episode_key) for run in runs] == [("2", "0"), ("3", "1")]
        assert (report.rejected, report.unknown) == ([], {})
    (run,), _ = read_rows(tmp_path, "openai_chat", [{**request, "choices": choices[:1]}])
    assert run.episode_key == "", "a single answer is no attempt among others"


QUESTION = {"role": "user", "content": "2+2?"}
REPLY = {"role": "assistant", "content": "4"}
RESPONSE = {"object": "chat.completion", "model": "m", "choices": [{"index": 0, "message": REPLY}]}


@pytest.mark.parametrize("before", [[], [QUESTION, {"role": "assistant", "content": "Let me see."}]])
@pytest.mark.parametrize(
    "row",
    [
        lambda asked: {
            "id": "1",
            "input": {"messages": asked, "tools": [TOOL]},
            "output": RESPONSE,
        },  # AppWorld's calls
        lambda asked: {"input": {"messages": asked}, "output": REPLY},
        lambda asked: {"input": asked, "output": "4"},
        lambda asked: {"call": {"messages": asked}, "reply": RESPONSE},
        lambda asked: {"messages": asked, "kwargs": {}, "outputs": ["4"]},  # DSPy's history
        lambda asked: {"messages": asked, "response": "4"},
        lambda asked: {"messages": asked, "completion": REPLY},
    ],
)
def test_what_the_model_replied_beside_the_messages_ends_the_run(tmp_path: Path, row: Any, before: list[Any]) -> None:
    asked = [*before, QUESTION]
    (run,), report = read_rows(tmp_path, "openai_chat", [row(asked)])
    assert [step.message for step in run.steps] == [said["content"] for said in (*asked, REPLY)]
    assert run.steps[-1].actor == "agent"
    assert not report.rejected
    assert (found := detected([row(asked)]).importer)
    assert found.name == "openai_chat"


ANSWERED = {"type": "message", "role": "assistant", "content": "4", "model": "m", "stop_reason": "end_turn"}
GEMINI = {"candidates": [{"content": {"role": "model", "parts": [{"text": "4"}]}}], "modelVersion": "m"}
CONVERSE = {"output": {"message": {"role": "assistant", "content": [{"text": "4"}]}}, "stopReason": "end_turn"}
VENDORS: dict[str, Any] = {
    "anthropic's batch": {"custom_id": "1", "result": {"type": "succeeded", "message": ANSWERED}},
    "gemini's batch": {"key": "1", "response": GEMINI},
    "vertex's batch": {"request": {"contents": [{"role": "user", "parts": [{"text": "2+2?"}]}]}, "response": GEMINI},
    "bedrock's batch": {"modelInput": {"messages": [QUESTION]}, "modelOutput": ANSWERED},
    "bedrock's log": {
        "modelId": "m",
        "input": {"inputBodyJson": {"messages": [QUESTION]}},
        "output": {"outputBodyJson": CONVERSE},
    },
}


@pytest.mark.parametrize("name", VENDORS)
def test_a_vendors_line_of_a_request_and_its_answer_is_a_run(tmp_path: Path, name: str) -> None:
    (run,), _ = read_rows(tmp_path, "openai_chat", [VENDORS[name]])
    asked = ["2+2?"] if name.startswith(("v", "b")) else []
    assert [step.message for step in run.steps] == [*asked, "4"]
    assert (run.agent.model, run.steps[-1].actor) == ("m", "agent")
    assert (found := detected([VENDORS[name]]).importer)
    assert found.name == "openai_chat"


@pytest.mark.parametrize(
    "turns",
    [
        [{"system": "Be short.", "input": "1+1?", "output": "2"}, {"input": "2+2?", "output": "4"}],
        [{"system": "Be short.", "human": "1+1?", "assistant": "2"}, {"human": "2+2?", "assistant": "4"}],
        ["1+1?", "2", "2+2?", "4"],
    ],
)
def test_exchanges_of_a_conversation_are_its_turns(tmp_path: Path, turns: list[Any]) -> None:
    (run,), _ = read_rows(tmp_path, "openai_chat", [{"conversation": turns}])
    said = [step.message for step in run.steps if step.actor != "system"]
    assert (said, [step.actor for step in run.steps][-4:]) == (["1+1?", "2", "2+2?", "4"], ["user", "agent"] * 2)
    assert [step.message for step in run.steps if step.actor == "system"] == ["Be short."] * isinstance(turns[0], dict)


GREETED = [{"role": "assistant", "content": "Hello."}, QUESTION, REPLY]


@pytest.mark.parametrize(
    "value",
    [
        {"chat_history": GREETED},
        {"s1": GREETED, "new": [], "s2": GREETED},
        {"chats": {"s1": GREETED, "s2": GREETED}},
    ],
)
def test_chats_under_names_keep_the_roles_that_they_state(tmp_path: Path, value: dict[str, Any]) -> None:
    """They were taken for AutoGen's, whose roles are those of the one who began the chat."""
    got = read(write(tmp_path / "chat_history.json", value), tmp_path)
    assert got.format == "openai_chat"
    assert {tuple(outline(run)) for run in got.runs} == {("agent: Hello.", "user: 2+2?", "agent: 4")}
    assert len(got.runs) == (1 if "chat_history" in value else 2)
    assert {run.session_id for run in got.all} <= {None, "s1", "s2"}


@pytest.mark.parametrize("name", ["sessions", "conversations", None])
def test_records_of_chats_within_one_object_are_runs_each(tmp_path: Path, name: str | None) -> None:
    """In a list of any name, as applications store them and APIs page them, or under names."""
    chats = [[message("user", f"Q{n}"), message("assistant", f"A{n}")] for n in range(2)]
    records = [{"title": f"t{n}", "messages": chat} for n, chat in enumerate(chats)]
    held = (
        {name: [*records, {"messages": []}], "version": 2, "model": "m"}
        if name
        else {"s0": records[0], "s1": records[1], "new": {"title": "", "messages": []}}
    )
    found = read(write(tmp_path / "a.json", held), tmp_path)
    assert [outline(run) for run in found.all] == [[f"user: Q{n}", f"agent: A{n}"] for n in range(2)]
    assert [run.extra["row"] for run in found.all] == [{"title": "t0"}, {"title": "t1"}]
    assert [run.agent.model for run in found.all] == ["m" if name else None] * 2
    assert [run.session_id for run in found.all] == ([None] * 2 if name else ["s0", "s1"])
    assert [line for line, _ in found.report.rejected] == [3]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"role": "user", "text": "2+2?"}, {"role": "assistant", "text": "4"}),
        ({"role": "user", "message": "2+2?"}, {"role": "bot", "message": "4"}),
        ({"role": "user", "parts": [{"text": "2+2?"}]}, {"role": "model", "parts": [{"text": "4"}]}),  # Gemini's API
        ({"type": "human", "content": "2+2?"}, {"type": "ai", "content": "4"}),  # LangChain
        ({"role": "userMessage", "content": "2+2?"}, {"role": "apiMessage", "content": "4"}),  # Flowise
    ],
)
def test_messages_have_their_text_under_other_names_too(tmp_path: Path, asked: Any, said: Any) -> None:
    for name in ("messages", "turns"):
        chat = [{"type": "system", "content": "Be brief."}] if "type" in asked else []
        row = {name: [*chat, asked, said]} | ({} if chat else {"system_prompt": "Be brief."})
        got = read(write(tmp_path / "chat.jsonl", [row]), tmp_path)
        assert (got.format, outline(got.runs[0])) == ("openai_chat", ["system: Be brief.", "user: 2+2?", "agent: 4"])


def test_the_state_of_a_thread_of_langgraph_is_its_chat(tmp_path: Path) -> None:
    call = {"name": "add", "args": {"a": 2}, "id": "t1", "type": "tool_call"}
    messages = [
        {"type": "human", "content": "2+2?"},
        {"type": "ai", "content": "", "tool_calls": [call]},
        {"type": "tool", "content": "4", "name": "add", "tool_call_id": "t1", "status": "success"},
        {"type": "ai", "content": "4", "tool_calls": []},
    ]
    got = read(write(tmp_path / "state.json", {"values": {"messages": messages}, "next": [], "tasks": []}), tmp_path)
    assert got.format == "openai_chat"
    assert outline(got.runs[0]) == ["user: 2+2?", "agent:  > add(t1) < 4(t1)", "agent: 4"]


def test_arguments_of_a_call_have_several_names_and_are_not_lost_without_a_word(tmp_path: Path) -> None:
    named = [{"tool_name": "add", name: {"a": 2}} for name in ("args", "params", "tool_input", "toolInput", "wishes")]
    chat = [QUESTION, {**REPLY, "tool_calls": [*named, {"tool_name": "add", "params_as_json": '{"a": 2}'}]}]
    got = read(write(tmp_path / "chat.jsonl", [{"messages": chat}]), tmp_path)
    calls = got.all[0].agent_steps[0].actions
    assert [call.args for call in calls] == [{"a": 2}] * 4 + [{}, {"a": 2}]
    assert got.report.unknown["field:arguments of a call by an unknown name"] == 1


def test_messages_of_haystack_have_calls_and_results_in_their_parts(tmp_path: Path) -> None:
    call = {"tool_name": "add", "arguments": {"a": 1}, "id": "t1"}
    messages = [
        {"role": "user", "content": [{"text": "1+1?"}], "meta": {}, "name": None},
        {
            "role": "assistant",
            "content": [{"reasoning": {"reasoning_text": "hm", "extra": {}}}, {"tool_call": call}],
            "meta": {"model": "m-1"},
        },
        {
            "role": "tool",
            "content": [{"tool_call_result": {"result": "no", "origin": call, "error": True}}],
            "meta": {},
        },
        {"role": "assistant", "content": [{"text": "2"}], "meta": {"model": "m-1"}},
    ]
    got = read(write(tmp_path / "messages.json", messages), tmp_path)
    assert outline(got.runs[0]) == ["user: 1+1?", "agent:  > add(t1) < !no(t1)", "agent: 2"]
    assert [(step.model, step.thought) for step in got.only.agent_steps] == [("m-1", "hm"), ("m-1", None)]
    assert got.report.unknown == {}


def test_a_request_that_a_table_holds_as_text_is_read_as_its_object_is(tmp_path: Path) -> None:
    """AutoGen 0.2 logs requests and responses as JSON in text columns (`runtime_logging`)."""
    request = {"model": "m-1", "messages": [{"role": "user", "content": "1+1?"}]}
    response = {"choices": [{"message": {"role": "assistant", "content": "2"}}]}
    row = {"id": 1, "request": json.dumps(request), "response": json.dumps(response), "is_cached": 0}
    (run,), _ = read_rows(tmp_path, "openai_chat", [row])
    assert outline(run) == ["user: 1+1?", "agent: 2"]
    assert (run.task.prompt, run.agent.model) == ("1+1?", "m-1")


def test_what_was_refused_or_spoken_aloud_is_what_was_said(tmp_path: Path) -> None:
    refused, spoken, both = (
        _spoken(content=None, refusal="I will not."),
        _spoken(content=None, audio={"id": "a1", "data": "x" * 900, "transcript": "Two."}),
        _spoken(content="2", refusal=None),
    )
    runs, _ = read_rows(tmp_path, "openai_chat", [{"messages": messages} for messages in (refused, spoken, both)])
    assert [run.agent_steps[0].message for run in runs] == ["I will not.", "Two.", "2"]
    assert from_messages(refused).agent_steps[0].message == "I will not."


def test_thoughts_that_gateways_keep_in_blocks_are_read_once(tmp_path: Path) -> None:
    blocks = [{"type": "thinking", "thinking": "Add.", "signature": "s"}]
    details = [{"type": "reasoning.text", "text": "Add."}, {"type": "reasoning.encrypted", "data": "x"}]
    result = (
        _spoken(content="2", thinking_blocks=blocks),
        _spoken(content="2", reasoning_details=details),
        _spoken(content="2", reasoning="Add.", reasoning_details=details),
    )
    runs, _ = read_rows(tmp_path, "openai_chat", [{"messages": messages} for messages in result])
    assert [run.agent_steps[0].thought for run in runs] == ["Add."] * 3


def test_a_call_that_stands_in_the_content_and_beside_it_is_one_call(tmp_path: Path) -> None:
    """LangChain keeps Anthropic's blocks and its own calls of the same ids."""
    part = {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}}
    called = _spoken(
        content=[{"type": "text", "text": "Sum."}, part], tool_calls=[_call("c1", {"a": 1}), _call("c2", {})]
    )
    (run,), _ = read_rows(tmp_path, "openai_chat", [{"messages": called}])
    assert sorted(action.call_id or "" for action in run.agent_steps[0].actions) == ["c1", "c2"]


def test_all_items_of_one_response_are_one_turn_though_it_spoke_between_its_calls(tmp_path: Path) -> None:
    output = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "First look."}]},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "And more."}]},
        {"type": "mcp_call", "id": "m1", "name": "find", "arguments": '{"q": 1}', "output": "found"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
    ]
    (run,), report = read_rows(tmp_path, "openai_chat", [{"model": "m", "input": "Go", "output": output}])
    called, said = run.agent_steps
    assert ([action.tool for action in called.actions], called.message, called.thought) == (
        ["add", "find"], "And more.", "First look.",
    )  # fmt: skip
    assert ([observation.content for observation in called.observations], said.message) == (["found"], "Done.")
    assert report.unknown == {}


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


def test_a_prompt_and_an_answer_in_lists_of_their_own_are_one_chat(tmp_path: Path) -> None:
    asked, call = [message("system", "Be brief."), message("user", "Go")], {"name": "look", "arguments": {"at": "a"}}
    answered = [message("assistant", None, tool_call=call), message("tool", "text"), message("assistant", "Done.")]
    row = {"prompt_ids": [1], "response_messages": answered, "prompt_messages": asked}
    found = read(write(tmp_path / "trace.json", row), tmp_path)
    assert outline(found.only) == ["system: Be brief.", "user: Go", "agent:  > look(None) < text(None)", "agent: Done."]


def test_token_counts_of_a_response_belong_to_its_only_turn_and_those_in_metadata_to_theirs(tmp_path: Path) -> None:
    """As EvalScope writes its predictions, and gptme its conversations."""
    usage = {"input_tokens": 27, "output_tokens": 49}
    answer = [message("assistant", "It has shipped.")]
    found = read(write(tmp_path / "p.jsonl", [{"messages": answer, "model_output": {"usage": usage}}]), tmp_path)
    assert [tokens(step) for step in found.only.agent_steps] == [(27, 49)]
    assert any("no message of a user" in note for note in found.report.notes)
    table = write(tmp_path / "t.csv", b"prompt,response,prompt_tokens,completion_tokens\nQ,18,27,49\n")
    assert [tokens(step) for step in read(table, tmp_path).only.agent_steps] == [(27, 49)]
    twice = [message("assistant", text, metadata={"model": "m", "usage": usage, "cost": 0.1}) for text in ("a", "b")]
    found = read(write(tmp_path / "c.json", {"messages": twice, "usage": {"input_tokens": 99}}), tmp_path)
    assert [(tokens(step), step.model) for step in found.only.agent_steps] == [((27, 49), "m")] * 2


@pytest.mark.parametrize(
    ("asked", "answered"), [("question", "answer"), ("instruction", "output"), ("prompt", "completion")]
)
def test_a_column_of_thoughts_is_what_the_agent_thought_unless_it_may_be_a_judges(
    asked: str, answered: str, tmp_path: Path
) -> None:
    row = {asked: "How many are 6 and 12?", "reasoning": "Let me add them.", answered: "They are 18."}
    found = read(write(tmp_path / "a.jsonl", [row]), tmp_path)
    assert [(step.thought, step.message) for step in found.only.agent_steps] == [("Let me add them.", "They are 18.")]
    found = read(write(tmp_path / "b.jsonl", [{**row, "score": 0.5}]), tmp_path)
    assert found.only.agent_steps[0].thought is None
    assert any("may be the judge's" in note for note in found.report.notes)
    found = read(write(tmp_path / "c.jsonl", [{**row, "score": 0.5, "cot": "6 and 12 make 18."}]), tmp_path)
    assert found.only.agent_steps[0].thought == "6 and 12 make 18."


@pytest.mark.parametrize(
    "part",
    [{"image": {"url": "a.png"}}, {"image": {"path": "a.png", "bytes": None}}, {"path": "a.png"}, {"image": "a.png"}],
)
def test_an_image_is_a_path_or_url_of_the_part_or_of_an_object_in_it(tmp_path: Path, part: dict[str, Any]) -> None:
    asked = {"role": "user", "content": [{"type": "image", **part}, {"type": "text", "text": "What is it?"}]}
    (run,), report = read_rows(tmp_path, "openai_chat", [{"messages": [asked, REPLY]}])
    assert [getattr(piece, "uri", None) for piece in run.steps[0].message] == ["a.png", None]
    assert report.unknown == {}


def test_chunks_of_google_ai_studio_have_their_thoughts_and_the_model(tmp_path: Path) -> None:
    thought = {"text": "Add them.", "role": "model", "isThought": True}
    for more in ({}, {"parts": [{"text": ""}, {"text": "Add them.", "thought": True}]}):
        chunks = [{"text": "2+2?", "role": "user"}, {**thought, **more}, {"text": "4", "role": "model"}]
        row = {"runSettings": {"model": "models/gemini-2.5-pro"}, "chunkedPrompt": {"chunks": chunks}}
        (run,), _ = read_rows(tmp_path, "openai_chat", [row])
        assert [(step.actor, step.message, step.thought) for step in run.steps] == [
            ("user", "2+2?", None),
            ("agent", "4", "Add them."),
        ]
        assert run.agent.model == "models/gemini-2.5-pro"


def test_chunks_of_google_ai_studio_have_calls_code_and_files(tmp_path: Path) -> None:
    chunks = [
        {"driveImage": {"id": "1A"}, "role": "user", "tokenCount": 258},
        {"text": "How many?", "role": "user"},
        {"functionCall": {"name": "count", "args": {"of": "cats"}}, "role": "model"},
        {"functionResponse": {"name": "count", "response": {"output": "4"}}, "role": "user"},
        {"executableCode": {"language": "PYTHON", "code": "print(4)"}, "role": "model"},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "4"}, "role": "model"},
        {"text": "Four.", "inlineImage": {"mimeType": "image/png", "data": "aGk="}, "role": "model"},
    ]
    got = read(write(tmp_path / "prompt.json", {"runSettings": {}, "chunkedPrompt": {"chunks": chunks}}), tmp_path)
    shown = outline(got.runs[0])
    assert "driveImage:1A" in str(got.all[0].steps[0].message)
    assert shown[1:4] == [
        "user: How many?",
        "agent:  > count(None) < 4(None)",
        "agent:  > code_execution(None) < 4(None)",
    ]
    assert got.all[0].agent_steps[1].actions[0].args == {"language": "PYTHON", "code": "print(4)"}
    assert "urn:sha256" in str(got.all[0].steps[-1].message)
    assert "Four." in str(got.all[0].steps[-1].message)


def thread_message(role: str, text: str, created: int) -> dict[str, Any]:
    content = [{"type": "text", "text": {"value": text, "annotations": []}}]
    return {"object": "thread.message", "thread_id": "t", "role": role, "content": content, "created_at": created}


def test_messages_of_openais_assistants_have_their_texts_in_the_order_of_their_times(tmp_path: Path) -> None:
    newest_first = [thread_message("assistant", "4", 1_700_000_001), thread_message("user", "2+2?", 1_700_000_000)]
    for rows in ([{"object": "list", "data": newest_first}], newest_first):  # Jan has a message a line
        (run,), report = read_rows(tmp_path, "openai_chat", rows)
        assert [step.message for step in run.steps] == ["2+2?", "4"]
        assert (run.session_id, report.unknown) == ("t", {})


def test_messages_of_several_conversations_in_one_list_are_chats_of_their_own(tmp_path: Path) -> None:
    messages = [{**message, "topicId": topic} for topic in ("t1", "t2") for message in (QUESTION, REPLY)]
    runs, _ = read_rows(tmp_path, "openai_chat", [{"state": {"messages": messages, "topics": []}}])
    assert [([step.message for step in run.steps], run.session_id) for run in runs] == [
        (["2+2?", "4"], t) for t in ("t1", "t2")
    ]


CHAT = {"messages": [QUESTION, REPLY]}
PARTS = [{"role": m["role"], "contentParts": [{"type": "text", "text": m["content"]}]} for m in (QUESTION, REPLY)]


@pytest.mark.parametrize(
    "value",
    [
        {"data": {"chats": [CHAT] * 2, "folders": []}},  # TypingMind
        {"chat-next-web-store": {"sessions": [CHAT] * 2}, "app-config": {"models": [{"name": "m"}]}},  # NextChat
        {"chat-sessions": [{"messages": PARTS}] * 2},  # Chatbox
        [{"history": [{"message": said, "contextItems": []} for said in (QUESTION, REPLY)]}] * 2,  # Continue
    ],
)
def test_chats_of_applications_are_found_in_their_exports(tmp_path: Path, value: Any) -> None:
    runs = read(write(tmp_path / "export.json", value), tmp_path).all
    assert [[step.message for step in run.steps] for run in runs] == [["2+2?", "4"]] * 2


def test_rows_that_carry_a_message_of_langchain_are_chats_of_their_sessions(tmp_path: Path) -> None:
    n8n = [
        {"type": "human", "content": "2+2?", "additional_kwargs": {}},
        {"type": "ai", "content": "4", "tool_calls": []},
    ]
    langchain = [{"type": kind, "data": {"content": said}} for kind, said in (("human", "2+2?"), ("ai", "4"))]
    for messages in (n8n, langchain, list(map(json.dumps, n8n))):
        rows = [
            {"id": n, "session_id": name, "message": message} for n, message in enumerate(messages) for name in "ab"
        ]
        found = read(write(tmp_path / "rows.jsonl", rows), tmp_path)
        assert found.format == "openai_chat"
        assert [(run.session_id, [step.message for step in run.steps]) for run in found.all] == [
            (name, ["2+2?", "4"]) for name in "ab"
        ]


def test_answers_of_a_batch_have_what_was_asked_from_the_file_of_requests_beside_them(tmp_path: Path) -> None:
    body = {"model": "m", "messages": [QUESTION], "tools": [TOOL]}
    requests = [{"custom_id": name, "url": "/v1/chat/completions", "body": body} for name in ("a", "b", "b", "c")]
    requests[3] = {**requests[3], "body": {**body, "model": "other"}}
    write(tmp_path / "batch_input.jsonl", requests)
    rows = [{"custom_id": name, "response": {"body": {**RESPONSE, "model": "m-2026"}}} for name in ("a", "b", "c", "d")]
    path = write(tmp_path / "batch_output.jsonl", rows)
    found = read(path, tmp_path)
    assert [[step.message for step in run.steps] for run in found.all] == [["2+2?", "4"], ["4"], ["4"], ["4"]]
    assert found.all[0].tools == (TOOL,)
    assert any("batch_input.jsonl" in note for note in found.report.notes)
