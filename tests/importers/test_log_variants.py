"""Chats and rows of data sets as other programs write them, on small ones made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_logs import message, outline, read, read_as, read_one, write
from hostile import survives
from quintain.importers.files.probing import probe
from quintain.importers.pipeline import ImportOptions, import_logs
from quintain.importers.registry import detect
from quintain.importers.run_sink import DryRun
from quintain.importers.training_data.verl import rendered_messages
from quintain.records.trajectory import ImagePart


def test_pictures_in_a_column_come_where_they_are_marked(tmp_path: Path) -> None:
    turns = [{"from": "human", "value": "<image>What? <image>"}, {"from": "gpt", "value": "A cat"}]
    row = {"conversations": turns, "images": ["a.jpg", {"path": "b.jpg", "bytes": None}]}
    run, _ = read_one("sharegpt", write(tmp_path / "rows.jsonl", [row]), tmp_path)
    shown = run.trajectory.steps[0].message
    assert not isinstance(shown, str)
    assert [part.uri if isinstance(part, ImagePart) else part.text for part in shown] == ["a.jpg", "What? ", "b.jpg"]
    survives("sharegpt", [row], tmp_path)
    parts = [{"type": "image"}, {"type": "text", "text": "Q"}]
    chat = {
        "messages": [message("user", parts), message("assistant", "A")],
        "images": [{"bytes": "x"}],
        "videos": ["b.mp4"],
    }
    _, report = read_one("openai_chat", write(tmp_path / "chat.jsonl", [chat]), tmp_path)
    assert [word in " ".join(report.notes) for word in ("as bytes", "videos and sounds are left out")] == [True, True]


THINKING = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "ok"}]
LANGCHAIN: list[tuple[str, str, dict[str, Any]]] = [
    ("HumanMessage", "human", {"content": "add"}),
    ("AIMessage", "ai", {"content": THINKING, "tool_calls": [{"name": "add", "args": {"x": 1}, "id": "c"}]}),
    ("ToolMessage", "tool", {"content": "3", "tool_call_id": "c"}),
    ("AIMessage", "ai", {"content": "3"}),
]


@pytest.mark.parametrize("style", ["dumpd", "messages_to_dict", "model_dump"])
def test_dumped_messages_of_langchain_are_a_chat(tmp_path: Path, style: str) -> None:
    made = []
    for kind, role, fields in LANGCHAIN:
        about = {**fields, "type": role, "response_metadata": {"model_name": "m"} if role == "ai" else {}}
        path = ["langchain", "schema", "messages", kind]
        styles = {"dumpd": {"lc": 1, "type": "constructor", "id": path, "kwargs": about}, "model_dump": about}
        made.append(styles.get(style, {"type": role, "data": about}))
    value: Any = made if style == "messages_to_dict" else {"messages": made}
    run, _ = read_one("openai_chat", write(tmp_path / "dump.json", value), tmp_path)
    assert outline(run) == ["user: add", "agent: ok > add(c) < 3(c)", "agent: 3"]
    assert [step.model for step in run.trajectory.agent_steps] == ["m", "m"]
    assert run.trajectory.agent_steps[0].thought == "hm"
    survives("openai_chat", value, tmp_path)


SPOKEN = [message("user", "add"), message("assistant", "3")]
STATE = [{"type": "HumanMessage", "content": "add"}, {"type": "AIMessage", "content": "3", "tool_calls": []}]


@pytest.mark.parametrize(
    ("record", "status"),
    [
        ({"state": {"history": SPOKEN, "success": True}, "task": {"task_id": 1}}, "success"),
        ({"values": {"messages": STATE, "todos": [{"content": "x"}]}, "next": []}, "unknown"),
        ({"question": "add", "trace": STATE, "is_correct": False}, "failure"),
    ],
)
def test_the_only_chat_of_a_record_comes_in_whatever_its_name(tmp_path: Path, record: Any, status: str) -> None:
    got = read(write(tmp_path / "log.json", record), tmp_path)
    assert (got.format, outline(got.only), got.only.outcome.status) == (
        "openai_chat",
        ["user: add", "agent: 3"],
        status,
    )
    survives("openai_chat", record, tmp_path)


def test_a_message_with_an_empty_text_is_a_turn_of_its_chat(tmp_path: Path) -> None:
    said = [{"role": role, "text": text} for role, text in (("agent", "Hi."), ("user", ""), ("agent", "Again?"))]
    got = read(write(tmp_path / "log.jsonl", [{"turns": said}] * 2), tmp_path)
    assert outline(got.runs[0]) == ["agent: Hi.", "user: ", "agent: Again?"]


@pytest.mark.parametrize("record", [{"a": SPOKEN, "b": SPOKEN, "c": 1}, {"few_shot": SPOKEN[:1] * 2, "c": 1}])
def test_a_record_of_several_chats_or_of_questions_alone_is_no_log(tmp_path: Path, record: Any) -> None:
    assert detect(probe(write(tmp_path / "file.json", record), tmp_path)).importer is None


def test_rows_of_an_input_and_an_output_are_instructions(tmp_path: Path) -> None:
    rows = [{"input": "Where is order 7?", "output": "Shipped"}, {"input": "Where is order 8?", "output": "Lost"}]
    runs, _ = read_as("alpaca", write(tmp_path / "pairs.json", rows), tmp_path)
    assert [outline(run) for run in runs][1] == ["user: Where is order 8?", "agent: Lost"]
    labels = [{"input": "Input", "output": "Output", "kind": "x"}]
    assert detect(probe(write(tmp_path / "labels.json", labels), tmp_path)).importer is None


def test_text_that_a_template_rendered_is_taken_apart_where_it_is_plainly_marked(tmp_path: Path) -> None:
    prompt = "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"
    output = "call<|im_end|>\n<|im_start|>user\n<tool_response>1</tool_response><|im_end|>\n<|im_start|>assistant\nA<|im_end|>"
    rows = [
        {"input": prompt, "output": output, "score": 1.0},
        {"input": "user\nQ\nassistant\n", "output": "A", "score": 0.0},
    ]
    runs, report = read_as("verl", write(tmp_path / "1.jsonl", rows), tmp_path)
    result = ["system: S", "user: Q", "agent: call", "user: <tool_response>1</tool_response>", "agent: A"]
    assert (outline(runs[0]), len(runs[1].trajectory.steps)) == (result, 2)
    assert any("without its special tokens" in note for note in report.notes)
    survives("verl", rows[:1], tmp_path)
    llama = "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nQ<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    again = (
        llama
        + "old<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nR<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    )
    assert rendered_messages(again, "new<|eot_id|>") == [
        {"role": "user", "content": "Q"},
        {"role": "assistant", "content": "old", "weight": 0},
        {"role": "user", "content": "R"},
        {"role": "assistant", "content": "new"},
    ]
    assert rendered_messages("What does <|im_start|>user\n mean?", "A mark") is None


@pytest.mark.parametrize(
    "value",
    [
        {"input": "Input", "output": "Output", "instruction": "Instruction"},
        {"question": "Question", "answer": "Answer"},
        {"simulations": [{"id": 1, "result": 0.2}], "tasks": [{"id": "t"}], "info": {}},
        {"type": "user", "uuid": "u", "sessionId": "s", "message": {"role": "user", "parts": [{"text": "Hi"}]}},
    ],
)
def test_files_that_only_use_the_words_of_a_format_are_no_logs_of_it(tmp_path: Path, value: Any) -> None:
    assert detect(probe(write(tmp_path / "file.json", value), tmp_path)).importer is None


def test_a_list_of_persons_with_a_role_each_is_hardly_a_chat(tmp_path: Path) -> None:
    persons = [{"role": "user", "content": "Ann", "email": "a@example.org"}, {"role": "assistant", "content": "Bob"}]
    assert detect(probe(write(tmp_path / "users.json", persons), tmp_path)).confidence <= 0.5


ITEMS: list[dict[str, Any]] = [
    message("user", "Weather?"),
    {"type": "function_call", "call_id": "c", "name": "get", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "3C"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is 3C."}]},
]
WEATHER = ["user: Weather?", "agent:  > get(c) < 3C(c)", "agent: It is 3C."]


def test_items_of_the_responses_api_keep_the_turn_of_the_user_and_are_no_codex_rollout(tmp_path: Path) -> None:
    for name, value in (("a.json", ITEMS), ("b.jsonl", ITEMS), ("c.jsonl", [{"messages": ITEMS}])):
        got = read(write(tmp_path / name, value), tmp_path)
        assert (got.format, outline(got.only)) == ("openai_chat", WEATHER)


def test_a_response_of_the_responses_api_brings_its_question_model_tokens_and_time(tmp_path: Path) -> None:
    result = {
        "object": "response",
        "created_at": 1_740_000_000,
        "model": "gpt-5-2025",
        "output": [ITEMS[3]],
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    asked = {"model": "gpt-5", "instructions": "Be brief.", "input": "Weather?"}
    rows = [
        {"request": asked, "response": result},
        {"custom_id": "1", "response": {"status_code": 200, "body": result}},
    ]
    both, batch = read(write(tmp_path / "log.jsonl", rows), tmp_path).all
    assert outline(both) == ["system: Be brief.", "user: Weather?", "agent: It is 3C."]
    for run in (both, batch):
        (step,) = run.agent_steps
        assert step.usage is not None
        assert step.timestamp is not None
        assert (step.model, step.usage.input_tokens, step.timestamp.isoformat()) == (
            "gpt-5-2025",
            3,
            "2025-02-19T21:20:00+00:00",
        )


def test_a_chat_completion_tells_when_it_was_made_and_columns_of_json_are_kept_once(tmp_path: Path) -> None:
    chat = [message("user", "q")]
    response = {"created": 1_740_000_000, "choices": [{"message": message("assistant", "a")}]}
    rows = [{"messages": json.dumps(chat), "response": response, "tools": "[]", "kept": 1}]
    run = read(write(tmp_path / "log.jsonl", rows), tmp_path).only
    assert run.agent_steps[0].timestamp is not None
    assert run.extra == {"row": {"kept": 1}}


def test_calls_between_tags_are_calls_where_their_results_are_turns_of_a_tool(tmp_path: Path) -> None:
    call = '<tool_call>\n{"name": "get", "arguments": {"id": {"n": 7}}}\n</tool_call>'
    answers = "<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>"
    hermes = [
        {"from": "human", "value": "q"},
        {"from": "gpt", "value": f"<think>\nplan\n</think>\nI look.\n{call}\n{call}"},
        {"from": "tool", "value": answers},
        {"from": "gpt", "value": "Done."},
    ]
    run = read(write(tmp_path / "a.jsonl", [{"conversations": hermes}]), tmp_path).only
    assert outline(run) == [
        "user: q",
        "agent: I look. > get(None) > get(None) < one(None) < two(None)",
        "agent: Done.",
    ]
    assert (run.steps[1].thought, run.steps[1].actions[0].args) == ("plan", {"id": {"n": 7}})
    python = "<tool_call>\n{'arguments': {'on': True}, 'name': 'get'}\n</tool_call>\n"  # and nothing after it
    alone = [{"from": "human", "value": "q"}, {"from": "gpt", "value": python}]
    run = read(write(tmp_path / "b.jsonl", [{"conversations": alone}]), tmp_path).only
    assert [(call.tool, call.args) for call in run.steps[1].actions] == [("get", {"on": True})]


def test_calls_between_tags_stay_text_where_the_user_answers_or_one_is_no_call(tmp_path: Path) -> None:
    call = '<tool_call>\n{"name": "get"}\n</tool_call>'
    for n, (said, answers) in enumerate(((call, "user"), (call + "<tool_call>\nnot so\n</tool_call>", "tool"))):
        chat = [message("user", "q"), message("assistant", said)]
        chat += [{"role": answers, "content": "r"}, message("assistant", "a")]
        run = read(write(tmp_path / f"{n}.jsonl", [{"messages": chat}]), tmp_path).only
        assert (run.steps[1].message, run.steps[1].actions) == (said, ())


def test_a_value_too_large_to_be_known_by_its_beginning_says_so(tmp_path: Path) -> None:
    path = tmp_path / "big.json"
    with path.open("wb") as file:
        file.write(b'{"messages":[')
        file.writelines(b'{"role":"user","content":"%s"},' % (b"x" * 2**22) for _ in range(9))
        file.write(b'{"role":"assistant","content":"a"}]}')
    (rejected,) = import_logs(tmp_path, ImportOptions(), DryRun({})).rejected
    assert "too large to detect from its beginning (set its format)" in rejected.reason
